package node_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// boots is how often the race of a boot is run.
const boots = 3

// TestReboot reboots a node with a static pod that holds a device, started as
// systemd would: the program first. The kubelet admits the pod in the first
// milliseconds, once and for all: it gets its device only if the program has
// registered by then, with the same ID as before.
func TestReboot(t *testing.T) {
	t.Parallel()
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			// Which comes up first under which name is different at each boot.
			mine, other := dongle{port: "1-1", serial: "A1B2C3D4", tty: 0}, dongle{port: "1-2", serial: "B5C6D7E8", tty: 1}
			n.plug(t, mine)
			n.serve(t, zigbees+end)
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			pod := n.run(t, bed.Workload("static", zigbee, 1))
			n.plug(t, other)
			n.Kubelet.WaitAllocatable(t, zigbee, 2)

			won := 0
			for range boots {
				n.Reboot(t)
				n.pull(t, mine)
				n.pull(t, other)
				mine.tty, other.tty = other.tty, mine.tty
				n.plug(t, mine)
				n.plug(t, other)

				status, race := n.boot(t, pod, 2)
				t.Logf("%s: %s: %s", way, status.Phase, race)
				if status.Phase != v1.PodRunning {
					t.Errorf("the pod: %s: %s", status.Reason, status.Message)
					continue
				}
				won++
				wantNode(t, pod.Look(t, "main", "/dev"), "/dev/zigbee", mine.number())
				n.wantHeld(t, zigbee, map[string]string{mine.id(): "static-bed/main"})
				if got := n.allocations(t, zigbee); got != 0 {
					t.Errorf("%d calls of Allocate since the boot", got)
				}
			}
			t.Logf("%s: the pod got its device at %d of %d boots", way, won, boots)
		})
	}
}

// TestRebootWithoutOther is a boot at which a device is missing that was there
// before: that is no reason to keep the kubelet waiting for the others.
func TestRebootWithoutOther(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mine, other := dongle{port: "1-1", serial: "A1B2C3D4", tty: 0}, dongle{port: "1-2", serial: "B5C6D7E8", tty: 1}
	n.plug(t, mine)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	pod := n.run(t, bed.Workload("static", zigbee, 1))
	n.plug(t, other)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)

	n.Reboot(t)
	n.pull(t, other)
	status, race := n.boot(t, pod, 1)
	t.Logf("%s: %s", status.Phase, race)
	if status.Phase != v1.PodRunning {
		t.Fatalf("the pod: %s: %s", status.Reason, status.Message)
	}
	wantNode(t, pod.Look(t, "main", "/dev"), "/dev/zigbee", mine.number())
}

// boot starts what systemd would, the program before the kubelet, and waits until
// the kubelet has made up its mind about a static pod. It says who won by how much.
func (n *node) boot(t testing.TB, pod *bed.Pod, devices int) (status v1.PodStatus, race string) {
	t.Helper()
	n.Containerd.Start(t)
	n.plugin.Restart(t)
	begun := time.Now()
	n.Kubelet.Start(t)
	status = pod.Wait(t, "admitted or not", func(p *v1.Pod) error {
		if p.Status.Phase == v1.PodFailed {
			return nil
		}
		return running(p)
	}).Status
	server := n.logged(t, begun, "Starting device plugin registration server")
	listed := n.listed(t, begun, zigbee, devices)
	added := n.logged(t, begun, "SyncLoop ADD", pod.Name)
	return status, fmt.Sprintf("from the kubelet's socket to the list %.1f ms, to the pod %.1f ms", ms(listed.Sub(server)), ms(added.Sub(server)))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
