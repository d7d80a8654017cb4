//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// The tests of this file and of drahealth_test.go are scenarios of test/e2e_node/dra_test.go of
// Kubernetes, whose driver is a fake. Subtests have their names.

var oneStick = fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"}

// newScenario is a node with a stick, which the program serves. The kubelet logs its calls.
func newScenario(t *testing.T, v bed.Version) *draNode {
	t.Helper()
	n := newDRANodeWith(t, cluster.Options{Plane: v, Kubelet: v, KubeletArgs: []string{"--v", "4"}}, byDRA)
	n.Plug(oneStick)
	n.serve(t)
	n.waitDevices(t, 1)
	return n
}

// freeze stops the program, so that calls of the kubelet time out. thaw continues it.
func (n *draNode) freeze(t *testing.T) {
	t.Helper()
	n.plugin.Signal(t, syscall.SIGSTOP)
}

func (n *draNode) thaw(t *testing.T) {
	t.Helper()
	n.plugin.Signal(t, syscall.SIGCONT)
}

// startKubelet starts the kubelet, which may have been stopped, without waiting for the program.
func (n *draNode) startKubelet(t *testing.T) {
	t.Helper()
	n.Kubelet.Restart(n.owner)
	n.Kubelet.WaitReady(t)
}

// works runs a pod and deletes it.
func (n *draNode) works(t *testing.T, name string) {
	t.Helper()
	n.pod(t, name)
	n.runsAndEnds(t, name)
}

// runsAndEnds waits until a pod runs with the stick, and deletes it.
func (n *draNode) runsAndEnds(t *testing.T, name string) {
	t.Helper()
	pod := n.PodOf(name)
	pod.WaitRunning(t)
	if serial := pod.Report(t, "main").Env["ZIGBEE_SERIAL"]; serial != oneStick.Serial {
		t.Errorf("pod %s has the serial %q, want %s", name, serial, oneStick.Serial)
	}
	n.delete(t, name)
	if left := n.preparedClaims(t); len(left) > 0 {
		t.Errorf("prepared claims after the end of pod %s: %q, want none", name, left)
	}
}

// preparedClaims returns the CDI specs of claims.
func (n *draNode) preparedClaims(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.CDIDir(), "*claim*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// waitBound waits until a pod has a node.
func (n *draNode) waitBound(t *testing.T, name string) {
	t.Helper()
	wait.Until(t, limit, "node of pod "+name, func() error {
		p, err := n.get(name)
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("not bound")
		}
		return err
	})
}

// bindWhileDown creates a pod while the kubelet is down, and unplugs the stick that the scheduler has
// chosen for it.
func (n *draNode) bindWhileDown(t *testing.T, name string) {
	t.Helper()
	n.Kubelet.Stop(t)
	n.pod(t, name)
	n.waitBound(t, name)
	n.Unplug(oneStick.Port)
}

// TestDRARegistration restarts kubelet and program in different ways: the driver is registered again,
// and pods get the device.
func TestDRARegistration(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRARegistration)
}

func runDRARegistration(t *testing.T, v bed.Version) {
	n := newScenario(t, v)
	t.Run("must register after plugin restart", func(t *testing.T) {
		n.plugin.Restart(n.owner)
		n.works(t, "plugin-killed")
		n.plugin.Stop(t)
		n.serve(t)
		n.works(t, "plugin-stopped")
	})
	t.Run("must process pod created when kubelet is not running", func(t *testing.T) {
		n.Kubelet.Stop(t)
		n.pod(t, "kubelet-down")
		n.waitBound(t, "kubelet-down")
		n.startKubelet(t)
		n.runsAndEnds(t, "kubelet-down")
	})
	// The kubelet keeps the slices for half a minute.
	t.Run("must not be removed if plugin restarts quickly enough", func(t *testing.T) {
		before := n.versions(t)
		n.plugin.Stop(t)
		n.serve(t)
		wait.Holds(t, 40*time.Second, "slices of a program that restarts", func() error {
			if now := n.versions(t); fmt.Sprint(now) != fmt.Sprint(before) {
				return fmt.Errorf("%v, before: %v", now, before)
			}
			return nil
		})
	})
}

// TestDRAPrepare has the preparation of a claim fail, hang and be interrupted: the pod waits, and then
// runs.
func TestDRAPrepare(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the kubelet repeats a prepare after more than a minute")
	}
	bed.OnVersions(t, runDRAPrepare)
}

func runDRAPrepare(t *testing.T, v bed.Version) {
	n := newScenario(t, v)
	t.Run("must keep pod in pending state if NodePrepareResources times out", func(t *testing.T) {
		n.freeze(t)
		n.pod(t, "timed-out")
		n.Kubelet.WaitLog(t, limit, "DeadlineExceeded")
		p, err := n.get("timed-out")
		if err != nil || p.Status.Phase != v1.PodPending {
			t.Errorf("the pod is %s, %v, want Pending", p.Status.Phase, err)
		}
		n.thaw(t)
		n.runsAndEnds(t, "timed-out")
	})
	t.Run("must run pod if NodePrepareResources fails and then succeeds", func(t *testing.T) {
		n.bindWhileDown(t, "failed")
		n.startKubelet(t)
		n.plugin.WaitLog(t, limit, "claim not prepared")
		n.Plug(oneStick)
		n.runsAndEnds(t, "failed")
	})
}

// waitGone waits until the API server does not have a pod any more.
func (n *draNode) waitGone(t *testing.T, name string) {
	t.Helper()
	wait.Until(t, moveLimit, "end of pod "+name, func() error {
		if p, err := n.get(name); err == nil {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
}

// TestDRAUnprepare has the release of a claim fail and be interrupted: the pod ends later, and its
// device is free.
func TestDRAUnprepare(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the kubelet repeats a release after some time")
	}
	bed.OnVersions(t, runDRAUnprepare)
}

func runDRAUnprepare(t *testing.T, v bed.Version) {
	n := newScenario(t, v)
	// frozen deletes a running pod while the program is stopped, and waits for the first call.
	frozen := func(t *testing.T, name string, flags ...string) {
		t.Helper()
		n.pod(t, name).WaitRunning(t)
		calls := strings.Count(n.Kubelet.Log(), "Calling NodeUnprepareResource rpc")
		n.freeze(t)
		n.Kubectl(t, "", append([]string{"delete", "pod", name + "-" + bed.NodeName, "--wait=false"}, flags...)...)
		wait.Until(t, limit, "release of the claim", func() error {
			if strings.Count(n.Kubelet.Log(), "Calling NodeUnprepareResource rpc") == calls {
				return errors.New("no call")
			}
			return nil
		})
	}
	// freed waits until nothing is prepared, and runs the next pod.
	freed := func(t *testing.T, name string) {
		t.Helper()
		n.waitGone(t, name)
		wait.Until(t, moveLimit, "release of the claim", func() error {
			if left := n.preparedClaims(t); len(left) > 0 {
				return fmt.Errorf("%q", left)
			}
			return nil
		})
		n.works(t, name+"-next")
	}
	t.Run("must run pod if NodeUnprepareResources fails and then succeeds", func(t *testing.T) {
		frozen(t, "failed")
		n.Kubelet.WaitLog(t, limit, "DeadlineExceeded")
		if _, err := n.get("failed"); err != nil {
			t.Errorf("the pod ends before its claim: %v", err)
		}
		n.thaw(t)
		freed(t, "failed")
	})
	t.Run("must call NodeUnprepareResources for deleted pod after Kubelet restart", func(t *testing.T) {
		frozen(t, "forced", "--force", "--grace-period=0")
		n.startKubelet(t)
		n.thaw(t)
		freed(t, "forced")
	})
	t.Run("crash of the program during NodeUnprepareResources", func(t *testing.T) {
		frozen(t, "crashed")
		n.plugin.Restart(n.owner)
		freed(t, "crashed")
	})
}
