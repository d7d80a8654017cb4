package ledger

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

var boot = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

// machine drives a State through a story. Its clock starts at zero, when the process
// starts.
type machine struct {
	t       *testing.T
	state   State
	out     Output
	before  []ListedResource // of the previous output
	ended   []string         // resources dropped by the last Next
	events  map[string]time.Duration
	held    map[string]string
	failing map[string]string // reasons of failed checks, by ID
	silent  bool              // it is not known who holds what
	pulled  map[string]bool   // removed hardware, by its sysfs path
	unread  []device.UnreadHardware
	// aliases are other IDs of the hardware of an offer, by the ID of the offer.
	aliases map[string][]string
	seen    map[string]bool // sysfs paths
	// plugged is set if hardware stays on the host without an offer.
	plugged bool
	nodes   map[string]string // sysfs paths of their hardware
}

func newMachine(t *testing.T, remembered ...Remembered) *machine {
	t.Helper()
	return &machine{t: t, state: restore(remembered), events: map[string]time.Duration{}, pulled: map[string]bool{}, seen: map[string]bool{}, nodes: map[string]string{}}
}

// heldOf are held slots by their IDs, with the resource of each.
func heldOf(isUnknown bool, resources map[string]string) Held {
	held := Held{IsUnknown: isUnknown, Slots: map[string][]HeldSlot{}}
	for slot, name := range resources {
		id, number := device.SplitSlot(slot)
		held.Slots[id] = append(held.Slots[id], HeldSlot{number, name})
	}
	return held
}

// recentEvents are the events by path.
func (h *machine) recentEvents() map[string]time.Time {
	events := map[string]time.Time{}
	for path, at := range h.events {
		events[path] = boot.Add(at)
	}
	return events
}

// hardware is the hardware of the host: what is offered, and what was ever offered with an interface and is
// not pulled.
func (h *machine) hardware(resources []Resource) []*device.Hardware {
	offered := map[string]bool{}
	for _, r := range resources {
		for _, o := range r.Offers {
			stays := h.plugged || len(o.Nets) > 0
			if o.Hardware != "" && stays {
				h.seen[o.Hardware] = true
				for _, n := range o.Nodes {
					h.nodes[n.HostPath] = o.Hardware
				}
			} else if o.Hardware != "" {
				offered[o.Hardware] = true
			}
		}
	}
	for _, rec := range h.state.records {
		if rec.net.hardware != "" {
			h.seen[rec.net.hardware] = true
		}
	}
	for path := range h.seen {
		if !h.pulled[path] {
			offered[path] = true
		}
	}
	var present []*device.Hardware
	for _, path := range slices.Sorted(maps.Keys(offered)) {
		present = append(present, &device.Hardware{Path: path})
	}
	return present
}

// node is a node of hardware that stays on the host without an offer.
func (h *machine) node(path string) *device.Node {
	hardware := h.nodes[path]
	if h.pulled[hardware] || hardware == "" {
		return nil
	}
	return &device.Node{Path: path, Hardware: &device.Hardware{Path: hardware}}
}

// at calls Next at a time after the start.
func (h *machine) at(d time.Duration, resources ...Resource) *machine {
	h.t.Helper()
	in := Input{
		Now:            boot.Add(d),
		Start:          boot,
		Resources:      resources,
		Hardware:       h.hardware(resources),
		Node:           h.node,
		Exists:         func(string) bool { return false },
		UnreadHardware: h.unread,
		Events:         h.recentEvents(),
		Failing:        h.failing,
		Held:           heldOf(h.silent, h.held),
		Blocked:        h.blocked,
	}
	before := h.state
	h.before = h.out.Resources
	h.state, h.out = before.Next(in)
	h.ended = nil
	for _, res := range h.before {
		if !slices.ContainsFunc(h.out.Resources, func(r ListedResource) bool { return r.Name == res.Name }) {
			h.ended = append(h.ended, res.Name)
		}
	}
	if again, out := before.Next(in); !reflect.DeepEqual(h.out, out) || !reflect.DeepEqual(h.state.Remember(), again.Remember()) {
		h.t.Errorf("at %s: the same state and input make another output:\n%s", d, cmp.Diff(h.out, out))
	}
	if !h.out.Wake.IsZero() && !h.out.Wake.After(in.Now) {
		h.t.Errorf("at %s: wake is %s, which is not later", d, h.out.Wake.Sub(boot))
	}
	return h
}

// blocked is Input.Blocked: a container holds the device through another resource, or as another ID.
func (h *machine) blocked(resource string, o *device.Offer) string {
	if h.silent {
		return "nobody knows"
	}
	for slot, name := range h.held {
		id, _ := device.SplitSlot(slot)
		if id == o.ID && name != resource {
			return "held by a container through " + name
		}
		if slices.Contains(h.aliases[o.ID], id) {
			return "held as " + id + " through " + name
		}
	}
	return ""
}

// list is the list for the kubelet: health or reason by resource and slot.
type list map[string]map[string]string

const ok = "Healthy"

func (h *machine) shows(want list) *machine {
	h.t.Helper()
	got := list{}
	for _, res := range h.out.Resources {
		got[res.Name] = map[string]string{}
		for _, e := range res.Devices {
			for _, slot := range Slots(e) {
				got[res.Name][slot.ID] = slot.Reason
				if slot.Healthy {
					got[res.Name][slot.ID] = ok + slot.Reason
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.t.Errorf("listed (-want +got):\n%s", diff)
	}
	return h
}

// wakes checks when Next is to be called again; negative is never.
func (h *machine) wakes(want time.Duration) *machine {
	h.t.Helper()
	got := h.out.Wake.Sub(boot)
	if h.out.Wake.IsZero() {
		got = -1
	}
	if got != want {
		h.t.Errorf("wakes at %s, want %s", got, want)
	}
	return h
}

// awaits checks whether something waits until no container holds it.
func (h *machine) awaits(want bool) *machine {
	h.t.Helper()
	if h.out.AwaitsHolders != want {
		h.t.Errorf("awaits the holders: %t, want %t", h.out.AwaitsHolders, want)
	}
	return h
}

// resource returns a resource of the output.
func (h *machine) resource(name string) ListedResource {
	h.t.Helper()
	for _, res := range h.out.Resources {
		if res.Name == name {
			return res
		}
	}
	h.t.Errorf("resource %q is not in the output", name)
	return ListedResource{}
}

// changed reports whether a resource of the output differs from the previous one.
func (h *machine) changed(name string) bool {
	h.t.Helper()
	return !slices.ContainsFunc(h.before, func(r ListedResource) bool { return r.Name == name && cmp.Equal(r, h.resource(name)) })
}

// res returns a resource that remembers a device for ten minutes.
func res(name string, offers ...device.Offer) Resource {
	return Resource{Name: name, Offers: offers}
}

// dev returns an offer of one slot with nodes of the given keys.
func dev(id string, keys ...string) device.Offer {
	o := device.Offer{ID: id, Hardware: "devices/" + id, Places: []string{"devices/" + id}, Slots: 1, NUMA: []int{0}}
	for i, key := range keys {
		o.Nodes = append(o.Nodes, device.OfferedNode{Key: key, HostPath: "/dev/" + id + key, Major: 188, Minor: uint32(i)})
	}
	return o
}

// iface returns an offer of one interface that moves, on hardware unless that is empty.
func iface(id, hardware string) device.Offer {
	return device.Offer{ID: id, Hardware: hardware, Slots: 1, CDI: true, Nets: []device.OfferedNet{{HostName: "if-" + id, Key: "net"}}}
}

func slots(o device.Offer, n int) device.Offer {
	o.Slots = n
	return o
}

func remembered(resource string, ids ...string) Remembered {
	r := Remembered{Name: resource}
	for _, id := range ids {
		r.Devices = append(r.Devices, RememberedDevice{ID: id, Slots: 1, Nodes: []string{"a"}})
	}
	return r
}

func grows(r Resource) Resource {
	r.Grows = true
	return r
}

// restore is the state after a restart in the same boot.
func restore(remembered []Remembered) State {
	return Persisted{Boot: "x", Resources: remembered}.State("x")
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
