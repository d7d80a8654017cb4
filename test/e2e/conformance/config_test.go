package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// Slots removed by a lower count stay listed, since containers may hold them, and a
// kubelet that misses one during an Allocate panics.
func TestLoweredCountRetiresSlotsOnTheList(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	p := n.serve(ports + "count = 4\n")
	n.WaitCount(t, port, count(4, 4))
	pod := n.admit(devicemanager.Pod("kept", port, 4))
	s := n.record(port)
	p.Configure(t, ports+"count = 2\n")
	p.Stop(t)
	p.Restart(t)
	n.WaitCount(t, port, count(4, 2))
	s.wantCapacity(t, 4)
	n.wantHeld(pod, port, "port0", "port0::1", "port0::2", "port0::3")
	health := n.Health(pod, "main")
	if health["port0::1"] != healthy || health["port0::2"] != unhealthy || health["port0::3"] != unhealthy {
		t.Errorf("status shows %v, want the last two slots Unhealthy", health)
	}
	n.Remove(pod)
	n.admit(devicemanager.Pod("two", port, 2))
	n.wantRefused(devicemanager.Pod("third", port, 1), "Available: 0")
	p.Configure(t, ports+"count = 5\n")
	p.Restart(t)
	n.WaitCount(t, port, count(5, 5))
}

func TestRemovedDeviceOrResourceNeverEmptiesTheList(t *testing.T) {
	const valve = "example.com/valve"
	const valves = "[[resource]]\nname = \"valve\"\nmatch.glob = \"/dev/valve*\"\n"
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "valve0")
	p := n.serve(ports + valves)
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, valve, count(1, 1))
	pod := n.admit(devicemanager.Pod("kept", valve, 1))
	sp, sv := n.record(port), n.record(valve)
	p.Configure(t, ports+"exclude.glob = \"/dev/port0\"\n")
	p.Stop(t)
	p.Restart(t)
	p.WaitLog(t, limit, "registered")
	n.WaitCount(t, port, count(1, 0))
	n.WaitCount(t, valve, count(1, 0))
	sp.wantCapacity(t, 1)
	sv.wantCapacity(t, 1)
	n.wantRefused(devicemanager.Pod("late", valve, 1), "no healthy devices present")
	n.wantHeld(pod, valve, "valve0")
	p.Configure(t, ports+valves)
	p.Restart(t)
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, valve, count(1, 1))
}

// All devices listed by an earlier run are on the first list of the next one, present
// or not.
func TestFirstListAfterARestartHasAllRememberedDevices(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	p := n.serve(ports)
	n.WaitCount(t, port, count(2, 2))
	pod := n.admit(devicemanager.Pod("kept", port, 2))
	s := n.record(port)
	p.Stop(t)
	n.Rm("port1")
	began := time.Now()
	p.Restart(t)
	wait.Holds(t, 100*time.Millisecond, "capacity without a device", func() error {
		if c := n.Count(port); c.Capacity != 2 {
			return fmt.Errorf("count is %v", c)
		}
		return nil
	})
	n.Mknod("port1") // a slow driver
	t.Logf("start of the program to a list with a late device: %v", n.timeToCount(began, port, count(2, 2)).Round(time.Millisecond))
	s.wantCapacity(t, 2)

	s = n.record(port)
	p.Stop(t)
	n.Rm("port1")
	began = time.Now()
	p.Restart(t)
	d := n.timeToCount(began, port, count(2, 1))
	t.Logf("start of the program to a list with an absent device: %v", d.Round(time.Millisecond))
	if d > 2*time.Second {
		t.Errorf("the first list took %v, want 2s at most", d)
	}
	s.wantCapacity(t, 2)
	n.wantHeld(pod, port, "port0", "port1")
	if got := n.Health(pod, "main")["port1"]; got != unhealthy {
		t.Errorf("status shows port1 %s, want it Unhealthy", got)
	}
	n.Mknod("port1")
	n.WaitCount(t, port, count(2, 2))
}

// A node without the hardware has no such resource, unless a static pod depends on it.
func TestResourceIsRegisteredWithItsFirstDevice(t *testing.T) {
	const always = "example.com/always"
	n := newNode(t, devicemanager.Options{})
	p := n.serve(ports + "[[resource]]\nname = \"always\"\nmatch.glob = \"/dev/always*\"\nregister = \"always\"\n")
	n.WaitCount(t, always, count(0, 0))
	n.wantRefused(devicemanager.Pod("static", always, 1), "no healthy devices present")
	wait.Holds(t, 100*time.Millisecond, "resource without devices", wait.Equal(devicemanager.Absent, func() devicemanager.Count { return n.Count(port) }))
	n.Mknod("port0", "always0")
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, always, count(1, 1))
	n.Rm("port0")
	n.WaitCount(t, port, count(1, 0))
	p.Restart(t)
	n.WaitCount(t, port, count(1, 0))
}

// broken has three problems.
const broken = domain + `
[[resource]]
naem = "port"
name = "port"
match.glob = "dev/port*"
count = 0
`

var problems = []string{`unknown key`, `naem`, `glob`, `dev/port*`, `count`}

func TestBrokenConfigurationKeepsTheLastGoodOneOverARestart(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	p := n.serve(ports)
	n.WaitCount(t, port, count(1, 1))
	pod := n.admit(devicemanager.Pod("kept", port, 1))
	p.Configure(t, broken)
	for range 2 {
		p.Stop(t)
		n.WaitCount(t, port, count(1, 0))
		p.Restart(t)
		n.WaitCount(t, port, count(1, 1))
		p.WaitLog(t, limit, "level=ERROR")
		for _, want := range append(problems, "last good") {
			if !strings.Contains(p.Log(), want) {
				t.Errorf("the log lacks %q:\n%s", want, p.Log())
			}
		}
	}
	n.wantHeld(pod, port, "port0")
	p.Configure(t, ports+"count = 2\n")
	p.Restart(t)
	n.WaitCount(t, port, count(2, 2))
	if strings.Contains(p.Log(), "level=ERROR") {
		t.Errorf("the log has errors with a good configuration:\n%s", p.Log())
	}
}
