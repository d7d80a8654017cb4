package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// truth is what the model knows beyond the hardware: what depends on the past.
type truth struct {
	twins    twins
	names    map[string]string          // resource by each name that it had, with domain
	listed   map[string]map[string]life // slots by ID, of the last list of each name
	received map[string]int             // lists that were checked, by name

	unsaved bool // the program may not have saved its state
	vague   bool // it was started without the state
	dirty   bool // it may not have noticed the last steps
	pending bool // it may not have been able to load the configuration

	before map[string]bool // IDs that were healthy when all was quiet
	plugs  int             // things plugged since
	healed bool            // a disk was healed since
	cut    bool            // a stream was ended since
	ends   int             // streams ended since the start of the program
}

// life is the health of a listed slot, and since when.
type life struct {
	healthy bool
	since   time.Time
}

func newTruth() truth {
	return truth{
		twins: twins{contested: no}, names: map[string]string{}, listed: map[string]map[string]life{}, received: map[string]int{}, before: map[string]bool{},
	}
}

// twins is the decision about the serial that T and U share. A serial names the stick
// that had it first, and follows it, until both were there at once: then it names the one
// in that place, and no other.
type twins struct {
	place     string // empty: unknown
	contested answer
}

type answer int

const (
	no answer = iota
	maybe
	yes
)

// unseen notes that the program may have seen the present state, or not.
func (t *twins) unseen(w *world) {
	if w.program == nil || t.contested == yes {
		return
	}
	t.place = ""
	if w.hw.at["T"].place != "" && w.hw.at["U"].place != "" {
		t.contested = maybe
	}
}

// seen notes the IDs that the program shows.
func (t *twins) seen(hw *hardware, healthy func(id string) bool) {
	serial := serialID("T")
	var here []string
	for _, name := range []string{"T", "U"} {
		if place := hw.at[name].place; place != "" {
			here = append(here, name)
		}
	}
	owner := ""
	for i, name := range here {
		// Of two the other one has to be there with its port: lists change in steps.
		if healthy(serial) && (len(here) == 1 && !healthy(portID(hw, name)) || len(here) == 2 && healthy(portID(hw, here[1-i]))) {
			owner = hw.at[name].place
		}
	}
	if owner != "" {
		t.place = owner
	}
	if len(here) == 2 || len(here) == 1 && healthy(portID(hw, here[0])) {
		t.contested = yes
	}
}

// ids are the IDs that a plugged thing may have: one, but for the twins.
func (w *world) ids(name string) []string {
	th, p, t := things[name], w.hw.at[name], w.truth.twins
	switch {
	case th.resource == "card":
		return []string{p.place}
	case th.resource == "widget":
		return []string{p.nodes[0]}
	case th.serial == "" || w.config.of[th.resource].port:
		return []string{portID(w.hw, name)}
	case th.serial != twin:
		return []string{serialID(name)}
	}
	serial, port := []string{serialID(name)}, []string{portID(w.hw, name)}
	both := w.hw.at["T"].place != "" && w.hw.at["U"].place != ""
	switch {
	case t.place == "" && (both || t.contested != no):
		return append(port, serial...)
	case !both && t.contested == no || t.place == p.place:
		return serial
	case !both && t.contested == maybe:
		return append(serial, port...)
	default:
		return port
	}
}

// formerIDs are those that a thing may have had in the same place with another identity.
func (w *world) formerIDs(name string) []string {
	ids := w.ids(name)
	if th := things[name]; th.usb != "" {
		ids = append(ids, portID(w.hw, name))
		if th.serial != "" {
			ids = append(ids, serialID(name))
		}
	}
	return ids
}

func serialID(name string) string { return "usb:" + things[name].usb + ":" + things[name].serial }

func portID(hw *hardware, name string) string {
	return "usb:" + things[name].usb + ":port:" + xhci + ":" + hw.at[name].place
}

func base(slot string) string { id, _, _ := strings.Cut(slot, "::"); return id }

// healthy are the slots that the kubelet counts as allocatable of a resource.
func (w *world) healthy(name string) ([]string, error) {
	list, _ := w.kubelet.Latest(name)
	ids := list.Healthy()
	switch n := w.kubelet.Count(name).Allocatable; n {
	case len(ids):
		return ids, nil
	case 0:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: %d slots are allocatable, the last list has %d", name, n, len(ids))
	}
}

// view compares what the kubelet can give to pods with the truth.
func (w *world) view() error {
	for resource, s := range w.config.of {
		if name := w.config.full(resource); !s.removed {
			w.truth.names[name] = resource
		}
	}
	if n := w.kubelet.Count("example.com/always").Allocatable; n != 1 {
		return fmt.Errorf("example.com/always has %d slots, want 1: it needs nothing of the host", n)
	}
	if w.uncertain() {
		return nil
	}
	for name, resource := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return err
		}
		want := w.config.of[resource]
		if want.removed || w.config.full(resource) != name {
			if len(slots) > 0 {
				return fmt.Errorf("%s is not configured and has healthy slots: %v", name, slots)
			}
			continue
		}
		if err := w.compare(name, resource, slots); err != nil {
			return err
		}
	}
	return nil
}

// unknown is the thing behind an ID where the model does not follow it.
const unknown = "unknown"

// uncertain reports whether it is not known which configuration the program serves.
func (w *world) uncertain() bool { return w.truth.pending || w.trial.unclear }

// compare compares the healthy slots of one resource with the things that are plugged.
func (w *world) compare(name, resource string, slots []string) error {
	s := w.config.of[resource]
	left := map[string]int{} // slots by ID
	for _, slot := range slots {
		left[base(slot)]++
	}
	have := len(left)
	for id, n := range left {
		if n != s.count {
			return fmt.Errorf("%s: %s has %d healthy slots, want %d", name, id, n, s.count)
		}
	}
	spoiled := s.inject == "link" && w.faulty["run"] != "" || s.inject == "cdi" && w.faulty["cdi"] != ""
	plugged := 0
	for _, thing := range thingNames {
		if things[thing].resource != resource || w.hw.at[thing].dir == "" {
			continue
		}
		ids := w.ids(thing)
		i := slices.IndexFunc(ids, func(id string) bool { _, ok := left[id]; return ok })
		plugged++
		former, sure := w.formerly(name, resource, thing, ids)
		switch {
		case i < 0 && !spoiled && !former:
			return fmt.Errorf("%s: %s is plugged and none of %v is healthy", name, thing, ids)
		case i >= 0 && sure:
			return fmt.Errorf("%s: %s is healthy and not yet given up by the resource's former name", name, ids[i])
		}
		if i >= 0 {
			delete(left, ids[i])
		}
	}
	for id := range left {
		return fmt.Errorf("%s: %s is healthy and no such thing is plugged", name, id)
	}
	if have > plugged {
		return fmt.Errorf("%s: %d things are plugged, %d have healthy slots: %v", name, plugged, have, slots)
	}
	return nil
}

// formerly reports whether a device may still be listed with another ID, or under another
// name that its resource had, and whether the latter is for sure.
func (w *world) formerly(name, resource, thing string, ids []string) (former, sure bool) {
	list, _ := w.kubelet.Latest(name)
	isFormer, isNow := isOneOf(w.formerIDs(thing)), isOneOf(ids)
	for _, d := range list.Devices {
		former = former || isFormer(d) && !isNow(d)
	}
	for other, r := range w.truth.names {
		if r != resource || other == name {
			continue
		}
		former = true
		list, _ := w.kubelet.Latest(other)
		if slices.ContainsFunc(list.Devices, isOneOf(ids)) && !w.truth.vague && !w.deep && len(ids) == 1 {
			sure = true
		}
	}
	return former, sure
}

// follow checks the lists that came since: nothing leaves before its time.
func (w *world) follow() error {
	const minute = 59 * time.Second
	for _, name := range w.kubelet.Resources() {
		lists := w.kubelet.Lists(name)
		_, total := w.kubelet.Latest(name)
		fresh := min(total-w.truth.received[name], len(lists))
		for _, list := range lists[len(lists)-fresh:] {
			before, now := w.truth.listed[name], map[string]life{}
			for _, d := range list.Devices {
				l := life{d.GetHealth() == "Healthy", list.At}
				if was, ok := before[d.GetID()]; ok && was.healthy == l.healthy {
					l.since = was.since
				}
				now[d.GetID()] = l
			}
			for id, was := range before {
				if _, stays := now[id]; stays {
					continue
				}
				if was.healthy || list.At.Sub(was.since) < minute {
					return fmt.Errorf("%s: %s left the list; it was healthy: %t, for %s", name, id, was.healthy, list.At.Sub(was.since).Round(time.Millisecond))
				}
				if c := w.holder(name, id); c != "" {
					return fmt.Errorf("%s: %s left the list while %s holds it", name, id, c)
				}
			}
			w.truth.listed[name] = now
		}
		w.truth.received[name] = total
	}
	return nil
}

// holder is the pod that holds a slot.
func (w *world) holder(name, id string) string {
	for _, c := range w.claims {
		if c.Resource == name && c.id == id {
			return c.Pod
		}
	}
	return ""
}

// inUse checks that nothing that a pod holds is offered in another way.
func (w *world) inUse() error {
	for _, c := range w.claims {
		if c.thing == "" || w.hw.moves[c.thing] != c.moves {
			continue
		}
		for name, resource := range w.truth.names {
			slots, err := w.healthy(name)
			if err != nil {
				return err
			}
			for _, slot := range slots {
				same := name == c.Resource && base(slot) == base(c.id)
				if !same && things[c.thing].resource == resource && slices.Contains(w.ids(c.thing), base(slot)) {
					return fmt.Errorf("%s is in use as %s of %s, and offered as %s of %s", c.thing, c.id, c.Resource, slot, name)
				}
			}
		}
	}
	return nil
}

// learn takes what is true now as known.
func (w *world) learn() {
	w.trial.quiet(w.config)
	t := &w.truth
	hasty := t.dirty
	t.dirty, t.plugs, t.cut, t.before = false, 0, false, map[string]bool{}
	t.healed = t.healed && !w.up // not all could be checked
	t.unsaved = w.faulty["state"] != "" || t.unsaved && !w.up
	for name := range t.names {
		slots, _ := w.healthy(name)
		for _, slot := range slots {
			t.before[base(slot)] = true
		}
	}
	// A stream that was cut may have ended since it was checked.
	if w.observes() {
		t.twins.seen(w.hw, func(id string) bool { return t.before[id] })
	} else {
		t.twins.unseen(w)
	}
	for i := range w.claims {
		c := &w.claims[i]
		if c.thing == "" {
			c.thing = unknown // it may have moved already, or is one of the twins
			for _, name := range thingNames {
				if !hasty && w.hw.at[name].dir != "" && slices.Equal(w.ids(name), []string{base(c.id)}) {
					c.thing, c.moves = name, w.hw.moves[name]
				}
			}
		}
		c.sure = c.sure || !t.unsaved
	}
}

func isOneOf(ids []string) func(d *kubeletDevice) bool {
	return func(d *kubeletDevice) bool { return slices.Contains(ids, base(d.GetID())) }
}
