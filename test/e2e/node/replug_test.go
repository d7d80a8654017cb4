package node_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// TestReplug unplugs an adapter that a pod holds and plugs in another one, which gets
// the kernel name and number of the first. The pod's container waits for its own
// adapter, under any kernel name, and never gets the other one. The kubelet does not
// call Allocate again: the first response leads to the adapter. All that may happen
// while the program is down: stale links are removed before the program serves.
func TestReplug(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, kind string
		killed     bool
	}{
		{"link", "link", false},
		{"cdi", "cdi", false},
		{"link, program killed", "link", true},
		{"cdi, program killed", "cdi", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mine, other := adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "B5C6D7E8", 0)
			n.Plug(mine.Stick)
			n.serve(t, zigbees+injections[c.kind])
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod := n.run(t, bed.Workload("mine", zigbee, 1))
			wantNode(t, pod.Report(t, "main"), "/dev/zigbee", mine.number())

			if c.killed {
				n.plugin.Kill()
			}
			n.Unplug(mine.Port)
			n.Kubelet.WaitAllocatable(t, zigbee, 0)
			n.Plug(other.Stick)
			if c.killed {
				n.plugin.Restart(t)
			}
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod.Kill(t, "main")
			why := map[string]string{"link": "no such file or directory", "cdi": "unresolvable CDI devices"}[c.kind]
			t.Logf("the container waits: %s", waitStuck(t, pod, why))

			// The other adapter is free, under the kernel name of the first.
			second := n.run(t, bed.Workload("other", zigbee, 1))
			wantNode(t, second.Report(t, "main"), "/dev/zigbee", other.number())
			n.wantHeld(t, zigbee, map[string]string{mine.id(): "mine-bed/main", other.id(): "other-bed/main"})
			waitStuck(t, pod, why)

			mine = adapter("1-3", mine.Serial, 1)
			n.Plug(mine.Stick)
			n.Kubelet.WaitAllocatable(t, zigbee, 2)
			pod.WaitRunning(t)
			r := pod.Report(t, "main")
			wantNode(t, r, "/dev/zigbee", mine.number())
			if r.Env["ZIGBEE_SERIAL"] != mine.Serial {
				t.Errorf("environment: %v, want the serial number", r.Env)
			}
			// One for each pod.
			n.wantAllocations(t, zigbee, 2)
			wantNode(t, second.Inspect(t, "main", "/dev"), "/dev/zigbee", other.number())
		})
	}
}
