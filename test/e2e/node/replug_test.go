package node_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// TestReplug pulls an adapter that a pod holds and plugs in another one, to which
// the kernel gives the name and the number of the first. The pod's container waits
// for its own adapter, whatever the kernel calls that then, and never gets the
// other one. The kubelet asks for nothing again: it is what it was told once that
// leads to the adapter.
func TestReplug(t *testing.T) {
	t.Parallel()
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mine, other := dongle{port: "1-1", serial: "A1B2C3D4", tty: 0}, dongle{port: "1-2", serial: "B5C6D7E8", tty: 0}
			n.plug(t, mine)
			n.serve(t, zigbees+end)
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod := n.run(t, bed.Workload("mine", zigbee, 1))
			wantNode(t, pod.Report(t, "main"), "/dev/zigbee", mine.number())

			n.pull(t, mine)
			n.Kubelet.WaitAllocatable(t, zigbee, 0)
			n.plug(t, other)
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod.Kill(t, "main")
			why := map[string]string{"link": "no such file or directory", "cdi": "unresolvable CDI devices"}[way]
			t.Logf("the container waits: %s", waitStuck(t, pod, why))

			// The other adapter is free for others, under the name that mine had.
			second := n.run(t, bed.Workload("other", zigbee, 1))
			wantNode(t, second.Report(t, "main"), "/dev/zigbee", other.number())
			n.wantHeld(t, zigbee, map[string]string{mine.id(): "mine-bed/main", other.id(): "other-bed/main"})
			waitStuck(t, pod, why)

			mine.tty, mine.port = 1, "1-3"
			n.plug(t, mine)
			n.Kubelet.WaitAllocatable(t, zigbee, 2)
			pod.WaitRunning(t)
			r := pod.Report(t, "main")
			wantNode(t, r, "/dev/zigbee", mine.number())
			if r.Env["ZIGBEE_SERIAL"] != mine.serial {
				t.Errorf("environment: %v", r.Env)
			}
			// One for each pod.
			if got := n.allocations(t, zigbee); got != 2 {
				t.Errorf("%d calls of Allocate, want 2", got)
			}
			wantNode(t, second.Look(t, "main", "/dev"), "/dev/zigbee", other.number())
		})
	}
}
