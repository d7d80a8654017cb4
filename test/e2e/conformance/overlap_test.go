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
)

// update starts a second instance with the files of the first, and returns when it waits.
func (n *node) update(p *product.Plugin, config, name string) *product.Plugin {
	n.t.Helper()
	next := n.serveAs(product.Spec{Config: config, Dir: p.Dir, Name: name})
	next.WaitLog(n.t, limit, "another instance serves")
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
		next.WaitLog(t, limit, "this instance serves now")
		next.WaitLog(t, limit, "stream_ended")
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

// A second instance that ends before it serves changes nothing, whether it is stopped or killed.
func TestRevertedRollingUpdateChangesNothing(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(sticks)
	n.WaitCount(t, stick, count(1, 1))
	s := n.record(stick)
	n.update(p, sticks, "plugin-stopped").Stop(t)
	n.update(p, sticks, "plugin-killed").Kill()
	s.wantNoChange(t)
	n.Unplug("1-1")
	n.WaitCount(t, stick, count(1, 0))
	wantLink(t, p, stickA, "")
}

// The second instance is killed while it takes over: the first one ends, and a third one serves.
func TestKilledSuccessorHoldsUpNothing(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	release := make(chan struct{})
	first := true
	proxyRegistrations(t, func(ctx context.Context, kubelet api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error) {
		if !first {
			<-release // never registered while the first instance lives
		}
		first = false
		return kubelet.Register(ctx, r)
	})
	p := n.serve(ports)
	n.WaitCount(t, port, count(1, 1))
	next := n.update(p, ports, "plugin-next")
	third := n.serveAs(product.Spec{Config: ports, Dir: p.Dir, Name: "plugin-third"})
	third.WaitLog(t, limit, "another instance serves")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		next.WaitLog(t, limit, "this instance serves now")
		next.Kill()
		third.WaitLog(t, limit, "this instance serves now")
		close(release)
	}()
	p.Stop(t)
	<-killed
	n.WaitCount(t, port, count(1, 1))
	n.admit(devicemanager.Pod("one", port, 1))
}

// The first instance serves all changes until it is killed without notice, and then the second one.
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
	p.Kill()
	next.WaitLog(t, limit, "msg=registered")
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
