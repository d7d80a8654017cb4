//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// stickIn is a stick in port i.
func stickIn(i int) fixture.Stick {
	return fixture.Stick{Port: fmt.Sprintf("1-%d", i), ID: "10c4:ea60", Serial: fmt.Sprintf("A1B2C3D%d", i), TTY: fmt.Sprintf("ttyUSB%d", i)}
}

// withSerial requests the stick in port i.
func withSerial(i int) func(*resourcev1.ExactDeviceRequest) {
	return func(r *resourcev1.ExactDeviceRequest) {
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].serial == %q", draDriver, stickIn(i).Serial),
		}}}
	}
}

// claimPod creates a pod with a claim of one request, which change modifies.
func (n *draNode) claimPod(t *testing.T, name, namespace string, change func(*resourcev1.ExactDeviceRequest)) *bed.Pod {
	t.Helper()
	request := &resourcev1.ExactDeviceRequest{DeviceClassName: "example.com.zigbee"}
	change(request)
	n.Apply(t, &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "stick", Exactly: request}},
		}},
	})
	pod := bed.Workload(name+"-"+bed.NodeName, "", 0)
	pod.Namespace = namespace
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "mine", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "mine"}}
	n.Apply(t, pod)
	return n.PodOf(name)
}

// healthOf returns the health of the devices of a pod in its status, empty if the status has none.
func (n *draNode) healthOf(name string) (health []v1.ResourceHealthStatus, err error) {
	p, err := n.get(name)
	if err != nil {
		return nil, err
	}
	for _, c := range p.Status.ContainerStatuses {
		for _, claim := range c.AllocatedResourcesStatus {
			for _, r := range claim.Resources {
				health = append(health, r.Health)
			}
		}
	}
	return health, nil
}

// waitHealth waits until the status of a pod has one health for all its devices.
func (n *draNode) waitHealth(t *testing.T, name string, want v1.ResourceHealthStatus) {
	t.Helper()
	wait.Until(t, moveLimit, fmt.Sprintf("health %s of pod %s", want, name), func() error {
		return n.hasHealth(name, want)
	})
}

func (n *draNode) hasHealth(name string, want v1.ResourceHealthStatus) error {
	have, err := n.healthOf(name)
	if err != nil {
		return err
	}
	if len(have) == 0 {
		return errors.New("the status has no health")
	}
	for _, h := range have {
		if h != want {
			return fmt.Errorf("got %v", have)
		}
	}
	return nil
}

// TestDRAHealth shows the health of devices in the status of pods, over ends and updates of the
// program.
func TestDRAHealth(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAHealth)
}

func runDRAHealth(t *testing.T, v bed.Version) {
	n := newDRANodeWith(t, cluster.Options{Plane: v, Kubelet: v, KubeletArgs: []string{"--v", "4"}}, byDRA)
	for i := range 3 {
		n.Plug(stickIn(i + 1))
	}
	n.serve(t)
	n.waitDevices(t, 3)
	for i := range 3 {
		n.claimPod(t, fmt.Sprint("pod-", i+1), "default", withSerial(i+1))
	}
	for i := range 3 {
		n.PodOf(fmt.Sprint("pod-", i+1)).WaitRunning(t)
	}
	t.Run("should reflect device health changes in the Pod's status", func(t *testing.T) {
		n.waitHealth(t, "pod-1", v1.ResourceHealthStatusHealthy)
		n.Unplug(stickIn(1).Port)
		n.waitHealth(t, "pod-1", v1.ResourceHealthStatusUnhealthy)
		n.Plug(stickIn(1))
		n.waitHealth(t, "pod-1", v1.ResourceHealthStatusHealthy)
		if v == bed.Next {
			n.Kubelet.WaitLog(t, limit, `healthService="v1.DRAResourceHealth"`)
		}
	})
	// The end of the old instance's stream clears what the new one has reported.
	t.Run("update of the program", func(t *testing.T) {
		old := n.plugin
		n.spec.Name = "plugin-2"
		n.serve(t)
		n.plugin.WaitLog(t, limit, "another instance serves")
		old.Stop(t)
		n.plugin.WaitLog(t, limit, "msg=registered driver")
		pod := n.PodOf("pod-1")
		// The kubelet reads the health again for each status of the pod.
		pod.Kill(t, "main")
		pod.WaitRestarted(t, "main", 1)
		wait.Until(t, time.Minute, "health after the update", func() error {
			return n.hasHealth("pod-1", v1.ResourceHealthStatusHealthy)
		})
		pod.Kill(t, "main")
		pod.WaitRestarted(t, "main", 2)
		wait.Holds(t, 10*time.Second, "health after the update", func() error {
			return n.hasHealth("pod-1", v1.ResourceHealthStatusHealthy)
		})
	})
	t.Run("should update health to Unknown when plugin stops and recover upon restart", func(t *testing.T) {
		n.plugin.Stop(t)
		n.waitHealth(t, "pod-1", v1.ResourceHealthStatusUnknown)
		n.serve(t)
		n.waitHealth(t, "pod-1", v1.ResourceHealthStatusHealthy)
		n.waitDevices(t, 3)
	})
}

// TestDRAShares has two claims, and two requests of one claim, share a device: each has a share ID.
func TestDRAShares(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAShares)
}

func runDRAShares(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, byDRA+"count = 4\n")
	n.Plug(stickIn(1))
	n.serve(t)
	n.waitDevices(t, 1)
	for _, name := range []string{"one", "two"} {
		n.claimPod(t, name, "default", anyStick)
	}
	n.claimingPod(t, "both", `
requests:
- {name: first, exactly: {deviceClassName: example.com.zigbee}}
- {name: second, exactly: {deviceClassName: example.com.zigbee}}
`)
	n.claimPod(t, "more", "default", anyStick)
	shares := map[string]bool{}
	for name, want := range map[string]int{"one": 1, "two": 1, "both": 2} {
		pod := n.PodOf(name)
		pod.WaitRunning(t)
		if _, ok := pod.Report(t, "main").Node("/dev/zigbee"); !ok {
			t.Errorf("pod %s has no /dev/zigbee", name)
		}
		claim, err := cluster.Get[resourcev1.ResourceClaim](n.Cluster, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"+name)
		if err != nil {
			t.Fatal(err)
		}
		results := claim.Status.Allocation.Devices.Results
		if len(results) != want {
			t.Errorf("claim %s has %d devices, want %d", name, len(results), want)
		}
		for _, r := range results {
			if r.ShareID == nil || shares[string(*r.ShareID)] {
				t.Errorf("claim %s has the share %v, want a share of its own", name, r.ShareID)
				continue
			}
			shares[string(*r.ShareID)] = true
		}
	}
	n.wantPending(t, "more")
	wantHealth := func(want v1.ResourceHealthStatus) {
		t.Helper()
		for _, name := range []string{"one", "two", "both"} {
			n.waitHealth(t, name, want)
		}
	}
	wantHealth(v1.ResourceHealthStatusHealthy)
	n.Unplug(stickIn(1).Port)
	wantHealth(v1.ResourceHealthStatusUnhealthy)
	n.Plug(stickIn(1))
	wantHealth(v1.ResourceHealthStatusHealthy)
	n.delete(t, "both")
	n.PodOf("more").WaitRunning(t)
}

// claimingPod creates a claim and a pod whose container requests some requests of the claim, or all
// of them.
func (n *draNode) claimingPod(t *testing.T, name, devices string, requests ...string) *bed.Pod {
	t.Helper()
	used := []string{"{name: mine}"}
	if len(requests) > 0 {
		used = nil
		for _, r := range requests {
			used = append(used, fmt.Sprintf("{name: mine, request: %s}", r))
		}
	}
	n.Kubectl(t, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: default}
spec:
  devices:%[2]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[3]s, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimName: %[1]s}]
  containers:
  - name: main
    image: %[4]s
    imagePullPolicy: Never
    command: [/tool, run, /dev]
    resources: {claims: [%[5]s]}
`, name, strings.ReplaceAll("\n"+strings.TrimSpace(devices), "\n", "\n    "), bed.NodeName, bed.Image, strings.Join(used, ", ")), "apply", "-f", "-")
	return n.PodOf(name)
}

// anyStick leaves the request of claimPod as it is.
func anyStick(*resourcev1.ExactDeviceRequest) {}
