package node_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// TestProgramDown terminates and kills the program, and restarts containers while it is
// down: the runtime still finds their devices. The kubelet loses them and gets them
// back with the program.
func TestProgramDown(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sticks, config := n.plugBoth()
	n.serve(t, config)
	pods := n.runBoth(t)

	var restarts int32
	for _, end := range []struct {
		name string
		do   func()
	}{
		{"SIGTERM", func() {
			n.plugin.Stop(t)
			if left := n.sockets(t); len(left) > 0 {
				t.Errorf("sockets left: %v, want none", left)
			}
		}},
		{"SIGKILL", func() { n.plugin.Kill() }},
	} {
		end.do()
		restarts++
		for kind, d := range sticks {
			n.Kubelet.WaitAllocatable(t, "example.com/"+kind, 0)
			r := restart(t, pods[kind], restarts)
			t.Logf("%s: %s: restarted", end.name, kind)
			wantNode(t, r, "/dev/zigbee", d.number())
		}
		n.plugin.Restart(t)
		for kind, d := range sticks {
			resource := "example.com/" + kind
			n.Kubelet.WaitAllocatable(t, resource, 1)
			n.wantHeld(t, resource, map[string]string{d.id(): kind + "-bed/main"})
			n.wantAllocations(t, resource, 1)
		}
	}
	// The program runs again.
	restarts++
	for kind, d := range sticks {
		wantNode(t, restart(t, pods[kind], restarts), "/dev/zigbee", d.number())
	}
}

// TestKubeletRestart restarts the kubelet beside a running pod: the pod keeps running
// and holds its device, and its container gets it again when it restarts.
func TestKubeletRestart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mine, other := adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "B5C6D7E8", 1)
	n.Plug(mine.Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	pod := n.run(t, bed.Workload("first", zigbee, 1))
	before := n.sockets(t)

	for _, kill := range []bool{false, true} {
		if kill {
			n.Kubelet.Kill()
		}
		n.Kubelet.Restart(t)
		n.Kubelet.WaitReady(t)
		n.Kubelet.WaitAllocatable(t, zigbee, 1)
		if got := pod.WaitRunning(t).Status.ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("the container was restarted %d times, want 0", got)
		}
		n.wantHeld(t, zigbee, map[string]string{mine.id(): "first-bed/main"})
		n.wantAllocations(t, zigbee, 0)
		n.refused(t, bed.Workload("second", zigbee, 1), "Available: 0").Delete(t)
	}
	if after := n.sockets(t); len(after) != 1 {
		t.Errorf("sockets before %v, after %v, want one", before, after)
	}
	wantNode(t, restart(t, pod, 1), "/dev/zigbee", mine.number())
	n.Plug(other.Stick)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	second := n.run(t, bed.Workload("third", zigbee, 1))
	wantNode(t, second.Report(t, "main"), "/dev/zigbee", other.number())
}
