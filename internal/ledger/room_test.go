package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// listedSlots returns how many slots are listed.
func (h *machine) listedSlots() int {
	slots := 0
	for _, res := range h.out.Resources {
		for _, e := range res.Devices {
			slots += len(Slots(e))
		}
	}
	return slots
}

// withinBudget checks the budget of all lists.
func (h *machine) withinBudget() {
	h.t.Helper()
	parts := h.listedSlots()
	for _, res := range h.out.Resources {
		parts += device.ResourceParts + device.DeviceParts*len(res.Devices)
	}
	if parts > device.MaxParts {
		h.t.Fatalf("the lists take %d parts, want at most %d", parts, device.MaxParts)
	}
}

// healthy returns how many slots of a device are Healthy.
func (h *machine) healthy(id string) int {
	healthy := 0
	for _, res := range h.out.Resources {
		for _, e := range res.Devices {
			for _, slot := range Slots(e) {
				if e.Offer.ID == id && slot.Healthy {
					healthy++
				}
			}
		}
	}
	return healthy
}

// listing returns the entry of a device; nil is none.
func (h *machine) listing(id string) *Entry {
	for _, res := range h.out.Resources {
		for i := range res.Devices {
			if res.Devices[i].Offer.ID == id {
				return &res.Devices[i]
			}
		}
	}
	return nil
}

// A device that returns with another serial number each time takes no slot of another
// device away, however often it returns, and each of its serial numbers is listed in time.
func TestManySerialNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		every   time.Duration
		serials int
		slots   int
	}{
		{every: 50 * ms, serials: 20, slots: 8000},
		{every: s, serials: 24, slots: 4000},
		{every: 10 * s, serials: 16, slots: 4000},
	} {
		t.Run(tt.every.String(), func(t *testing.T) {
			t.Parallel()
			h := newMachine(t)
			honest := slots(dev("honest", "a"), 1000)
			dropped := 0
			var at time.Duration
			for i := range tt.serials {
				at += tt.every
				fake := slots(dev(fmt.Sprintf("fake-%04d", i), "b"), tt.slots)
				h.at(at, res("r", honest, fake))
				h.withinBudget()
				dropped += h.out.Dropped
				if h.healthy("honest") != 1000 {
					t.Fatalf("after %d serial numbers %d slots are Healthy", i, h.healthy("honest"))
				}
				if tt.every >= s && h.healthy(fake.ID) != tt.slots {
					t.Fatalf("serial number %d has %d slots", i, h.healthy(fake.ID))
				}
			}
			if dropped == 0 && tt.every == s {
				t.Error("nothing was dropped")
			}
			h.state = Persisted{Boot: "x", Resources: h.state.Remember()}.State("x")
			h.at(at+s, res("r", honest)).withinBudget()
			if h.healthy("honest") != 1000 {
				t.Errorf("after a restart %d slots are Healthy", h.healthy("honest"))
			}
		})
	}
}

// An absent device that no container holds has one slot after a minute.
func TestAnAbsentDeviceHasOneSlot(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", slots(dev("x", "a"), 3))).at(s, res("r"))
	h.at(m, res("r")).shows(list{"r": {"x": ReasonGone, "x::1": ReasonGone, "x::2": ReasonGone}}).wakes(m + s)
	h.at(m+s, res("r")).shows(list{"r": {"x": ReasonGone}}).wakes(10*m + s)
	h.at(2*m, res("r", slots(dev("x", "a"), 3))).shows(list{"r": {"x": ok, "x::1": ok, "x::2": ok}})
}

// The slots up to the last one that a container holds stay, also if only the kubelet knows it.
func TestAHeldSlotOfAnAbsentDeviceStays(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r", slots(dev("x", "a"), 5))).at(s, res("r"))
	h.held = map[string]string{"x::1": "r", "x::2": "r", "x::3": "other"}
	three := list{"r": {"x": ReasonGone, "x::1": ReasonGone, "x::2": ReasonGone}}
	h.at(2*m, res("r")).shows(three)
	h.state = Persisted{Boot: "x", Resources: h.state.Remember()}.State("x")
	h.at(3*m, res("r")).shows(three)
	h.held = map[string]string{"x::6": "r"}
	if e := h.at(4*m, res("r")).listing("x"); e.Listed != 7 {
		t.Errorf("%d slots are listed, want 7", e.Listed)
	}
}

// Held devices that no list has do not make the lists too large.
func TestHeldDevicesFitIntoTheLists(t *testing.T) {
	t.Parallel()
	var offers []device.Offer
	for i := range 11 {
		offers = append(offers, slots(dev(fmt.Sprintf("d%d", i), "a"), 4000))
	}
	h := newMachine(t).at(0, res("r", offers...))
	h.held = map[string]string{"held::8999": "r"}
	h.at(s, res("r", offers...)).withinBudget()
}

// Absent devices leave a full list early, and none with a holder does.
func TestAbsentDevicesLeaveAFullList(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	big := func(i int) device.Offer { return slots(dev(fmt.Sprintf("d%d", i), "a"), 9000) }
	h.held = map[string]string{"d1::5": "b"}
	for i := range 12 {
		name := string(rune('a' + i))
		h.at(time.Duration(i)*10*s, res(name, big(i)))
		h.withinBudget()
		if id := big(i).ID; h.healthy(id) != 9000 {
			t.Fatalf("%s has %d slots", id, h.healthy(id))
		}
	}
	// A minute after its removal a resource has ended, but for a held device.
	if e := h.listing("d1"); e == nil || e.Listed != 6 {
		t.Errorf("d1 with a holder is listed as %+v", e)
	}
	if e := h.listing("d4"); e != nil {
		t.Errorf("d4 is listed as %+v", e)
	}
	if e := h.listing("d10"); e == nil || len(Slots(*e)) != 9000 {
		t.Errorf("d10 is listed as %+v", e)
	}
}

// Slots that have just turned Unhealthy stay: an Allocate call may be in flight.
func TestFreshSlotsStay(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	big := func(name string) []device.Offer {
		var all []device.Offer
		for i := range 4 {
			all = append(all, slots(dev(fmt.Sprint(name, i), "a"), 9000))
		}
		return all
	}
	h.at(0, res("a", big("a")...)).at(s, res("b", big("b")...)).withinBudget()
	h.at(2*s, res("c", big("c")...)).withinBudget()
	if e := h.listing("b0"); e == nil || len(Slots(*e)) != 9000 {
		t.Errorf("b0 is listed as %+v", e)
	}
	if n := len(h.resource("c").Waiting); n == 0 || h.healthy("c0") != 0 && n != 3 {
		t.Errorf("%d devices wait", n)
	}
	h.wakes(6 * s)
	h.at(6*s, res("c", big("c")...)).at(7*s, res("c", big("c")...)).withinBudget()
	for i := range 4 {
		if id := fmt.Sprint("c", i); h.healthy(id) != 9000 {
			t.Errorf("%s has %d slots", id, h.healthy(id))
		}
	}
}

// More slots than there is room for come when there is.
func TestAHigherCountWaits(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	var all []device.Offer
	for i := range 9 {
		all = append(all, slots(dev(fmt.Sprint("d", i), "a"), 9000))
	}
	h.at(0, res("a", all[:4]...), res("b", all[4:]...), res("r", slots(dev("x", "a"), 10))).withinBudget()
	h.silent = true
	h.at(s, res("r", slots(dev("x", "a"), 9000))).withinBudget()
	if h.healthy("x") != 10 {
		t.Errorf("%d slots are Healthy, want 10", h.healthy("x"))
	}
	if waiting := h.resource("r").Waiting; len(waiting) != 1 || waiting[0].Reason != reasonNoRoom || h.out.WithoutRoom != 1 {
		t.Errorf("waiting: %+v", waiting)
	}
	h.silent = false
	h.at(10*s, res("r", slots(dev("x", "a"), 9000))).withinBudget()
	if h.healthy("x") != 9000 {
		t.Errorf("%d slots are Healthy, want 9000", h.healthy("x"))
	}
}

// A kubelet that names tens of thousands of unknown IDs adds few records, and none of the
// devices is offered through another resource meanwhile.
func TestManyHeldIDs(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.held = map[string]string{}
	for i := range 50_000 {
		h.held[fmt.Sprintf("gone-%05d", i)] = "r"
	}
	h.at(0, res("r", dev("honest", "a"))).withinBudget()
	if n := len(h.resource("r").Devices); n < 100 || n > 5000 {
		t.Errorf("%d devices are listed", n)
	}
	if h.healthy("honest") != 1 {
		t.Error("the honest device is not Healthy")
	}
	h.at(s, res("r", dev("honest", "a")), res("other", dev("gone-49999", "a"))).withinBudget()
	if h.healthy("gone-49999") != 0 {
		t.Error("a held device is offered through another resource")
	}
	h.silent = true
	h.at(2*s, res("r", dev("honest", "a")), res("other", dev("gone-49999", "a"))).withinBudget()
	if h.healthy("gone-49999") != 0 {
		t.Error("a held device is offered through another resource while the holders are unknown")
	}
	h.state = Persisted{Boot: "x", Resources: h.state.Remember()}.State("x")
	h.at(3*s, res("r", dev("honest", "a")), res("other", dev("gone-49999", "a"))).withinBudget()
	if h.healthy("gone-49999") != 0 {
		t.Error("a held device is offered through another resource after a restart")
	}
}

// A state file lists no more than half of the budget, whatever it says.
func TestLargeState(t *testing.T) {
	t.Parallel()
	var large Remembered
	large.Name = "r"
	for i := range 32 {
		large.Devices = append(large.Devices, RememberedDevice{ID: fmt.Sprint("d", i), Slots: 9000})
	}
	h := newMachine(t, large)
	h.at(0, res("r", slots(dev("d3", "a"), 9000))).withinBudget()
	if n := len(h.resource("r").Devices); n != 32 || h.healthy("d3") != 9000 {
		t.Errorf("%d devices, and %d slots of d3", n, h.healthy("d3"))
	}

	var many Remembered
	many.Name = "r"
	for i := range 50_000 {
		many.Devices = append(many.Devices, RememberedDevice{ID: fmt.Sprint("d", i), Slots: 1, Gone: i != 7})
	}
	h = newMachine(t, many)
	h.silent = true
	h.at(0, res("r", dev("d7", "a")), res("other", dev("d9999", "a"))).withinBudget()
	if h.healthy("d7") != 1 {
		t.Error("the device that was present is not Healthy")
	}
	if h.healthy("d9999") != 0 {
		t.Error("a device that may be held is offered through another resource")
	}
}
