package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

func (h *machine) complete(want bool) *machine {
	h.t.Helper()
	if got := h.resource("r").Complete; got != want {
		h.t.Errorf("complete: %t, want %t", got, want)
	}
	return h
}

func (h *machine) registers(want bool) *machine {
	h.t.Helper()
	if got := h.resource("r").Register; got != want {
		h.t.Errorf("registers: %t, want %t", got, want)
	}
	return h
}

func TestAListIsCompleteWithAllRememberedDevices(t *testing.T) {
	t.Parallel()
	h := newMachine(t, remembered("r", "x", "y"))
	h.at(0, res("r", dev("x", "a"))).complete(false).wakes(5 * s)
	h.shows(list{"r": {"x": ok, "y": ReasonGone}})
	h.at(s, res("r", dev("x", "a"), dev("y", "a"))).complete(true).wakes(-1)
	h.at(2*s, res("r")).complete(true)
}

// Unread hardware may be a device that is not remembered.
func TestAListIsCompleteWhenAllHardwareIsRead(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.unread = []device.UnreadHardware{{Path: "devices/stick"}}
	h.at(0, res("r")).complete(false).wakes(5 * s)
	h.unread = nil
	h.at(s, res("r", dev("x", "a"))).complete(true)
}

func TestAListIsCompleteAfterFiveSecondsAtMost(t *testing.T) {
	t.Parallel()
	h := newMachine(t, remembered("r", "x"))
	h.at(4999*ms, res("r")).complete(false)
	h.at(5*s, res("r")).complete(true).shows(list{"r": {"x": ReasonGone}}).wakes(4999*ms + 10*m)
}

func TestAResourceRegistersWithItsFirstDevice(t *testing.T) {
	t.Parallel()
	h := newMachine(t).at(0, res("r")).registers(false)
	h.at(s, res("r", dev("x", "a"))).registers(true)
	h.at(2*s, res("r")).registers(true)
	h.at(m+10*m, res("r")).shows(list{"r": {}}).registers(false)
}

func TestAResourceThatWasRemovedWhileTheProgramWasDownIsRegisteredIfItIsHeld(t *testing.T) {
	t.Parallel()
	newMachine(t, remembered("r", "x")).at(0, res("new", dev("x", "a"))).registers(false)
	h := newMachine(t, remembered("r", "x"))
	h.held = map[string]string{"x": "r"}
	h.at(0, res("new", dev("x", "a"))).registers(true)
	h.shows(list{"r": {"x": "to be offered by new"}, "new": {}})
	h.at(2*m, res("new", dev("x", "a"))).shows(list{"r": {"x": "to be offered by new"}, "new": {}})
	h.held = nil
	h.at(3*m, res("new", dev("x", "a"))).shows(list{"new": {"x": ok}})
}

func TestUnchangedOutputHasNoChanges(t *testing.T) {
	t.Parallel()
	r := res("r", dev("x", "a"))
	h := newMachine(t).at(0, r)
	if diff := cmp.Diff([]Change{{Resource: "r", ID: "x", Healthy: true}}, h.out.Changes); diff != "" || !h.changed("r") {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if h.at(s, r); len(h.out.Changes) > 0 || h.changed("r") {
		t.Errorf("nothing happened: %v", h.out.Changes)
	}
	moved := dev("x", "a")
	moved.Nodes[0].HostPath = "/dev/elsewhere"
	if h.at(2*s, res("r", moved)); len(h.out.Changes) > 0 || !h.changed("r") {
		t.Errorf("a node has another name: changed %t, changes %v", h.changed("r"), h.out.Changes)
	}
	h.at(3*s, res("r"))
	equal(t, "gone", []Change{{Resource: "r", ID: "x", Reason: ReasonGone}}, h.out.Changes)
	h.at(30*m, res("r"))
	equal(t, "left", []Change{{Resource: "r", ID: "x", Reason: ReasonGone, Left: true}}, h.out.Changes)
	h.at(31*m, r).at(32 * m).at(33*m + s)
	equal(t, "ended", []Change{{Resource: "r", ID: "x", Reason: ReasonRemoved, Left: true}}, h.out.Changes)
}

func TestHeldDeviceWithoutARecordIsListed(t *testing.T) {
	t.Parallel()
	held := heldOf(false, map[string]string{"x": "r", "y::2": "r", "z": "foreign", "bad id": "r"})
	state, _ := State{}.Next(Input{Now: boot, Start: boot, Resources: []Resource{res("r", dev("x", "a"))}})
	_, out := state.Next(Input{Now: boot.Add(s), Start: boot, Held: held, Resources: []Resource{res("r", dev("x", "a"))}})
	got := map[string]int{}
	for _, e := range out.Resources[0].Devices {
		got[e.Offer.ID+" "+e.Reason] = e.Offer.Slots
	}
	equal(t, "result", map[string]int{"x ": 1, "y " + ReasonGone: 1}, got)
}

// A resource whose name comes from devices ends with the last of them, unless one is
// waiting.
func TestADerivedResourceEndsWithItsDevices(t *testing.T) {
	t.Parallel()
	derived := func(name string, offers ...device.Offer) Resource {
		r := res(name, offers...)
		r.Derived = true
		return r
	}
	h := newMachine(t).at(0, derived("r", dev("x", "a")))
	h.at(s, derived("r")).shows(list{"r": {"x": ReasonGone}})
	h.at(s+10*m, derived("r")).shows(list{}).wakes(-1)
	if !cmp.Equal(h.ended, []string{"r"}) {
		t.Errorf("ended: %q", h.ended)
	}
	h = newMachine(t).at(0, res("a", dev("x", "a")))
	h.at(s, derived("r", dev("x", "a"))).shows(list{"a": {"x": reasonTakenOver + "r"}, "r": {}})
	h.at(s+m, derived("r", dev("x", "a"))).shows(list{"r": {"x": ok}})
}

// A failed check makes a device Unhealthy, and nothing else: its offer stays.
func TestAFailingCheck(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.failing = map[string]string{"x": "no carrier"}
	h.at(0, res("r", dev("x", "a"), dev("y", "a"))).shows(list{"r": {"x": "no carrier", "y": ok}})
	if e := h.resource("r").Devices[0]; !e.Present || len(e.Offer.Nodes) != 1 || e.Offer.Problem != "" {
		t.Errorf("entry %+v, want the whole offer", e)
	}
	h.at(s, res("r", dev("y", "a"))).shows(list{"r": {"x": ReasonGone, "y": ok}})
}
