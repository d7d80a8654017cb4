//go:build cluster

package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// podGroups is the version of scheduling.k8s.io that has PodGroups with claims (KEP-5729).
var podGroups = map[bed.Version]string{bed.Current: "v1alpha2", bed.Next: "v1beta1"}

const (
	stickTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: stick, namespace: default}
spec:
  spec:
    devices:
      requests: [{name: stick, exactly: {deviceClassName: example.com.zigbee}}]
`
	podGroup = `
apiVersion: scheduling.k8s.io/%s
kind: PodGroup
metadata: {name: workers, namespace: default}
spec:
  schedulingPolicy: {basic: {}}
  resourceClaims: [{name: shared, resourceClaimTemplateName: stick}]
`
)

// groupPod creates a pod of the group, which uses the claim of the group.
func (n *draNode) groupPod(t *testing.T, name string) *bed.Pod {
	t.Helper()
	n.Kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-%s, namespace: default}
spec:
  schedulingGroup: {podGroupName: workers}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: shared, resourceClaimTemplateName: stick}]
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [/tool, run, /dev]
    resources: {claims: [{name: shared}]}
`, name, bed.NodeName, bed.Image), "apply", "-f", "-")
	return n.PodOf(name)
}

// Pods of a PodGroup share the device of the group's claim. The group keeps the device until it is
// deleted, whatever its pods do.
func TestDRAWorkload(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAWorkload)
}

func runDRAWorkload(t *testing.T, v bed.Version) {
	n := newDRANodeWith(t, cluster.Options{
		Plane:   v,
		Kubelet: v,
		Gates:   []string{"GenericWorkload", "DRAWorkloadResourceClaims"},
		APIs:    []string{"scheduling.k8s.io/" + podGroups[v]},
	}, byDRA)
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	n.waitDevices(t, 1)
	n.Kubectl(t, stickTemplate, "apply", "-f", "-")
	n.Kubectl(t, fmt.Sprintf(podGroup, podGroups[v]), "apply", "-f", "-")
	for _, name := range []string{"one", "two"} {
		pod := n.groupPod(t, name)
		pod.WaitRunning(t)
		if serial := pod.Report(t, "main").Env["ZIGBEE_SERIAL"]; serial != "A1B2C3D4" {
			t.Errorf("pod %s has the serial %q, want A1B2C3D4", name, serial)
		}
	}
	list, err := cluster.Get[resourcev1.ResourceClaimList](n.Cluster, "/apis/resource.k8s.io/v1/resourceclaims")
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || len(list.Items[0].Status.ReservedFor) != 1 || list.Items[0].Status.ReservedFor[0].Resource != "podgroups" {
		t.Fatalf("claims %+v, want one, reserved for the group", list.Items)
	}

	// The restart of a container, the restart of the program and the end of a pod keep the device.
	other := n.pod(t, "other")
	one := n.PodOf("one")
	one.Kill(t, "main")
	one.WaitRestarted(t, "main", 1)
	n.plugin.Restart(t)
	n.plugin.WaitLog(t, limit, "msg=registered driver")
	n.delete(t, "one")
	if _, ok := n.PodOf("two").Report(t, "main").Node("/dev/zigbee"); !ok {
		t.Error("the second pod has lost its device")
	}
	n.delete(t, "two")
	n.wantPending(t, "other")
	three := n.groupPod(t, "three")
	three.WaitRunning(t)
	n.wantPending(t, "other")

	n.delete(t, "three")
	n.Kubectl(t, "", "delete", "podgroup", "workers", "--timeout=60s")
	other.WaitRunning(t)
	if serial := other.Report(t, "main").Env["ZIGBEE_SERIAL"]; serial != "A1B2C3D4" {
		t.Errorf("the pod after the group has the serial %q, want A1B2C3D4", serial)
	}
}

const twoRadios = byDRA + `
[[resource]]
name = "zwave"
match = { usb = { id = "0658:0200" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zwave"
`

// A claim gets the first alternative that is available. Its container names the request, not the
// alternative.
func TestDRAFirstAvailable(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAFirstAvailable)
}

func runDRAFirstAvailable(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, twoRadios)
	n.class(t, "example.com/zwave")
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	n.waitDevices(t, 1)
	radio := func(name string) *bed.Pod {
		t.Helper()
		return n.claimingPod(t, name, `
requests:
- name: radio
  firstAvailable:
  - {name: zwave, deviceClassName: example.com.zwave}
  - {name: zigbee, deviceClassName: example.com.zigbee}
`, "radio")
	}
	wantNode := func(pod *bed.Pod, path string) {
		t.Helper()
		pod.WaitRunning(t)
		r := pod.Report(t, "main")
		if _, ok := r.Node(path); !ok {
			t.Errorf("%s has no %s, but %+v", pod.Name, path, r.Nodes)
		}
	}
	wantNode(radio("second-choice"), "/dev/zigbee")
	first := radio("first-choice")
	n.wantPending(t, "first-choice")
	n.Plug(fixture.Stick{Port: "1-2", ID: "0658:0200", Serial: "B5C6D7E8", TTY: "ttyUSB1"})
	wantNode(first, "/dev/zwave")
	// The path of the metadata contains the name of the request.
	const metadata = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/first-choice/radio/" + draDriver + "-metadata.json"
	if _, text, code := first.Exec(t, "main", "/tool", "open", metadata, "r"); code != 0 {
		t.Errorf("metadata: %s", text)
	}
	// An available alternative that comes first is preferred.
	n.delete(t, "second-choice")
	n.delete(t, "first-choice")
	n.Kubectl(t, "", "delete", "resourceclaim", "--all")
	wantNode(radio("both"), "/dev/zwave")
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
