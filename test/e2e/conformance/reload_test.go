package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// another is a resource with the nodes that match a pattern.
func another(glob string) string {
	return "[[resource]]\nname = \"another\"\nmatch.glob = \"" + glob + "\"\n"
}

// edits remove port0 from the resource port during its allocation, or its second slot
// ("count lowered").
var edits = map[string]struct {
	config  string
	refused string // why the next container does not get it
}{
	"resource removed":                   {domain + another("/dev/none"), "removed from the configuration"},
	"count lowered":                      {ports, "count was lowered"},
	"device excluded":                    {ports + "count = 2\nexclude.glob = \"/dev/port0\"\n", "no match selects it any more"},
	"device moved to another resource":   {domain + another("/dev/port0") + onlyPorts + "count = 2\n", "to be offered by example.com/another"},
	"resource is not active on the node": {ports + "count = 2\nwhen.exists = \"/dev/none\"\n", "not active"},
}

// A kubelet panics if a device left the list while it waits for the response of
// Allocate, which would end this test process. A slot removed by an edit stays listed,
// and running calls are not disturbed.
func TestReloadDuringAllocateKeepsSlotsListed(t *testing.T) {
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0")
			gate := newGate()
			proxyPlugins(t, pluginProxy{onResponse: gate.block})
			p := n.serve(ports + "count = 2\n")
			n.WaitCount(t, port, count(2, 2))
			s := n.record(port)
			pod := devicemanager.Pod("late", port, 2)
			admitted := n.startAdmit(pod)
			wait.Closed(t, limit, "response", gate.reached)
			p.Configure(t, edit.config)
			want := count(2, 0)
			if name == "count lowered" {
				want = count(2, 1)
			}
			n.WaitCount(t, port, want)
			close(gate.open)
			if err := admitted.result(t); err != nil { // the response was correct when it was sent
				t.Error(err)
			}
			n.wantHeld(pod, port, "port0", "port0::1")
			p.Configure(t, ports+"count = 2\n")
			n.WaitCount(t, port, count(2, 2))
			s.wantCapacity(t, 2)
			if got := n.Health(pod, "main"); got["port0"] != healthy || got["port0::1"] != healthy {
				t.Errorf("status shows %v, want all Healthy again", got)
			}
		})
	}
}

// The edit has removed the device when Allocate reaches the program.
func TestReloadBeforeAllocateIsAnErrorWithTheReason(t *testing.T) {
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0")
			gate := newGate()
			proxyPlugins(t, pluginProxy{onRequest: gate.block})
			p := n.serve(ports + "count = 2\n")
			n.WaitCount(t, port, count(2, 2))
			admitted := n.startAdmit(devicemanager.Pod("late", port, 2))
			wait.Closed(t, limit, "Allocate", gate.reached)
			p.Configure(t, edit.config)
			if name == "count lowered" {
				n.WaitCount(t, port, count(2, 1))
			} else {
				n.WaitCount(t, port, count(2, 0))
			}
			close(gate.open)
			if err := admitted.result(t); err == nil || !strings.Contains(err.Error(), edit.refused) {
				t.Errorf("the pod: %v, want an error with %q", err, edit.refused)
			}
		})
	}
}

// A removed resource ends a minute later, with its socket, and the kubelet removes it
// from the node some minutes after that. The other one is not disturbed.
func TestReloadRetiresAResource(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(both)
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, stick, count(1, 1))
	s := n.record(stick)
	began := time.Now()
	p.Configure(t, sticks)
	n.WaitCount(t, port, count(1, 0))
	wait.Until(t, 2*time.Minute, "end of the resource's socket", func() error {
		if got := sockets(t); len(got) != 1 {
			return fmt.Errorf("sockets %v", got)
		}
		return nil
	})
	if took := time.Since(began); took < time.Minute {
		t.Errorf("the resource was gone after %v, want a minute at least", took)
	}
	if got := n.Count(port); got.Allocatable != 0 {
		t.Errorf("count: %v, want nothing allocatable", got)
	}
	s.wantNoChange(t)
	p.Configure(t, both)
	n.WaitCount(t, port, count(1, 1))
}
