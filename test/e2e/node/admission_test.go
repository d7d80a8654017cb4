package node_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// TestSamePath has a container request two devices with one path: the kubelet alone
// would silently drop one.
func TestSamePath(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Plug(adapter("1-1", "A1B2C3D4", 0).Stick)
	n.Plug(adapter("1-2", "B5C6D7E8", 1).Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	n.refused(t, bed.Workload("both", zigbee, 2), "/dev/zigbee", "${index}").Remove(t)
	n.run(t, bed.Workload("one", zigbee, 1))
}

// TestRegisterAlways has a static pod request an absent device. A kubelet that does not
// know the resource starts the pod without the device, silently; register = "always"
// prevents that.
func TestRegisterAlways(t *testing.T) {
	t.Parallel()
	const unknown, always = "example.com/unknown", "example.com/always"
	n := newNode(t)
	n.serve(t, `
[[resource]]
name = "unknown"
match.glob = "/dev/unknown"

[[resource]]
name = "always"
register = "always"
match.glob = "/dev/always"
`)
	n.listed(t, n.served, always, 0)
	silent := n.run(t, bed.Workload("silent", unknown, 1))
	if node, ok := silent.Report(t, "main").Node("/dev/unknown"); ok {
		t.Errorf("an absent device is injected: %+v", node)
	}

	pod := n.refused(t, bed.Workload("always", always, 1), always)
	n.mknod(t, "always", 220)
	n.Kubelet.WaitAllocatable(t, always, 1)
	// The kubelet does not retry a rejected pod until it restarts; it may then be
	// faster than the program, see TestReboot.
	for range boots {
		n.Kubelet.Restart(t)
		if decided(t, pod).Phase == v1.PodRunning {
			break
		}
		t.Log("the kubelet was faster than the program")
	}
	pod.WaitRunning(t)
	wantNode(t, pod.Report(t, "main"), "/dev/always", number{188, 220})
	n.wantHeld(t, always, map[string]string{"always": "always-bed/main"})
}
