package conformance_test

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
)

const (
	healthy   = v1.ResourceHealthStatusHealthy
	unhealthy = v1.ResourceHealthStatusUnhealthy
)

// e2e_node/device_plugin_failures_test.go: will set allocatable to zero when a
// device is unhealthy, and recovers
func TestRemovedDeviceIsUnhealthyAndRecovers(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	n.serve(ports)
	for range 3 {
		n.WaitCount(t, port, count(1, 1))
		n.Rm("port0")
		n.WaitCount(t, port, count(1, 0))
		n.wantRefused(devicemanager.Pod("late", port, 1), "no healthy devices present")
		n.Mknod("port0")
	}
	n.WaitCount(t, port, count(1, 1))
	n.admit(devicemanager.Pod("in-time", port, 1))
}

// e2e_node/device_plugin_failures_test.go: when the device of a running pod turns
// unhealthy, the pod stays, and so does the device after the pod has gone;
// e2e_node/device_plugin_failures_pod_status_test.go: the pod's status shows it
func TestPodKeepsADeviceThatTurnsUnhealthy(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	n.serve(ports)
	n.WaitCount(t, port, count(1, 1))
	pod := n.admit(devicemanager.Pod("kept", port, 1))
	shows := func(want v1.ResourceHealthStatus) {
		t.Helper()
		if got := n.Health(pod, "main"); !maps.Equal(got, map[string]v1.ResourceHealthStatus{"port0": want}) {
			t.Errorf("status shows %v, want port0 %s", got, want)
		}
	}
	shows(healthy)
	n.Rm("port0")
	n.WaitCount(t, port, count(1, 0))
	shows(unhealthy)
	n.wantHeld(pod, port, "port0")
	n.Mknod("port0")
	n.WaitCount(t, port, count(1, 1))
	shows(healthy)

	n.Rm("port0")
	n.WaitCount(t, port, count(1, 0))
	n.Remove(pod)
	n.wantRefused(devicemanager.Pod("next", port, 1), "no healthy devices present")
	if got := n.Count(port); got != count(1, 0) {
		t.Errorf("count after the pod has gone: %v, want the device listed", got)
	}
}

// Changes in quick succession: the last state wins, however many the kubelet has seen.
func TestLastStateOfAStormWins(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	n.serve(ports)
	n.WaitCount(t, port, count(2, 2))
	s := n.record(port)
	for range 100 {
		n.Rm("port0")
		n.Mknod("port0")
	}
	n.Rm("port1")
	n.Mknod("port2")
	n.WaitCount(t, port, count(3, 2))
	for _, c := range s.stop() {
		if c.Capacity < 2 {
			t.Errorf("capacity was %d meanwhile, want 2", c.Capacity)
		}
	}
	n.wantHeld(n.admit(devicemanager.Pod("two", port, 2)), port, "port0", "port2")
}

// A broken device of one resource does not affect others.
func TestBrokenResourceDoesNotAffectOthers(t *testing.T) {
	const broken = "example.com/broken"
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "valve0")
	p := n.serve(ports + "[[resource]]\nname = \"broken\"\nmatch.glob = \"/dev/valve*\"\nwith = { path = \"/dev/control\" }\n")
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, broken, count(1, 0))
	p.WaitLog(t, limit, "/dev/control") // the reason names the missing path
	n.wantRefused(devicemanager.Pod("late", broken, 1), "no healthy devices present")
	n.admit(devicemanager.Pod("fine", port, 1))

	s := n.record(port)
	n.Mknod("control")
	n.WaitCount(t, broken, count(1, 1))
	pod := n.admit(devicemanager.Pod("in-time", broken, 1))
	var injected []string
	for _, d := range n.RunOptions(t, pod, "main").Devices {
		injected = append(injected, d.PathOnHost)
	}
	slices.Sort(injected)
	if !slices.Equal(injected, []string{"/dev/control", "/dev/valve0"}) {
		t.Errorf("injected: %v, want both", injected)
	}
	s.wantNoChange(t)
}
