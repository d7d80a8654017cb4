//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestDRAForceDelete deletes a pod with --force whose containers can't end, since their shim is
// stopped. The API server and the kubelet forget the pod at once, and the scheduler gives its
// device to the next one, which must not start before the containers have ended.
func TestDRAForceDelete(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAForceDelete)
}

func runDRAForceDelete(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, byDRA)
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	n.waitDevices(t, 1)
	one := n.pod(t, "one")
	one.WaitRunning(t)
	object, err := n.get("one")
	if err != nil {
		t.Fatal(err)
	}
	uid := string(object.UID)
	running := processesOf(t, uid)
	if len(running) == 0 {
		t.Fatal("the pod has no process")
	}
	shim := parentOf(t, running[0])
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() { _ = syscall.Kill(shim, syscall.SIGCONT) }
	defer resume()
	n.Kubectl(t, "", "delete", "pod", object.Name, "--force", "--grace-period=0")

	began := time.Now()
	two := n.pod(t, "two")
	wait.Until(t, limit, "allocation to the second pod", func() error {
		p, err := n.get("two")
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("it is not bound")
		}
		return err
	})
	second, err := n.get("two")
	if err != nil {
		t.Fatal(err)
	}
	wait.Holds(t, 20*time.Second, "one holder of the device", func() error {
		if pids := processesOf(t, string(second.UID)); len(pids) > 0 && len(processesOf(t, uid)) > 0 {
			return fmt.Errorf("processes %d of the second pod run beside those of the first", pids)
		}
		return nil
	})
	if len(processesOf(t, uid)) == 0 {
		t.Error("the processes of the first pod have ended: the test shows nothing")
	}
	resume()
	resumed := time.Now()
	two.WaitRunning(t)
	if left := processesOf(t, uid); len(left) > 0 {
		t.Errorf("processes %d of the first pod run beside the second", left)
	}
	if node, ok := two.Report(t, "main").Node("/dev/zigbee"); !ok || node.Major != 188 {
		t.Errorf("the second pod has %+v, want 188:0", node)
	}
	t.Logf("the second pod ran %s after its creation, %s after the first could end", time.Since(began).Round(time.Millisecond), time.Since(resumed).Round(time.Millisecond))
}

// processesOf lists the processes of a pod other than zombies.
func processesOf(t *testing.T, uid string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), uid) {
			continue // it has ended, or belongs to another pod
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if state, _ := stat(pid); state != "Z" && state != "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat returns the state and the parent of a process.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// parentOf is the parent of the process and those of its siblings: the shim.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	_, parent := stat(pid)
	if parent <= 1 {
		t.Fatalf("process %d has the parent %d, want a shim", pid, parent)
	}
	return parent
}
