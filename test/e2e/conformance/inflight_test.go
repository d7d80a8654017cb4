package conformance_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// A kubelet panics if a device left the list while it waits for the response of
// Allocate, which would end this test process. So a device that is removed while it is
// being allocated must stay listed.
func TestDeviceRemovedDuringAllocateStaysListed(t *testing.T) {
	for name, remove := range map[string]func(n *node){
		"node":  func(n *node) { n.Rm("port0") },
		"stick": func(n *node) { n.Unplug("1-1") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0")
			n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
			gate := newGate()
			proxyPlugins(t, pluginProxy{onResponse: gate.block})
			resource := port
			if name == "stick" {
				resource = stick
			}
			n.serve(both)
			n.WaitCount(t, resource, count(1, 1))
			pod := devicemanager.Pod("late", resource, 1)
			admitted := n.startAdmit(pod)
			wait.Closed(t, limit, "response", gate.reached)
			remove(n)
			n.WaitCount(t, resource, count(1, 0))
			close(gate.open)
			if err := admitted.result(t); err != nil { // the response was correct when it was sent
				t.Error(err)
			}
			if got := n.Count(resource); got != count(1, 0) {
				t.Errorf("count afterwards: %v, want the device listed", got)
			}
			n.Remove(pod)
			n.wantRefused(devicemanager.Pod("next", resource, 1), "no healthy devices present")
		})
	}
}

// The device is removed when Allocate reaches the program, which cannot know it yet.
func TestAllocateOfARemovedDeviceIsAnErrorWithItsName(t *testing.T) {
	for resource, c := range map[string]struct {
		id     string
		remove func(*node)
	}{
		port:  {"port0", func(n *node) { n.Rm("port0") }},
		stick: {stickA, func(n *node) { n.Unplug("1-1") }},
	} {
		t.Run(resource, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0")
			n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
			gate := newGate()
			proxyPlugins(t, pluginProxy{onRequest: gate.block})
			p := n.serve(both)
			n.WaitCount(t, resource, count(1, 1))
			admitted := n.startAdmit(devicemanager.Pod("late", resource, 1))
			wait.Closed(t, limit, "Allocate", gate.reached)
			freeze(t, p)
			c.remove(n)
			close(gate.open)
			p.Signal(t, syscall.SIGCONT)
			if err := admitted.result(t); err == nil {
				t.Errorf("%s was allocated after its removal", c.id)
			} else if !strings.Contains(err.Error(), c.id) {
				t.Errorf("the error is %v, want %s in it", err, c.id)
			}
			n.WaitCount(t, resource, count(1, 0))
		})
	}
}
