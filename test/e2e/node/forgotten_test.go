package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// stubborn is a pod whose container ignores SIGTERM for its whole grace period.
func stubborn(name string, grace int64) *v1.Pod {
	pod := bed.Workload(name, zigbee, 1)
	pod.Spec.Containers[0].Command = []string{"/tool", "stay", "/dev"}
	pod.Spec.TerminationGracePeriodSeconds = &grace
	return pod
}

// TestForgottenPod removes a pod whose container does not end, and starts another pod for
// its device. The kubelet frees the device of a removed pod at once, as it does with
// "kubectl delete --force". Without a view of cgroups, which is what the test measures too,
// both pods hold the device until the grace period ends.
func TestForgottenPod(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"visible cgroups": nil, "no cgroups": {"--cgroup", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mine := adapter("1-1", "A1B2C3D4", 0)
			n.Plug(mine.Stick)
			n.serve(t, zigbees, args...)
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			first := n.run(t, stubborn("first", 10))
			wantNode(t, first.Report(t, "main"), "/dev/zigbee", mine.number())
			uid := first.WaitRunning(t).UID
			first.Remove(t)
			wait.Until(t, limit, "the kubelet has forgotten the pod", func() error {
				held, err := n.Kubelet.Held(t.Context(), zigbee)
				if err == nil && len(held) > 0 {
					err = fmt.Errorf("held: %v", held)
				}
				return err
			})
			if !n.Runs(t, uid) {
				t.Fatal("the removed pod has ended already")
			}

			if args != nil {
				second := n.run(t, bed.Workload("second", zigbee, 1))
				began := time.Now()
				wantNode(t, second.Inspect(t, "main", "/dev"), "/dev/zigbee", mine.number())
				waitEnd(t, n, string(uid), first)
				t.Logf("the device had two holders for %s", time.Since(began).Round(100*time.Millisecond))
				return
			}
			n.refused(t, bed.Workload("second", zigbee, 1), string(uid), mine.id())
			if !n.Runs(t, uid) {
				t.Error("the refusal came after the end of the removed pod")
			}
			n.Kubelet.WaitAllocatable(t, zigbee, 0)
			waitEnd(t, n, string(uid), first)
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			third := n.run(t, bed.Workload("third", zigbee, 1))
			wantNode(t, third.Report(t, "main"), "/dev/zigbee", mine.number())
		})
	}
}

// waitEnd waits until no process of a pod runs.
func waitEnd(t *testing.T, n *node, uid string, pod *bed.Pod) {
	t.Helper()
	wait.Until(t, limit, "end of pod "+pod.Name, func() error {
		if n.Runs(t, types.UID(uid)) {
			return errors.New("it still runs")
		}
		return nil
	})
}

// TestLostCheckpoint deletes the kubelet's checkpoint while a pod runs, and restarts the
// kubelet, which then knows the pod, but not its device. Another pod gets another device or
// is rejected.
func TestLostCheckpoint(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sticks := []stick{adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "B5C6D7E8", 1)}
	for _, s := range sticks {
		n.Plug(s.Stick)
	}
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	first := n.run(t, bed.Workload("first", zigbee, 1))
	uid := first.WaitRunning(t).UID
	mine, _ := first.Report(t, "main").Node("/dev/zigbee")
	n.Kubelet.Kill()
	must(t, os.Remove(filepath.Join(n.DevicePlugins(), "kubelet_internal_checkpoint")))
	n.Kubelet.Start(t)
	n.Kubelet.WaitReady(t)
	// The device of the forgotten pod may be unhealthy already.
	wait.Until(t, limit, "the other device", func() error {
		count, err := n.Kubelet.Allocatable(t.Context(), zigbee)
		if err == nil && count == 0 {
			err = errors.New("none is allocatable")
		}
		return err
	})
	first.WaitRunning(t)
	if held := n.held(t, zigbee); len(held) > 0 {
		t.Fatalf("the kubelet still knows the holders %v", held)
	}
	second := n.StartPod(t, bed.Workload("second", zigbee, 1))
	status := second.Wait(t, "decided", func(p *v1.Pod) error {
		if p.Status.Phase == v1.PodFailed {
			return nil
		}
		return bed.Running(p)
	}).Status
	if status.Phase == v1.PodFailed {
		t.Logf("second pod: %s: %s", status.Reason, status.Message)
		// The kubelet rejects the pod itself if the device is on the list as unhealthy already.
		if !strings.Contains(status.Message, string(uid)) {
			n.plugin.WaitLog(t, limit, "the pod with UID "+string(uid))
		}
		return
	}
	other, _ := second.Inspect(t, "main", "/dev").Node("/dev/zigbee")
	if other.Minor == mine.Minor {
		t.Errorf("both pods hold device %d:%d", mine.Major, mine.Minor)
	}
}

// TestEditedStaticPod edits a pod whose container does not end at once: the next version
// gets its device, after the former one has ended.
func TestEditedStaticPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mine := adapter("1-1", "A1B2C3D4", 0)
	n.Plug(mine.Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	former := n.run(t, stubborn("pod", 5))
	uid := former.WaitRunning(t).UID
	next := bed.Workload("pod", zigbee, 1)
	pod := n.StartPod(t, next) // replaces the manifest
	pod.Wait(t, "as the next version", func(p *v1.Pod) error {
		if p.UID == uid {
			return errors.New("the kubelet has the former version")
		}
		return bed.Running(p)
	})
	if n.Runs(t, uid) {
		t.Error("both versions run")
	}
	wantNode(t, pod.Inspect(t, "main", "/dev"), "/dev/zigbee", mine.number())
}
