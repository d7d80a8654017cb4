package node_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestExclusiveDevices has two pods request one adapter by its two names at the same time. The kubelet
// admits one of them. The other one may run when the first one has ended, which no event announces.
func TestExclusiveDevices(t *testing.T) {
	t.Parallel()
	const serial = "example.com/serial"
	n := newNode(t)
	n.Plug(adapter("1-1", "A1B2C3D4", 0).Stick)
	n.serve(t, `
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
shared = "exclusive"

[[resource]]
name = "serial"
match.glob = "/dev/ttyUSB*"
each = "node"
shared = "exclusive"
`)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	n.Kubelet.WaitAllocatable(t, serial, 1)
	pods := map[string]*bed.Pod{
		zigbee: n.StartPod(t, bed.Workload("zigbee", zigbee, 1)),
		serial: n.StartPod(t, bed.Workload("serial", serial, 1)),
	}
	winner := ""
	loser := ""
	for resource, pod := range pods {
		status := pod.Wait(t, "decided", func(pod *v1.Pod) error {
			if pod.Status.Phase == v1.PodFailed {
				return nil
			}
			return bed.Running(pod)
		}).Status
		t.Logf("%s: %s %s", resource, status.Phase, status.Message)
		if status.Phase == v1.PodFailed {
			loser = resource
		} else {
			winner = resource
		}
	}
	if winner == "" || loser == "" {
		t.Fatalf("winner is %q, loser %q: want one of each", winner, loser)
	}
	n.Kubelet.WaitAllocatable(t, loser, 0)
	n.Kubelet.WaitAllocatable(t, winner, 1)
	pods[loser].Remove(t)
	n.refused(t, bed.Workload("again", loser, 1)).Remove(t)
	pods[winner].Remove(t)
	// The kubelet is asked once a minute, and its first answer may be too early.
	wait.Until(t, 4*time.Minute, "the other device", func() error {
		got, err := n.Kubelet.Allocatable(t.Context(), loser)
		if err == nil && got != 1 {
			err = fmt.Errorf("%d are allocatable", got)
		}
		return err
	})
	n.run(t, bed.Workload("next", loser, 1))
	n.Kubelet.WaitAllocatable(t, winner, 0)
}
