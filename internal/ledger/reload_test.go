package ledger

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

// A device with another identity is not gone: it waits for all of its former IDs until no
// container holds them, and no longer.
func TestADeviceWithAnotherIdentity(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", dev("x", "a"), dev("y", "b")))
	h.held = map[string]string{"x": "r"}
	h.aliases = map[string][]string{"group": {"x", "y"}}
	group := dev("group", "a", "b")
	group.Places = []string{"devices/x", "devices/y"}
	edited := res("r", group)
	h.at(s, edited).shows(list{"r": {"x": "to be listed as group", "y": "to be listed as group"}}).wakes(m + s)
	equal(t, "waiting", []Waiting{{ID: "group", Reason: "held as x through r"}}, h.resource("r").Waiting)
	for _, e := range h.resource("r").Devices {
		if !e.Withheld {
			t.Errorf("%s is not in order: claims to it are evicted", e.Offer.ID)
		}
	}
	h.at(m+s, edited).shows(list{"r": {"x": "to be listed as group"}}).awaits(true)
	h.held = nil
	h.at(2*m, edited).shows(list{"r": {"group": ReasonSettling}})
	h.at(2*m+s, edited).shows(list{"r": {"group": ok}}).awaits(false)
}

// A function that is removed is gone, although another function of its IOMMU group is offered.
func TestAFunctionOfAnIOMMUGroup(t *testing.T) {
	t.Parallel()
	first := dev("0000:3b:02.0")
	first.Places = []string{"devices/pf/0000:3b:02.0", device.GroupPlace("7")}
	second := dev("0000:3b:02.1")
	second.Places = []string{"devices/pf/0000:3b:02.1", device.GroupPlace("7")}
	h := newMachine(t).at(0, res("r", first, second))
	h.at(s, res("r", first)).shows(list{"r": {"0000:3b:02.0": ok, "0000:3b:02.1": ReasonGone}})
}

// A stick that is offered under its former ID again, for which a container waits, stays away from that
// container while another one has it under the ID in between.
func TestADeviceWithItsFormerIdentity(t *testing.T) {
	t.Parallel()
	serial := dev("serial", "a")
	serial.Places = []string{"devices/stick"}
	port := dev("port", "a")
	port.Places = []string{"devices/stick"}
	h := newMachine(t).at(0, res("r", serial))
	h.held = map[string]string{"serial": "r"}
	h.at(s, res("r")).shows(list{"r": {"serial": ReasonGone}})
	h.held["port"] = "r"
	h.aliases = map[string][]string{"serial": {"port"}}
	h.at(2*s, res("r", port)).shows(list{"r": {"serial": "now listed as port", "port": ok}})
	h.at(3*s, res("r", serial)).shows(list{"r": {"serial": "held as port through r", "port": "now listed as serial"}}).awaits(true)
	if h.resource("r").Devices[1].Present {
		t.Error("the device counts as present: its link would be restored")
	}
	delete(h.held, "port")
	h.at(4*s, res("r", serial)).shows(list{"r": {"serial": ok, "port": "now listed as serial"}})
}

func TestASharedDeviceIsListedByEachResource(t *testing.T) {
	t.Parallel()
	shared := func(name string, count int) Resource {
		o := slots(dev("x", "a"), count)
		o.ID = device.SharedID("example.com/"+name, "x")
		o.Shared = true
		return res(name, o)
	}
	h := newMachine(t).at(0, shared("a", 2), shared("b", 1))
	h.shows(list{"a": {"shared:example.com:a:x": ok, "shared:example.com:a:x::1": ok}, "b": {"shared:example.com:b:x": ok}})
	h.held = map[string]string{"shared:example.com:b:x": "b"}
	// Changes of one do not affect the other.
	h.at(s, shared("a", 2)).shows(list{
		"a": {"shared:example.com:a:x": ok, "shared:example.com:a:x::1": ok},
		"b": {"shared:example.com:b:x": ReasonRemoved},
	})
	h.at(2*s, shared("a", 1), shared("b", 1)).shows(list{
		"a": {"shared:example.com:a:x": ok, "shared:example.com:a:x::1": ReasonSlotRetired},
		"b": {"shared:example.com:b:x": ok},
	})
}
