package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// standby starts another instance and returns when it is ready to serve after the one that does.
func (n *node) standby() (a *agent.Agent, stop func()) {
	n.Helper()
	a, stop = n.serve()
	n.eventually("a standby", func() bool { return a.IsWaiting() })
	if err := errors.Join(a.Ready(), a.Alive()); err != nil {
		n.Errorf("a standby is not ready: %v", err)
	}
	return a, stop
}

// A third instance is not Ready before the second one serves. A standby that ends changes nothing.
func TestThirdInstanceIsNotReady(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-0")
	const r = "example.com/r"
	_, stopFirst := n.serve()
	n.untilListed(r, []string{"r-0"}, nil)
	_, stopSecond := n.standby()
	_, stopThird := n.serve()
	stopThird()
	third, _ := n.serve()
	if third.Ready() == nil {
		t.Error("a third instance is Ready while two others run")
	}
	stopSecond()
	n.eventually("another standby", func() bool { return third.IsWaiting() && third.Ready() == nil })
	if got := n.kubelet.Registrations(r); got != 1 {
		t.Errorf("%d registrations, want 1", got)
	}

	// An edit that breaks the configuration while an instance waits costs no device.
	n.configure("[[resource]]\nname = 7\n")
	stopFirst()
	n.eventually("the last instance", func() bool { return !third.IsWaiting() && third.Ready() == nil })
	n.untilListed(r, []string{"r-0"}, nil)
	if third.Config().Broken == nil {
		t.Error("the page does not show the broken configuration")
	}
}

// An instance that serves answers no call while another one still does. The call waits, and is
// answered when the other one has stopped answering.
func TestCallsWaitForTheRightToAnswer(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbee)
	n.addSticks(2)
	n.addNodes("r-0")
	n.configure(zigbee + "api = \"dra\"\n[[resource]]\nname = \"r\"\nmatch.glob = \"/dev/r-*\"\n")
	first, stopFirst := n.serve()
	<-first.Settled()
	stopFirst()
	var release func()
	// An instance that takes long to end keeps its rights until its process ends.
	n.eventually("the end of the first instance", func() bool {
		taken, isOurs := agent.Answers(t, n.options.Paths)
		release = taken
		return isOurs
	})
	a, _ := n.serve()
	n.untilAllocatable("example.com/r", 1)
	n.eventually("ready", func() bool { return a.Ready() == nil })

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := n.kubelet.Allocate(ctx, "example.com/r", "r-0"); err == nil {
		t.Error("an instance answers Allocate beside another one")
	}
	claim := allocate(api, "c1", dra.DeviceName(stickID))
	prepared := make(chan error, 1)
	go func() {
		_, err := n.kubelet.PrepareClaim(ctx, dra.Driver, claim)
		prepared <- err
	}()
	allocated := make(chan error, 1)
	go func() {
		_, err := n.kubelet.Allocate(ctx, "example.com/r", "r-0")
		allocated <- err
	}()
	select {
	case err := <-prepared:
		t.Errorf("an instance prepares a claim beside another one: %v", err)
	case err := <-allocated:
		t.Errorf("an instance answers Allocate beside another one: %v", err)
	default:
	}
	release()
	if err := errors.Join(<-allocated, <-prepared); err != nil {
		t.Error(err)
	}
}

// An instance that takes over knows what the former one has read, and how it has numbered interfaces
// that came meanwhile: one that a container has taken keeps its number, and its ID.
func TestTakeoverKeepsWhatWasReadAndNumbered(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+`
[[resource]]
name = "can"
match = { usb.id = "1d50:606f", net.type = "can" }
each = "node"
container.cdi = true
`)
	n.options.Allow.Net = true
	n.host.AddBus()
	adapter := n.host.AddUSB(sysfstest.USB{
		Port: "1-1", Vendor: "1d50", Product: "606f", Serial: "CCCC3333",
		Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "gs_usb"}},
	})
	addCAN := func(name string) string {
		dir := n.host.AddNet(adapter+"/1-1:1.0", sysfstest.Net{Name: name, Type: 280})
		n.event()
		return dir
	}
	const can, zigbeeName = "example.com/can", "example.com/zigbee"
	const prefix = "usb:1d50:606f:CCCC3333:"
	const bus, id0, id1, id2, id3 = prefix + "bus", prefix + "if00:net", prefix + "if00:net.1", prefix + "if00:net.2", prefix + "if00:net.3"
	addCAN("can0")
	addCAN("can1")
	_, stopFirst := n.serve()
	n.untilListed(can, []string{bus, id0, id1}, nil)
	n.standby()

	can2 := addCAN("can2")
	n.untilListed(can, []string{bus, id0, id1, id2}, nil)
	n.host.Remove(can2)
	n.event()
	n.untilListed(can, []string{bus, id0, id1}, []string{id2})
	addCAN("can3")
	n.untilListed(can, []string{bus, id0, id1, id3}, []string{id2})
	stick := n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.untilListed(zigbeeName, []string{otherID}, nil)
	_, end := hang(t, filepath.Join(n.host.Sysfs(), stick))
	defer end()
	stopFirst()
	n.until("the lists of the second instance", func() bool {
		return n.kubelet.Registrations(can) > 1 && n.kubelet.Registrations(zigbeeName) > 1
	})
	n.untilListed(can, []string{bus, id0, id1, id3}, []string{id2})
	n.untilListed(zigbeeName, []string{otherID}, nil)
}

// An instance whose lock was removed with the run directory answers no call any more, and ends. The next instance
// has another lock.
func TestRemovedLock(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r", "s"))
	n.addNodes("r-0", "s-0")
	const r, s = "example.com/r", "example.com/s"
	first, err := agent.New(n.options)
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(context.Background()) }()
	n.untilListed(r, []string{"r-0"}, nil)
	n.untilListed(s, []string{"s-0"}, nil)
	must(t, os.RemoveAll(n.options.Paths.RunDir))
	if _, err := n.kubelet.Allocate(t.Context(), r, "r-0"); err == nil {
		t.Error("an instance without its lock answers Allocate")
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("an instance without its lock ends without an error")
		}
	case <-time.After(limit):
		t.Fatal("an instance without its lock goes on")
	}
	n.serve()
	n.eventually("an answer of the next instance", func() bool {
		_, err := n.kubelet.Allocate(t.Context(), s, "s-0")
		return err == nil
	})
}
