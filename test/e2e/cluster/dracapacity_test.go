//go:build cluster

package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

const shared = byDRA + `
count = 8
attributes.speed = { int = "${usb.speed}" }
attributes.release = { version = "2.00" }
attributes.supported = true
capacity.bandwidth = { value = "10G", default = "1G" }
capacity.memory = "16Gi"
container.env.BANDWIDTH = "${capacity.bandwidth}"
`

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

// takes requests amounts of capacities, as pairs of name and amount.
func takes(pairs ...string) func(*resourcev1.ExactDeviceRequest) {
	return func(r *resourcev1.ExactDeviceRequest) {
		r.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
		for i := 0; i < len(pairs); i += 2 {
			r.Capacity.Requests[resourcev1.QualifiedName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
	}
}

// The scheduler divides a device among claims by capacity, and compares typed attributes.
func TestDRACapacity(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRACapacity)
}

func runDRACapacity(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, shared)
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	n.waitDevices(t, 1)
	slices, err := n.slices()
	if err != nil {
		t.Fatal(err)
	}
	device := slices[0].Spec.Devices[0]
	if v := device.Attributes["release"].VersionValue; v == nil || *v != "2.0.0" {
		t.Errorf("attribute release: %+v, want the version 2.0.0", device.Attributes["release"])
	}

	const all = "1Gi"
	wantEnv := func(pod *bed.Pod, want string) {
		t.Helper()
		pod.WaitRunning(t)
		if got := pod.Report(t, "main").Env["BANDWIDTH"]; got != want {
			t.Errorf("%s has the bandwidth %q, want %s", pod.Name, got, want)
		}
	}
	wantEnv(n.claimPod(t, "six", "default", func(r *resourcev1.ExactDeviceRequest) {
		takes("bandwidth", "6G", "memory", all)(r)
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(
			`device.attributes[%[1]q].speed > 1 && device.attributes[%[1]q].supported && device.attributes[%[1]q].release.isGreaterThan(semver("1.10.0"))`,
			draDriver,
		)}}}
	}), "6000000000")
	wantEnv(n.claimPod(t, "three", "default", takes("bandwidth", "3G", "memory", all)), "3000000000")
	wantEnv(n.claimPod(t, "default", "default", takes("memory", all)), "1000000000")
	n.claimPod(t, "more", "default", takes("bandwidth", "500M", "memory", all))
	n.wantPending(t, "more")
	n.delete(t, "three")
	wantEnv(n.PodOf("more"), "500000000")
}

// A pod with adminAccess uses a device beside its holder, and takes nothing of it. The API server
// only admits it in a namespace with the label.
func TestDRAAdminAccess(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAAdminAccess)
}

func runDRAAdminAccess(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, byDRA)
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	n.waitDevices(t, 1)
	admin := func(r *resourcev1.ExactDeviceRequest) {
		r.AdminAccess = new(true)
	}
	const refused = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: refused, namespace: default},
		spec: {devices: {requests: [{name: stick, exactly: {deviceClassName: example.com.zigbee, adminAccess: true}}]}}}`
	if out, err := n.TryKubectl(refused, "create", "-f", "-"); err == nil || !strings.Contains(out, "admin") {
		t.Errorf("a claim with adminAccess in a namespace without the label: %s, %v", out, err)
	}
	n.Kubectl(t, "", "label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
	first := n.claimPod(t, "admin", "default", admin)
	first.WaitRunning(t)
	holder := n.pod(t, "holder")
	holder.WaitRunning(t)
	n.pod(t, "second")
	n.wantPending(t, "second")
	for _, pod := range []*bed.Pod{first, holder} {
		if _, ok := pod.Report(t, "main").Node("/dev/zigbee"); !ok {
			t.Errorf("%s has no device", pod.Name)
		}
	}
	n.delete(t, "holder")
	n.PodOf("second").WaitRunning(t)
}
