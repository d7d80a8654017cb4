package ledger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// exclusive returns an exclusive offer at places.
func exclusive(id string, places ...string) device.Offer {
	o := dev(id)
	o.Exclusive = true
	o.Places = places
	return o
}

// plain returns an offer at places that excludes none.
func plain(id string, places ...string) device.Offer {
	o := dev(id)
	o.Places = places
	return o
}

func TestHeldDeviceExcludesItsRivals(t *testing.T) {
	t.Parallel()
	hub := res("hubs", exclusive("hub", "usb1/1-2"))
	ports := res("ports", exclusive("one", "usb1/1-2/1-2.1"), exclusive("two", "usb1/1-2/1-2.2"))
	h := newMachine(t)
	h.at(0, hub, ports).shows(list{"hubs": {"hub": ok}, "ports": {"one": ok, "two": ok}}).asks(false)
	h.held = map[string]string{"one": "ports"}
	h.at(10*s, hub, ports).shows(list{"hubs": {"hub": "held as one through ports"}, "ports": {"one": ok, "two": ok}}).asks(true)
	if e := h.resource("hubs").Devices[0]; !e.Withheld {
		t.Error("the hub is not withheld, as if it were broken")
	}
	h.held = map[string]string{"hub": "hubs"}
	h.at(20*s, hub, ports).shows(list{"hubs": {"hub": ok}, "ports": {"one": "held as hub through hubs", "two": "held as hub through hubs"}})
	h.held = nil
	h.at(30*s, hub, ports).shows(list{"hubs": {"hub": ok}, "ports": {"one": ok, "two": ok}}).asks(false)
}

// Both are held after an edit of shared = true. Neither holder sees its device as failing, and neither
// device is allocated again.
func TestRivalsThatAreBothHeld(t *testing.T) {
	t.Parallel()
	a := res("a", slots(exclusive("x", "place"), 2))
	b := res("b", exclusive("y", "place"))
	h := newMachine(t)
	h.held = map[string]string{"x": "a", "y": "b"}
	h.at(0, a, b).shows(list{"a": {"x": ok, "x::1": ok}, "b": {"y": ok}})
	for name, want := range map[string]string{"a": "held as y through b", "b": "held as x through a"} {
		if got := h.resource(name).Devices[0].Excluded; got != want {
			t.Errorf("%s is excluded by %q, want %q", name, got, want)
		}
	}
}

// A device that is absent, or that an edit took from the configuration, keeps its rivals away as long
// as it is held.
func TestAbsentDeviceExcludesItsRivals(t *testing.T) {
	t.Parallel()
	a := res("a", exclusive("x", "place"))
	b := res("b", exclusive("y", "place/node"))
	h := newMachine(t).at(0, a, b)
	h.held = map[string]string{"x": "a"}
	h.at(10*s, res("a"), b).shows(list{"a": {"x": ReasonGone}, "b": {"y": "held as x through a"}})
	h.at(20*m, b).shows(list{"a": {"x": ReasonRemoved}, "b": {"y": "held as x through a"}})
	// The places survive a restart.
	h.state = restore(h.state.Remember())
	h.at(21*m, b).shows(list{"a": {"x": ReasonRemoved}, "b": {"y": "held as x through a"}})
	h.held = nil
	h.at(22*m, b).shows(list{"b": {"y": ok}})
}

// A plain device excludes an exclusive one only after an edit, while its container still runs.
func TestPlainDeviceBecomesExclusive(t *testing.T) {
	t.Parallel()
	hub := res("hubs", plain("hub", "usb1/1-2"))
	port := res("ports", exclusive("one", "usb1/1-2/1-2.1"))
	h := newMachine(t)
	h.held = map[string]string{"hub": "hubs"}
	h.at(0, hub, port).shows(list{"hubs": {"hub": ok}, "ports": {"one": ok}})
	hub = res("hubs", exclusive("shared-hub", "usb1/1-2"))
	h.at(10*s, hub, port).shows(list{
		"hubs":  {"hub": ReasonGone, "shared-hub": "held as hub through hubs"},
		"ports": {"one": "held as hub through hubs"},
	})
	h.held = nil
	h.at(20*m, hub, port).shows(list{"hubs": {"shared-hub": ok}, "ports": {"one": ok}})
}

// A grant excludes like a holder that the kubelet lists.
func TestGrantExcludes(t *testing.T) {
	t.Parallel()
	a := res("a", exclusive("x", "place"))
	b := res("b", exclusive("y", "place"))
	in := Input{
		Now:       boot,
		Start:     boot,
		Resources: []Resource{a, b},
		Held:      Held{At: boot},
		Granted:   map[string]Grant{"x": {Resource: "a", Places: []string{"place"}}},
	}
	_, out := State{}.Next(in)
	if e := out.Resources[1].Devices[0]; e.Reason != "held as x through a" || e.Healthy {
		t.Errorf("y is healthy (%v): %q", e.Healthy, e.Reason)
	}
	if e := out.Resources[0].Devices[0]; !e.Healthy {
		t.Errorf("the granted device is unhealthy: %q", e.Reason)
	}
	// The grant of a device that is not listed has its own places.
	in.Resources = []Resource{b}
	_, out = State{}.Next(in)
	if e := out.Resources[0].Devices[0]; e.Healthy {
		t.Error("y is healthy, although a container may hold x")
	}
}

// A claim does not exclude the devices of other claims here, but those of device plugins.
func TestClaimExcludesDevicesOfPluginsOnly(t *testing.T) {
	t.Parallel()
	a := res("a", exclusive("x", "place"))
	b := res("b", exclusive("y", "place"))
	c := res("c", exclusive("z", "place"))
	a.Claims = true
	b.Claims = true
	h := newMachine(t)
	h.held = map[string]string{"x": "a"}
	h.at(0, a, b, c).shows(list{"a": {"x": ok}, "b": {"y": ok}, "c": {"z": "held as x through a"}})
	h.held = map[string]string{"z": "c"}
	h.at(10*s, a, b, c).shows(list{"a": {"x": "held as z through c"}, "b": {"y": "held as z through c"}, "c": {"z": ok}})
}

// Nobody knows what the holder of a device uses that was never seen with its places.
func TestHolderOfUnknownHardware(t *testing.T) {
	t.Parallel()
	a := res("a", exclusive("x", "place"))
	h := newMachine(t)
	h.held = map[string]string{"lost": "a"}
	h.at(0, a)
	if got := h.resource("a").Devices; len(got) != 2 || got[1].Healthy {
		t.Errorf("devices are %+v: want x as unhealthy", got)
	}
	// A resource of another program.
	h.held = map[string]string{"lost": "theirs"}
	h.state = State{}
	h.at(10*s, a).shows(list{"a": {"x": ok}})
}

// A container may have got the device just before the edit that removed it.
func TestDeviceOfTheFormerConfiguration(t *testing.T) {
	t.Parallel()
	a := res("a", plain("x", "place"))
	b := res("b", exclusive("y", "place"))
	next := func(state State, now, switched, asked time.Duration, resources ...Resource) (State, Output) {
		return state.Next(Input{
			Now:       boot.Add(now),
			Start:     boot,
			Switched:  boot.Add(switched),
			Resources: resources,
			Held:      Held{At: boot.Add(asked)},
		})
	}
	state, _ := next(State{}, 0, 0, 0, a)
	state, out := next(state, 10*s, 10*s, 0, b)
	if e := out.Resources[0].Devices[0]; e.Healthy {
		t.Fatal("y is healthy at once")
	}
	_, out = next(state, 71*s, 10*s, 71*s, b)
	if e := out.Resources[0].Devices[0]; !e.Healthy {
		t.Errorf("y stays unhealthy: %q", e.Reason)
	}
}

// Of random devices that are held one after the other, as the list permits it, no two conflict.
func TestNoTwoRivalsAreHeld(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		places := map[string][]string{}
		var resources []Resource
		for i := range 4 {
			r := res(fmt.Sprint("r", i))
			for j := range random.IntN(3) {
				id := fmt.Sprintf("d%d%d", i, j)
				places[id] = []string{randomPlace(random)}
				r.Offers = append(r.Offers, exclusive(id, places[id]...))
			}
			resources = append(resources, r)
		}
		h := newMachine(t)
		h.held = map[string]string{}
		for step := range 12 {
			h.at(time.Duration(step)*s, resources...)
			for _, r := range h.out.Resources {
				for _, e := range r.Devices {
					id := e.Offer.ID
					conflicts := false
					for other := range h.held {
						conflicts = conflicts || other != id && device.Conflict(places[id], places[other])
					}
					if e.Healthy == conflicts {
						t.Fatalf("%s is healthy (%v) while %v are held: places are %v", id, e.Healthy, h.held, places)
					}
				}
			}
			r := h.out.Resources[random.IntN(len(h.out.Resources))]
			for _, e := range r.Devices {
				if random.IntN(3) == 0 {
					delete(h.held, e.Offer.ID)
				} else if e.Healthy && len(r.Devices) == 1 {
					h.held[e.Offer.ID] = r.Name
				}
			}
		}
	}
}

// randomPlace returns a place in a small tree.
func randomPlace(random *rand.Rand) string {
	var parts []string
	for range random.IntN(4) + 1 {
		parts = append(parts, string(rune('a'+random.IntN(2))))
	}
	return strings.Join(parts, "/")
}
