package ledger

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

// entry returns the only entry of the resource r.
func (h *machine) entry() Entry {
	h.t.Helper()
	devices := h.resource("r").Devices
	if len(devices) != 1 {
		h.t.Fatalf("%d devices are listed, want one", len(devices))
	}
	return devices[0]
}

// holdsMoved checks that the only device is Healthy with its interfaces in a
// container, or gone.
func (h *machine) holdsMoved(want bool) *machine {
	h.t.Helper()
	e := h.entry()
	if e.Healthy != want || e.Present != want || e.Offer.NetsInContainer != want || want != (e.Reason == "") || !want && e.Reason != ReasonGone {
		h.t.Errorf("healthy %t, present %t, moved %t, reason %q; want it in a container: %t", e.Healthy, e.Present, e.Offer.NetsInContainer, e.Reason, want)
	}
	return h
}

func TestMovedInterfaceStaysHealthy(t *testing.T) {
	t.Parallel()
	can := iface("x", "devices/x")
	h := newMachine(t).at(0, res("r", can)).shows(list{"r": {"x": ok}})
	h.held = map[string]string{"x": "r"}
	h.at(2*s, res("r")).holdsMoved(true).awaits(true).wakes(-1)
	if diff := cmp.Diff(can.Nets, h.entry().Offer.Nets); diff != "" || !h.entry().Offer.CDI {
		t.Errorf("offer %+v (-want +got):\n%s", h.entry().Offer, diff)
	}
	// The holders are unknown for a while.
	h.silent = true
	h.at(m, res("r")).holdsMoved(true).wakes(-1)
	h.silent = false
	h.at(20*m, res("r")).holdsMoved(true)

	// The pod ends, and the kernel returns the interface.
	h.held = nil
	h.at(21*m, res("r")).holdsMoved(false).wakes(31 * m)
	h.at(21*m+s, res("r", can)).shows(list{"r": {"x": ok}}).awaits(false).wakes(-1)
	if h.entry().Offer.NetsInContainer {
		t.Error("still counts as moved")
	}
}

func TestInterfaceOfUnreadHardware(t *testing.T) {
	t.Parallel()
	can := iface("x", "devices/x")
	h := newMachine(t).at(0, res("r", can))
	h.unread = []device.UnreadHardware{{Path: can.Hardware}}
	for _, at := range []time.Duration{s, m} {
		h.at(at, res("r")).shows(list{"r": {"x": ok}})
		if h.entry().Offer.NetsInContainer {
			t.Errorf("at %s it counts as moved", at)
		}
	}
	h.unread, h.held = nil, map[string]string{"x": "r"}
	h.at(2*m, res("r")).holdsMoved(true)
}

func TestRemovedHardwareRemovesItsInterfaces(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", iface("x", "devices/x")))
	h.held = map[string]string{"x": "r"}
	h.at(s, res("r")).holdsMoved(true)
	h.pulled["devices/x"] = true
	h.at(2*s, res("r")).holdsMoved(false)
	// Another interface replaces it.
	h.pulled = nil
	h.at(3*s, res("r")).holdsMoved(false)
	h.at(4*s, res("r", iface("x", "devices/x"))).shows(list{"r": {"x": ok}})
}

func TestDeviceKeepsItsNodesWhileItsInterfaceIsMoved(t *testing.T) {
	t.Parallel()
	card := dev("x", "uverbs", "umad")
	whole := card
	whole.CDI, whole.Nets = true, []device.OfferedNet{{HostName: "eth0", Key: "net"}}
	less := card
	less.CDI, less.Problem = true, "${net.name} has no value"
	h := newMachine(t).at(0, grows(res("r", whole))).shows(list{"r": {"x": ok}})
	h.held = map[string]string{"x": "r"}
	h.at(10*s, grows(res("r", less))).holdsMoved(true)
	if got := len(h.entry().Offer.Nodes); got != 2 {
		t.Errorf("%d nodes, want 2", got)
	}
	h.at(m, grows(res("r", whole))).shows(list{"r": {"x": ok}})
	if h.entry().Offer.NetsInContainer {
		t.Error("still counts as moved")
	}

	// A device that also loses a node is a different device.
	fewer := whole
	fewer.Nets, fewer.Nodes = nil, whole.Nodes[:1]
	h.at(2*m, grows(res("r", fewer))).shows(list{"r": {"x": ReasonSettling}})

	// An unmoved interface that is removed is no longer part of the device.
	h = newMachine(t).at(0, grows(res("r", whole)))
	less.Problem = ""
	h.at(10*s, grows(res("r", less))).shows(list{"r": {"x": ReasonSettling}})
	h.at(11*s, grows(res("r", less))).shows(list{"r": {"x": ok}})
}

func TestMovedInterfaceSurvivesARestart(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", iface("x", "devices/x")))
	h.held = map[string]string{"x": "r"}
	h.at(s, res("r")).holdsMoved(true)
	text, err := json.Marshal(Persisted{Boot: "a", Resources: h.state.Remember()})
	must(t, err)
	for _, tt := range []struct {
		name   string
		boot   string
		pulled bool
		held   bool
		want   []bool // at once, and when the holders are known
	}{
		{"same boot", "a", false, true, []bool{true, true}},
		{"its pod ended meanwhile", "a", false, false, []bool{true, false}},
		{"its hardware was pulled meanwhile", "a", true, true, []bool{false, false}},
		{"after a reboot it is in no container", "b", false, true, []bool{false, false}},
		{"unknown boot", "", false, true, []bool{false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var kept Persisted
			must(t, json.Unmarshal(text, &kept))
			again := newMachine(t)
			again.state = kept.State(tt.boot)
			again.pulled["devices/x"] = tt.pulled
			again.silent = true
			again.at(0, res("r")).holdsMoved(tt.want[0])
			again.silent = false
			if tt.held {
				again.held = map[string]string{"x": "r"}
			}
			again.at(s, res("r")).holdsMoved(tt.want[1])
			again.at(2*s, res("r", iface("x", "devices/x"))).shows(list{"r": {"x": ok}})
		})
	}
}

func TestInterfaceMovedWhileTheProgramWasDown(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", iface("x", "")))
	next := newMachine(t)
	next.state = Persisted{Boot: "a", Resources: h.state.Remember()}.State("a")
	next.held = map[string]string{"x": "r"}
	next.at(0, res("r")).holdsMoved(true).complete(true)
}

func TestInterfacesAreNodesOfTheirDevice(t *testing.T) {
	t.Parallel()
	two := func(first string) device.Offer {
		o := iface("x", "devices/x")
		o.Nets = []device.OfferedNet{{HostName: first, Key: "net"}, {HostName: "eth1", Key: "net.1"}}
		return o
	}
	h := newMachine(t).at(0, res("r"))
	h.at(s, res("r", two("eth0"))).shows(list{"r": {"x": ReasonSettling}})
	h.at(2*s, res("r", two("eth0"))).shows(list{"r": {"x": ok}})
	h.at(3*s, res("r", two("lan0"))).shows(list{"r": {"x": ReasonSettling}})
	h.at(4*s, res("r", two("lan0"))).shows(list{"r": {"x": ok}})
	equal(t, "keys", []string{"net", "net.1"}, h.state.Remember()[0].Devices[0].Nodes)
}
