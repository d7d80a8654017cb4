package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
)

func TestANewDeviceWithSeveralNodesSettles(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r"))
	h.events["devices/x"] = 10 * s
	r := res("r", dev("x", "a", "b"))
	h.at(10*s, r).shows(list{"r": {"x": ReasonSettling}}).wakes(10*s + 250*ms)
	h.events["devices/x"] = 10*s + 100*ms
	h.at(10*s+250*ms, r).shows(list{"r": {"x": ReasonSettling}}).wakes(10*s + 350*ms)
	h.at(10*s+349*ms, r).shows(list{"r": {"x": ReasonSettling}})
	h.at(10*s+350*ms, r).shows(list{"r": {"x": ok}}).wakes(-1)
	h.events["devices/x"] = 20 * s
	h.at(20*s, r).shows(list{"r": {"x": ok}})
}

func TestDevicePresentAtTheStartDoesNotSettle(t *testing.T) {
	t.Parallel()
	r := grows(res("r", dev("x", "a", "b")))
	t.Run("no event seen", func(t *testing.T) {
		t.Parallel()
		newMachine(t).at(0, r).shows(list{"r": {"x": ok}}).wakes(-1)
	})
	t.Run("remembered", func(t *testing.T) {
		t.Parallel()
		newMachine(t, remembered("r", "x")).at(0, r).shows(list{"r": {"x": ok}}).wakes(-1)
	})
	t.Run("node just made", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t)
		h.events["devices/x"] = -100 * ms
		h.at(0, r).shows(list{"r": {"x": ReasonSettling}}).wakes(150 * ms)
		h.at(150*ms, r).shows(list{"r": {"x": ok}})
	})
	t.Run("node of a remembered device just written to", func(t *testing.T) {
		t.Parallel()
		kept := remembered("r", "x")
		kept.Devices[0].Nodes = []string{"a", "b"}
		h := newMachine(t, kept)
		h.events["devices/x"] = 0
		h.at(0, r).shows(list{"r": {"x": ok}}).wakes(-1)
	})
	t.Run("a remembered node is missing", func(t *testing.T) {
		t.Parallel()
		kept := remembered("r", "x")
		kept.Devices[0].Nodes = []string{"a", "b", "c"}
		h := newMachine(t, kept)
		h.at(0, r).shows(list{"r": {"x": ReasonSettling}}).wakes(250 * ms)
		h.at(250*ms, r).shows(list{"r": {"x": ok}})
	})
	t.Run("found by a later scan", func(t *testing.T) {
		t.Parallel()
		newMachine(t, remembered("r", "x")).at(0, grows(res("r"))).at(s, r).shows(list{"r": {"x": ReasonSettling}})
	})
}

func TestADeviceWhoseNodesChangeSettlesAgain(t *testing.T) {
	t.Parallel()
	companion := func(o device.Offer) device.Offer {
		o.Nodes = append(o.Nodes, device.OfferedNode{Key: "kfd", HostPath: "/dev/kfd", Companion: true})
		return o
	}
	renamed := dev("x", "a", "b")
	renamed.Nodes[1].HostPath = "/dev/other"
	tests := []struct {
		name    string
		offer   device.Offer
		settles bool
	}{
		{"same", dev("x", "a", "b"), false},
		{"one more", dev("x", "a", "b", "c"), true},
		{"one less", dev("x", "a"), true},
		{"another name", renamed, true},
		{"a companion", companion(dev("x", "a", "b")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newMachine(t).at(0, grows(res("r", dev("x", "a", "b")))).shows(list{"r": {"x": ok}})
			want := ok
			if tt.settles {
				want = ReasonSettling
			}
			h.at(10*s, grows(res("r", tt.offer))).shows(list{"r": {"x": want}})
			h.at(10*s+250*ms, grows(res("r", tt.offer))).shows(list{"r": {"x": ok}})
		})
	}
}

func TestHardwareWithContinualEventsSettlesAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r"))
	r := res("r", dev("x", "a", "b"))
	for at := 10 * s; at < 15*s; at += 100 * ms {
		h.events["devices/x"] = at
		h.at(at, r).shows(list{"r": {"x": ReasonSettling}})
	}
	h.wakes(15 * s)
	h.events["devices/x"] = 15 * s
	h.at(15*s, r).shows(list{"r": {"x": ok}})
}

// pool returns an offer of everything that a resource selects.
func pool(keys ...string) device.Offer {
	o := dev("all:r", keys...)
	o.Pool, o.Hardware = true, ""
	return o
}

func TestPoolSettlesOnceAndNotWithItsMembers(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r"))
	h.at(s, res("r", pool("a"))).shows(list{"r": {"all:r": ReasonSettling}}).wakes(s + 250*ms)
	h.at(s+200*ms, res("r", pool("a", "b"))).wakes(s + 450*ms)
	h.at(s+450*ms, res("r", pool("a", "b"))).shows(list{"r": {"all:r": ok}}).wakes(-1)
	for i, members := range [][]string{{"a", "b", "c"}, {"b"}, {"d", "e"}} {
		at := time.Duration(i+2) * s
		if h.at(at, res("r", pool(members...))).shows(list{"r": {"all:r": ok}}).wakes(-1); !h.changed("r") || len(h.out.Changes) > 0 {
			t.Errorf("%q: changed %t, changes %v", members, h.changed("r"), h.out.Changes)
		}
	}
	h.at(10*s, res("r")).shows(list{"r": {"all:r": ReasonGone}})
	h.at(11*s, res("r", pool("a"))).shows(list{"r": {"all:r": ReasonSettling}})
}

func TestRemovedDeviceIsUnhealthyAtOnceAndKeepsItsID(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", dev("x", "a"), dev("y", "a")))
	h.at(s, res("r", dev("y", "a"))).shows(list{"r": {"x": ReasonGone, "y": ok}}).wakes(10*m + s)
	e := h.resource("r").Devices[0]
	equal(t, "entry", Entry{Offer: device.Offer{ID: "x", Places: []string{"devices/x"}, Slots: 1, NUMA: []int{0}}, Reason: ReasonGone, Listed: 1}, e)
	if h.at(2*s, res("r", dev("y", "a"))); h.changed("r") {
		t.Error("the list changes with the time")
	}
	h.at(10*m, res("r", dev("y", "a"))).shows(list{"r": {"x": ReasonGone, "y": ok}})
	h.at(10*m+s, res("r", dev("y", "a"))).shows(list{"r": {"y": ok}}).wakes(-1).awaits(false)
}

// A device that no match selects any more is not gone as long as its hardware is on the host, and makes room
// like any other device that an edit takes away.
func TestUnselectedDeviceIsNotGone(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.plugged = true
	h.at(0, res("r", dev("x", "a")))
	h.held = map[string]string{"x": "r"}
	h.at(s, res("r")).shows(list{"r": {"x": ReasonUnselected}})
	h.at(10*m, res("r")).shows(list{"r": {"x": ReasonUnselected}})
	h.pulled["devices/x"] = true
	h.at(11*m, res("r")).shows(list{"r": {"x": ReasonGone}})
	delete(h.pulled, "devices/x")
	h.at(12*m, res("r", dev("x", "a"))).shows(list{"r": {"x": ok}})
	h.held = nil
	h.at(13*m, res("r")).shows(list{"r": {"x": ReasonUnselected}}).wakes(14 * m)
	h.at(14*m, res("r")).shows(list{"r": {}})
}

func TestUnreadDeviceIsNotGone(t *testing.T) {
	t.Parallel()
	const stick, bus = "usb:10c4:ea60:A1", "devices/pci0000:00/0000:00:14.0/usb1/"
	r := grows(res("r", dev(stick, "a", "b")))
	empty := grows(res("r"))
	unread := []device.UnreadHardware{{Path: bus + "1-2"}}
	t.Run("after a restart, in whatever port", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t, Remembered{Name: "r", Devices: []RememberedDevice{{ID: stick, Slots: 1, Nodes: []string{"a", "b"}}, {ID: "0000:01:00.0", Slots: 1}}})
		h.unread = unread
		h.at(0, empty).shows(list{"r": {stick: ReasonUnread, "0000:01:00.0": ReasonGone}})
		h.at(100*ms, empty).shows(list{"r": {stick: ReasonUnread, "0000:01:00.0": ReasonGone}})
		h.unread = nil
		h.at(300*ms, r).shows(list{"r": {stick: ok, "0000:01:00.0": ReasonGone}})
		h.at(s, empty).shows(list{"r": {stick: ReasonGone, "0000:01:00.0": ReasonGone}})
	})
	t.Run("after a restart, and it is another", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t, remembered("r", stick))
		h.unread = unread
		h.at(0, empty).shows(list{"r": {stick: ReasonUnread}})
		h.unread = nil
		h.at(300*ms, empty).shows(list{"r": {stick: ReasonGone}})
	})
	t.Run("one that was there stays as it was", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t)
		h.at(0, r).shows(list{"r": {stick: ok}})
		h.unread = []device.UnreadHardware{{Path: "devices/" + stick}}
		h.at(s, empty).shows(list{"r": {stick: ok}}).wakes(5 * s)
		if n := len(h.out.Resources[0].Devices[0].Offer.Nodes); n != 2 {
			t.Errorf("%d nodes; want those that it had", n)
		}
		h.unread[0].New = true
		h.at(2*s, empty).shows(list{"r": {stick: ReasonUnread}})
		h.unread = nil
		h.at(3*s, r).shows(list{"r": {stick: ReasonSettling}})
	})
	t.Run("an attribute of a PCI function", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t, remembered("r", "0000:01:00.0", stick))
		h.unread = []device.UnreadHardware{{Path: "devices/pci0000:00/0000:01:00.0"}}
		h.at(0, empty).shows(list{"r": {stick: ReasonGone, "0000:01:00.0": ReasonUnread}})
	})
	t.Run("a resource that was removed", func(t *testing.T) {
		t.Parallel()
		h := newMachine(t)
		h.at(0, r)
		h.unread = []device.UnreadHardware{{Path: "devices/" + stick}}
		h.at(s).shows(list{"r": {stick: ReasonRemoved}})
	})
}

func TestAGoneDeviceStaysWhileItIsHeld(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", slots(dev("x", "a"), 2))).at(s, res("r"))
	gone := list{"r": {"x": ReasonGone, "x::1": ReasonGone}}
	h.held = map[string]string{"x::1": "r"}
	h.at(5*m, res("r")).shows(gone).awaits(false)
	h.at(30*m, res("r")).shows(gone).awaits(true).wakes(-1)
	h.held = nil
	h.at(31*m, res("r")).shows(list{"r": {}}).awaits(false)
}

func TestSlotsBeyondALoweredCountRetire(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", slots(dev("x", "a"), 4)))
	h.shows(list{"r": {"x": ok, "x::1": ok, "x::2": ok, "x::3": ok}})
	h.held = map[string]string{"x::2": "r"}
	less := res("r", slots(dev("x", "a"), 2))
	h.at(s, less).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ReasonSlotRetired, "x::3": ReasonSlotRetired}}).wakes(m + s)
	h.at(m, less).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ReasonSlotRetired, "x::3": ReasonSlotRetired}})
	h.at(m+s, less).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ReasonSlotRetired}}).awaits(true)
	h.at(2*m, res("r", slots(dev("x", "a"), 3))).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ok}}).awaits(false).wakes(-1)
	h.at(3*m, less).at(4*m, less).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ReasonSlotRetired}})
	h.held = nil
	h.at(5*m, less).shows(list{"r": {"x": ok, "x::1": ok}})
}

func TestDeviceLeavesTheOldResourceFirst(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("old", dev("x", "a"), dev("y", "a")), res("new"))
	h.held = map[string]string{"x": "old"}
	moved := []Resource{res("old"), res("new", dev("x", "a"), dev("y", "a"))}
	h.at(s, moved...).shows(list{"old": {"x": "to be offered by new", "y": "to be offered by new"}, "new": {}}).wakes(m + s)
	const listed = "listed by old until no container holds it, at least for a minute"
	equal(t, "waiting", []Waiting{{ID: "x", Reason: listed, Moves: true}, {ID: "y", Reason: listed, Moves: true}}, h.resource("new").Waiting)
	h.at(m+s, moved...).shows(list{"old": {"x": "to be offered by new"}, "new": {"y": ok}}).awaits(true)
	h.held = nil
	h.at(2*m, moved...).shows(list{"old": {}, "new": {"x": ok, "y": ok}}).awaits(false)
}

func TestDeviceHeldThroughAnotherNameIsNotListed(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.held = map[string]string{"x::2": "r.old", "y": "r"}
	r := res("r", dev("x", "a"), dev("y", "a"))
	h.at(0, r).shows(list{"r": {"y": ok}}).awaits(true)
	equal(t, "waiting", []Waiting{{ID: "x", Reason: "held by a container through r.old"}}, h.resource("r").Waiting)
	h.held = nil
	h.at(s, r).shows(list{"r": {"x": ok, "y": ok}}).awaits(false)
}

func TestARefusedResourceOffersNothing(t *testing.T) {
	t.Parallel()
	refused := res("r", dev("x", "a"), dev("y", "a"))
	refused.Refuse = "when no longer holds"
	h := newMachine(t).at(0, res("r", dev("x", "a"))).at(s, refused).shows(list{"r": {"x": refused.Refuse}})
	if h.at(m+s, refused).shows(list{}); !cmp.Equal(h.ended, []string{"r"}) {
		t.Errorf("ended: %q", h.ended)
	}
	if h.at(2*m, refused).shows(list{}); len(h.ended) > 0 {
		t.Errorf("ended again: %q", h.ended)
	}
	h.at(3*m, res("r", dev("x", "a"))).shows(list{"r": {"x": ok}})
}

func BenchmarkNext(b *testing.B) {
	var offers []device.Offer
	for i := range 1000 {
		offers = append(offers, dev(fmt.Sprintf("d%d", i), "a", "b"))
	}
	in := Input{Now: boot, Start: boot, Resources: []Resource{res("r", offers...)}}
	state, _ := State{}.Next(in)
	for b.Loop() {
		state, _ = state.Next(in)
	}
}
