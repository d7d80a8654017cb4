package node_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

const (
	// boots is how often the race of a boot is run.
	boots = 3
	// race is how late after the kubelet's socket a list may be for a lost race to be
	// bad luck, which happens on a busy machine. A later list is a fault.
	race = time.Second
)

// TestReboot reboots a node with a static pod that holds a device, started like by
// systemd: the program first. The kubelet admits the pod in the first milliseconds,
// only once: it gets its device only if the program has registered by then, with the
// same ID as before.
//
// It does not run in parallel with other tests of the package, for precise figures.
func TestReboot(t *testing.T) {
	for _, kind := range []string{"link", "cdi"} {
		t.Run(kind, func(t *testing.T) {
			n := newNode(t)
			mine, other := adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "B5C6D7E8", 1)
			n.Plug(mine.Stick)
			n.serve(t, zigbees+injections[kind])
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod := n.run(t, bed.Workload("static", zigbee, 1))
			n.Plug(other.Stick)
			n.Kubelet.WaitAllocatable(t, zigbee, 2)

			won := 0
			for range boots {
				n.Reboot(t)
				// The order of detection differs in each boot.
				n.Unplug(mine.Port)
				n.Unplug(other.Port)
				mine.TTY, other.TTY = other.TTY, mine.TTY
				n.Plug(mine.Stick)
				n.Plug(other.Stick)
				if !n.boot(t, pod, 2) {
					continue
				}
				won++
				wantNode(t, pod.Inspect(t, "main", "/dev"), "/dev/zigbee", mine.number())
				n.wantHeld(t, zigbee, map[string]string{mine.id(): "static-bed/main"})
				n.wantAllocations(t, zigbee, 0)
			}
			t.Logf("the pod got its device at %d of %d boots", won, boots)
			if won == 0 {
				t.Error("the pod never got its device")
			}
		})
	}
}

// boot starts program and kubelet like systemd, the program first, and reports whether
// a static pod got its device. The pod may fail only by a list that comes after its
// admission and within race of the kubelet's socket.
func (n *node) boot(t testing.TB, pod *bed.Pod, devices int) bool {
	t.Helper()
	n.Containerd.Start(t)
	n.plugin.Restart(t)
	begun := time.Now()
	n.Kubelet.Start(t)
	status := decided(t, pod)
	server := n.logged(t, begun, "Starting device plugin registration server")
	listed := n.listed(t, begun, zigbee, devices).Sub(server)
	admission := n.logged(t, begun, "SyncLoop ADD", pod.Name).Sub(server)
	t.Logf("%s: from the kubelet's socket to the list %.1f ms, to the pod %.1f ms", status.Phase, ms(listed), ms(admission))
	if status.Phase == v1.PodRunning {
		return true
	}
	if listed < admission || listed > race {
		t.Fatalf("%s: %s: want the device, or a list after the admission and within %v", status.Reason, status.Message, race)
	}
	return false
}

// decided waits until the kubelet has admitted or rejected a pod.
func decided(t testing.TB, pod *bed.Pod) v1.PodStatus {
	t.Helper()
	return pod.Wait(t, "admitted or not", func(p *v1.Pod) error {
		if p.Status.Phase == v1.PodFailed {
			return nil
		}
		return bed.Running(p)
	}).Status
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
