package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// update starts a second instance with the files of the first, and returns when the
// kubelet has its list.
func (n *node) update(p *product.Plugin, config, name string) *product.Plugin {
	n.t.Helper()
	next := n.serveAs(product.Spec{Config: config, Dir: p.Dir, Name: name})
	next.WaitLog(n.t, limit, "msg=registered")
	return next
}

// e2e_node/device_plugin_multiple_test.go of 1.37: zero-downtime rollout. Kubelets up
// to 1.36 end the stream of the new instance when the old one ends, so that
// re-registration at once is the best case.
func TestRollingUpdateTakesMilliseconds(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(sticks + "count = 4\n")
	n.WaitCount(t, stick, count(4, 4))
	pod := n.admit(devicemanager.Pod("kept", stick, 2))
	held := n.Devices(pod, "main", stick)
	var gaps []time.Duration
	for i := range 10 {
		before := n.record(stick)
		next := n.update(p, sticks+"count = 4\n", "plugin-"+string(rune('a'+i)))
		before.wantNoChange(t)
		during := n.record(stick)
		p.Stop(t)
		next.WaitLog(t, limit, "stream_ended")
		next.WaitLog(t, limit, "this instance writes links")
		n.WaitCount(t, stick, count(4, 4))
		during.wantCapacity(t, 4)
		gaps = append(gaps, during.unavailable)
		if left := sockets(t); len(left) != 1 {
			t.Errorf("sockets after the update: %v, want one", left)
		}
		p = next
	}
	t.Logf("resource unavailable in an update: %s", figures(gaps))
	if longest := slices.Max(gaps); longest > time.Second {
		t.Errorf("the resource was unavailable for %v, want a second at most", longest)
	}
	n.wantHeld(pod, stick, held...)
	n.admit(devicemanager.Pod("rest", stick, 2))

	// The last instance writes the links.
	n.Plug(usbStick("1-2", "BBBB2222", "ttyUSB1"))
	n.WaitCount(t, stick, count(8, 8))
	wantLink(t, p, stickB, "/dev/ttyUSB1")
}

// e2e_node/device_plugin_multiple_test.go of 1.37: the second instance is removed
// again. Kubelets up to 1.36 then drop the resource and leave the stream of the first
// one open.
func TestRevertedRollingUpdateLeavesTheFirstInstance(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(sticks)
	n.WaitCount(t, stick, count(1, 1))
	next := n.update(p, sticks, "plugin-next")
	s := n.record(stick)
	next.Stop(t)
	p.WaitLog(t, limit, "instance_gone")
	n.WaitCount(t, stick, count(1, 1))
	s.logUnavailable(t)
	wantLink(t, p, stickA, "/dev/ttyUSB0")
	n.Unplug("1-1")
	n.WaitCount(t, stick, count(1, 0))
	wantLink(t, p, stickA, "")
}

// As before, but the second instance leaves its socket behind.
func TestKilledNewInstanceLeavesTheFirst(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	p := n.serve(ports)
	n.WaitCount(t, port, count(1, 1))
	next := n.update(p, ports, "plugin-next")
	s := n.record(port)
	next.Kill()
	p.WaitLog(t, limit, "instance_gone")
	n.WaitCount(t, port, count(1, 1))
	s.logUnavailable(t)
}

// The age of their sockets does not show which instance registered last: after a
// kubelet restart both make theirs at once. Here the older socket is that of the later
// registration.
func TestLaterRegistrationWithAnOlderSocketLeavesTheOther(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	arrived, second := make(chan struct{}, 10), make(chan struct{})
	proxyRegistrations(t, func(ctx context.Context, kubelet api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error) {
		arrived <- struct{}{}
		if len(sockets(t)) == 1 {
			<-second // instance
		}
		return kubelet.Register(ctx, r)
	})
	p := n.serve(ports)
	wait.Closed(t, limit, "registration", arrived)
	next := n.update(p, ports, "plugin-next")
	close(second)
	p.WaitLog(t, limit, "msg=registered")
	s := n.record(port)
	p.Stop(t)
	next.WaitLog(t, limit, "instance_gone")
	n.WaitCount(t, port, count(1, 1))
	s.logUnavailable(t)
}

// Both instances see device changes; the order of their registrations does not matter.
func TestDeviceChangesDuringARollingUpdateAreListed(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(sticks)
	n.WaitCount(t, stick, count(1, 1))
	next := n.update(p, sticks, "plugin-next")
	n.Plug(usbStick("1-2", "BBBB2222", "ttyUSB1"))
	n.WaitCount(t, stick, count(2, 2))
	n.Unplug("1-1")
	n.WaitCount(t, stick, count(2, 1))
	n.wantHeld(n.admit(devicemanager.Pod("one", stick, 1)), stick, stickB)
	p.Kill() // without notice
	next.WaitLog(t, limit, "stream_ended")
	n.WaitCount(t, stick, count(2, 1))
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB7"))
	n.WaitCount(t, stick, count(2, 2))
	n.wantHeld(n.admit(devicemanager.Pod("other", stick, 1)), stick, stickA)
	wantLink(t, next, stickA, "/dev/ttyUSB7")
}

// A kubelet restart in the middle of an update.
func TestKubeletRestartDuringARollingUpdateHasOneList(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	p := n.serve(ports)
	n.WaitCount(t, port, count(2, 2))
	next := n.update(p, ports, "plugin-next")
	for range 5 {
		n.Restart(t)
		n.WaitCount(t, port, count(2, 2))
	}
	p.Stop(t)
	eventually(t, "one socket", func() error {
		if left := sockets(t); len(left) != 1 {
			return fmt.Errorf("sockets: %s", strings.Join(left, " "))
		}
		return nil
	})
	n.WaitCount(t, port, count(2, 2))
	next.Stop(t)
	n.WaitCount(t, port, count(2, 0))
}
