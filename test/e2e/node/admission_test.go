package node_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// TestCount has as many containers as slots hold a device; the next one is rejected
// until one ends.
func TestCount(t *testing.T) {
	t.Parallel()
	const resource = "example.com/fuse"
	n := newNode(t)
	fuse := n.mknod(t, "fuse", 100)
	n.serve(t, `
[[resource]]
name = "fuse"
count = 2
match.glob = "/dev/fuse"
`)
	n.Kubelet.WaitAllocatable(t, resource, 2)
	first := n.run(t, bed.Workload("first", resource, 1))
	second := n.run(t, bed.Workload("second", resource, 1))
	for _, p := range []*bed.Pod{first, second} {
		wantNode(t, p.Report(t, "main"), "/dev/fuse", fuse)
	}
	held := n.held(t, resource)
	if len(held) != 2 || held["fuse"] == "" || held["fuse::1"] == "" {
		t.Errorf("held: %v", held)
	}
	n.refused(t, bed.Workload("third", resource, 1), "Requested: 1, Available: 0", resource).Remove(t)

	first.Delete(t)
	fourth := n.run(t, bed.Workload("fourth", resource, 1))
	wantNode(t, fourth.Report(t, "main"), "/dev/fuse", fuse)
}

// TestNUMA checks the NUMA nodes of devices in the kubelet's PodResources API: none
// where the kernel knows none.
func TestNUMA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	want := map[string][]int64{"0000:3b:00.0": {0}, "0000:af:00.0": {1}, "0000:1f:00.0": nil}
	for i, card := range []fixture.PCI{{Address: "0000:3b:00.0", NUMA: 0}, {Address: "0000:af:00.0", NUMA: 1}, {Address: "0000:1f:00.0", NUMA: -1}} {
		card.ID, card.Node = "8086:56c0", fmt.Sprintf("accel/accel%d", i)
		n.AddPCI(card)
	}
	n.serve(t, `
[[resource]]
name = "accel"
match = { pci = { class = "12" }, glob = "/dev/accel/*" }
`)
	const resource = "example.com/accel"
	n.Kubelet.WaitAllocatable(t, resource, len(want))
	got := n.allocatable(t, resource)
	for id, numa := range want {
		if have, ok := got[id]; !ok || !slices.Equal(have, numa) {
			t.Errorf("%s: NUMA nodes %v, want %v", id, have, numa)
		}
	}
	pod := n.run(t, bed.Workload("all", resource, int64(len(want))))
	r := pod.Report(t, "main")
	for i := range len(want) {
		name := fmt.Sprintf("accel/accel%d", i)
		wantNode(t, r, "/dev/"+name, n.numberOf(t, name))
	}
}

// TestBroken has a resource whose device lacks a companion: it degrades only itself,
// and recovers.
func TestBroken(t *testing.T) {
	t.Parallel()
	const good, broken = "example.com/good", "example.com/broken"
	n := newNode(t)
	n.mknod(t, "good", 210)
	n.mknod(t, "broken", 211)
	n.serve(t, `
[[resource]]
name = "broken"
match.glob = "/dev/broken"
with = { path = "/dev/missing" }

[[resource]]
name = "good"
match.glob = "/dev/good"
`)
	n.Kubelet.WaitAllocatable(t, good, 1)
	n.listed(t, n.served, broken, 0)
	pod := n.run(t, bed.Workload("good", good, 1))
	wantNode(t, pod.Report(t, "main"), "/dev/good", number{188, 210})
	n.refused(t, bed.Workload("broken", broken, 1), broken).Remove(t)
	n.plugin.WaitLog(t, limit, "/dev/missing")

	n.mknod(t, "missing", 212)
	n.Kubelet.WaitAllocatable(t, broken, 1)
	healed := n.run(t, bed.Workload("healed", broken, 1))
	wantNode(t, healed.Report(t, "main"), "/dev/missing", number{188, 212})
	if got := pod.WaitRunning(t).Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("the pod beside it was restarted %d times", got)
	}
}

// TestOnePath has a container request two devices that would be at the same path: the
// kubelet alone would silently drop one.
func TestOnePath(t *testing.T) {
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
		t.Errorf("the device that is not there: %+v", node)
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

// TestInitContainer has the containers of a pod hold one device in turn: the kubelet
// allocates the same ID again.
func TestInitContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := adapter("1-1", "A1B2C3D4", 0)
	n.Plug(d.Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	pod := bed.Workload("both", zigbee, 1)
	first := bed.Container("init", zigbee, 1)
	first.Command = []string{"/tool", "inspect", "/dev"}
	pod.Spec.InitContainers = []v1.Container{first}
	p := n.run(t, pod)
	wantNode(t, p.Report(t, "init"), "/dev/zigbee", d.number())
	wantNode(t, p.Report(t, "main"), "/dev/zigbee", d.number())
	if got := n.allocations(t, zigbee); got != 2 {
		t.Errorf("%d calls of Allocate, want 2", got)
	}
}

// TestLastGoodConfig breaks the configuration of a node with a running pod and restarts
// the program: it serves the last good one.
func TestLastGoodConfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Plug(adapter("1-1", "A1B2C3D4", 0).Stick)
	n.Plug(adapter("1-2", "B5C6D7E8", 1).Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	pod := n.run(t, bed.Workload("first", zigbee, 1))
	held := n.held(t, zigbee)

	n.plugin.Configure(t, domain+zigbees+"cuont = 2\n")
	if code := n.plugin.Stop(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	n.Kubelet.WaitAllocatable(t, zigbee, 0)
	n.plugin.Restart(t)
	n.plugin.WaitLog(t, limit, `did you mean \"count\"?`)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	second := n.run(t, bed.Workload("second", zigbee, 1))
	if _, ok := second.Report(t, "main").Node("/dev/zigbee"); !ok {
		t.Error("no device")
	}
	if got := pod.WaitRunning(t).Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("the first pod was restarted %d times", got)
	}
	for id, by := range held {
		if now := n.held(t, zigbee)[id]; now != by {
			t.Errorf("%s: held by %q, want %q", id, now, by)
		}
	}

	// Without the copy there is no configuration.
	n.plugin.Kill()
	if err := os.RemoveAll(n.plugin.StateDir()); err != nil {
		t.Fatal(err)
	}
	n.plugin.Restart(t)
	if code := n.plugin.Wait(t, limit); code != 1 {
		t.Errorf("exit code %d without a good configuration, want 1", code)
	}
}
