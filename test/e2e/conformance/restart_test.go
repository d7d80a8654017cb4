package conformance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

// e2e_node/device_plugin_test.go: keeps device plugin assignments across kubelet
// restarts; ... after kubelet restart and device plugin restart; ... across pod and
// kubelet restarts; ... after the device plugin has restarted
func TestAssignmentSurvivesRestarts(t *testing.T) {
	kubelet := func(t *testing.T, n *node, _ *product.Plugin) { n.Restart(t) }
	killed := func(t *testing.T, _ *node, p *product.Plugin) {
		p.Restart(t)
		p.WaitLog(t, limit, "msg=registered") // the kubelet may still count the devices of the killed one
	}
	for _, c := range []struct {
		name  string
		steps []func(*testing.T, *node, *product.Plugin)
	}{
		{"kubelet", []func(*testing.T, *node, *product.Plugin){kubelet}},
		{"plugin killed", []func(*testing.T, *node, *product.Plugin){killed}},
		{"kubelet, then plugin killed", []func(*testing.T, *node, *product.Plugin){kubelet, killed}},
		{"plugin killed, then kubelet", []func(*testing.T, *node, *product.Plugin){killed, kubelet}},
		{"plugin stopped while the kubelet is down", []func(*testing.T, *node, *product.Plugin){
			func(t *testing.T, n *node, p *product.Plugin) {
				n.Stop(t)
				p.Stop(t)
				p.Restart(t)
				n.Restart(t)
			},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0", "port1", "port2")
			p := n.serve(ports + "count = 2\n")
			n.WaitCount(t, port, count(6, 6))
			pod := n.admit(devicemanager.Pod("kept", port, 2))
			held, injected := n.Devices(pod, "main", port), n.injected(pod)
			for _, step := range c.steps {
				step(t, n, p)
			}
			n.WaitCount(t, port, count(6, 6))
			n.wantHeld(pod, port, held...)
			n.admit(pod) // admitted again after a kubelet restart
			n.wantHeld(pod, port, held...)
			if got := n.injected(pod); got != injected {
				t.Errorf("a restarted container gets %s, want %s", got, injected)
			}
			n.admit(devicemanager.Pod("rest", port, 4))
			n.wantRefused(devicemanager.Pod("more", port, 1), "Available: 0")
		})
	}
}

// e2e_node/device_plugin_test.go: node reboot, app pod before the plugin;
// e2e_node/device_manager_test.go: node reboot with the plugin in time
func TestRebootedNodeReadmitsPodsOnceThePluginIsRegistered(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port1")
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(both)
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, stick, count(1, 1))
	early, late := n.admit(devicemanager.Pod("early", port, 1)), n.admit(devicemanager.Pod("late", stick, 1))
	injected := n.injected(late)

	n.Stop(t)
	p.Kill()
	product.Wipe(t, p.Dir)
	// The kernel restarts its numbering and detects the devices in another order.
	n.Unplug("1-1")
	n.Plug(usbStick("1-2", "BBBB2222", "ttyUSB0"))
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB1"))
	n.Reboot(t)
	n.wantRefused(early, "no healthy devices present")
	began := time.Now()
	p.Restart(t)
	t.Logf("start of the program to allocatable after a reboot: %v", n.timeToCount(began, stick, count(2, 2)).Round(10*time.Microsecond))
	n.admit(late)
	n.wantHeld(late, stick, stickA)
	if got := n.injected(late); got != injected {
		t.Errorf("after a reboot the container gets %s, want %s", got, injected)
	}
	wantLink(t, p, stickA, "/dev/ttyUSB1")
}

// From the start of the kubelet to its count.
func TestReregistersWithinMillisecondsOfAKubeletRestart(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	n.serve(ports + "count = 10\n")
	n.WaitCount(t, port, count(10, 10))
	var back []time.Duration
	for range 20 {
		n.Stop(t)
		began := time.Now()
		n.Restart(t)
		back = append(back, n.timeToCount(began, port, count(10, 10)))
	}
	t.Logf("start of the kubelet to allocatable: %s", figures(back))
	if longest := slices.Max(back); longest > time.Second {
		t.Errorf("once it took %v, want a second at most", longest)
	}
}

// SIGTERM ends the streams and removes the sockets, but containers that restart
// during an upgrade still find their links and CDI specs.
func TestTerminationRemovesSocketsAndKeepsLinksAndSpecs(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	n.AddPCI(pciCard("3a", 0))
	p := n.serve(sticks + "[[resource]]\nname = \"card\"\nmatch = { pci = { id = \"8086:56c0\" } }\ncontainer.cdi = true\n")
	n.WaitCount(t, stick, count(1, 1))
	n.WaitCount(t, card, count(1, 1))
	pod := n.admit(devicemanager.Pod("kept", stick, 1))
	if len(sockets(t)) != 2 {
		t.Errorf("sockets of two resources: %v, want two", sockets(t))
	}
	p.Stop(t)
	n.WaitCount(t, stick, count(1, 0))
	n.WaitCount(t, card, count(1, 0))
	if left := sockets(t); len(left) != 0 {
		t.Errorf("sockets after the end: %v, want none", left)
	}
	wantLink(t, p, stickA, "/dev/ttyUSB0")
	if got := specOf(t, p)[card+"="+cards("3a")[0]]; got != "/dev/card3a at /dev/card3a" {
		t.Errorf("CDI spec after the end has %q, want the card", got)
	}
	if o := n.RunOptions(t, pod, "main"); len(o.Devices) != 1 {
		t.Errorf("devices of a container that restarts without the plugin: %v, want one", o.Devices)
	}
}
