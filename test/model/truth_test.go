package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// truth is the part of the model that depends on the past.
type truth struct {
	twins   twins
	names   map[string]string          // resource by full name, former names included
	listed  map[string]map[string]life // slots by ID, of the last list of each name
	checked map[string]int             // number of checked lists, by name

	stateUnsaved  bool // the program may not have saved its state
	stateLost     bool // it was started without its state
	unsettled     bool // it may not have noticed the last lines
	reloadPending bool // it may have failed to load the configuration

	// Since every rule held:
	healthyBefore map[string]bool // IDs that were healthy then
	plugs         int             // things plugged
	diskHealed    bool            // a disk got its space back
	streamCut     bool            // a stream was ended

	streamEnds int // streams ended since the start of the program
}

// life is the health of a listed slot since a time.
type life struct {
	healthy bool
	since   time.Time
}

func newTruth() truth {
	return truth{
		twins: twins{contested: no}, names: map[string]string{}, listed: map[string]map[string]life{}, checked: map[string]int{}, healthyBefore: map[string]bool{},
	}
}

// twins is the decision about the serial that T and U share. It identifies the first stick
// that has it, in any place, until both were plugged at once; from then on, the stick in the
// first one's place alone.
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

// notObserved records that the program may or may not have seen the present hardware.
func (t *twins) notObserved(w *world) {
	if w.program == nil || t.contested == yes {
		return
	}
	t.place = ""
	if w.hw.at["T"].place != "" && w.hw.at["U"].place != "" {
		t.contested = maybe
	}
}

// observe records the decision that the healthy IDs show.
func (t *twins) observe(hw *hardware, healthy func(id string) bool) {
	serial := serialID("T")
	var here []string
	for _, name := range []string{"T", "U"} {
		if place := hw.at[name].place; place != "" {
			here = append(here, name)
		}
	}
	owner := ""
	for i, name := range here {
		// Of two twins, the other one must be healthy by its port: lists change in steps.
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

// ids are the possible IDs of a plugged thing: one, except for twins.
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

// formerIDs are ids, and the IDs that a thing in this place has with another identity.
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

// healthy are the allocatable slots of a resource.
func (w *world) healthy(name string) ([]string, error) {
	list, _ := w.kubelet.Latest(name)
	ids := list.Healthy()
	switch n := w.kubelet.Count(name).Allocatable; n {
	case len(ids):
		return ids, nil
	case 0:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: %d slots are allocatable, want %d as in the last list", name, n, len(ids))
	}
}

// checkAllocatable compares the allocatable slots with the truth.
func (w *world) checkAllocatable() error {
	for resource, s := range w.config.of {
		if name := w.config.fullName(resource); !s.removed {
			w.truth.names[name] = resource
		}
	}
	if n := w.kubelet.Count("example.com/always").Allocatable; n != 1 {
		return fmt.Errorf("example.com/always has %d slots, want 1: its device is virtual", n)
	}
	if w.configUncertain() {
		return nil
	}
	for name, resource := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return err
		}
		want := w.config.of[resource]
		if want.removed || w.config.fullName(resource) != name {
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

// unknown is the thing of a claim that the model does not know for sure.
const unknown = "unknown"

// configUncertain reports whether the program may serve another configuration than the model's.
func (w *world) configUncertain() bool { return w.truth.reloadPending || w.trial.servedUnknown }

// compare compares the healthy slots of one resource with the plugged things.
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
	injectionFaulty := s.inject == "link" && w.faulty["run"] != "" || s.inject == "cdi" && w.faulty["cdi"] != ""
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
		case i < 0 && !injectionFaulty && !former:
			return fmt.Errorf("%s: %s is plugged and none of %v is healthy", name, thing, ids)
		case i >= 0 && sure:
			return fmt.Errorf("%s: %s is healthy while a former name of the resource still lists it", name, ids[i])
		}
		if i >= 0 {
			delete(left, ids[i])
		}
	}
	for id := range left {
		return fmt.Errorf("%s: %s is healthy, and no thing with this ID is plugged", name, id)
	}
	if have > plugged {
		return fmt.Errorf("%s: %d things are plugged, %d have healthy slots: %v", name, plugged, have, slots)
	}
	return nil
}

// formerly reports whether a device may still be listed by a former ID or under a former name
// of its resource, and whether it surely is under a former name.
func (w *world) formerly(name, resource, thing string, ids []string) (former, sure bool) {
	list, _ := w.kubelet.Latest(name)
	isFormer, isNow := isOneOf(w.formerIDs(thing)), isOneOf(ids)
	for _, d := range list.Devices {
		mayBeFormer := !isNow(d) || len(ids) > 1 // it is not known which ID it has now
		former = former || isFormer(d) && mayBeFormer
	}
	for other, r := range w.truth.names {
		if r != resource || other == name {
			continue
		}
		former = true
		list, _ := w.kubelet.Latest(other)
		if slices.ContainsFunc(list.Devices, isOneOf(ids)) && !w.truth.stateLost && !w.waited && len(ids) == 1 {
			sure = true
		}
	}
	return former, sure
}

// checkLists checks every list that came since the last call: a slot leaves only after a
// minute as Unhealthy, and not while a pod holds it.
func (w *world) checkLists() error {
	const minute = 59 * time.Second // lists may arrive with a delay
	for _, name := range w.kubelet.Resources() {
		lists := w.kubelet.Lists(name)
		_, total := w.kubelet.Latest(name)
		fresh := min(total-w.truth.checked[name], len(lists))
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
					return fmt.Errorf("%s: %s left the list; healthy: %t, for %s; want a minute as Unhealthy first", name, id, was.healthy, list.At.Sub(was.since).Round(time.Millisecond))
				}
				if c := w.holder(name, id); c != "" {
					return fmt.Errorf("%s: %s left the list while %s holds it", name, id, c)
				}
			}
			w.truth.listed[name] = now
		}
		w.truth.checked[name] = total
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

// checkHeld checks that a device that a pod holds is not offered by another ID or name.
func (w *world) checkHeld() error {
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
					return fmt.Errorf("%s is held as %s of %s, and offered as %s of %s", c.thing, c.id, c.Resource, slot, name)
				}
			}
		}
	}
	return nil
}

// recordSettled records the present state, in which every rule holds.
func (w *world) recordSettled() {
	w.trial.settled(w.config)
	t := &w.truth
	wasUnsettled := t.unsettled
	t.unsettled, t.plugs, t.streamCut, t.healthyBefore = false, 0, false, map[string]bool{}
	t.diskHealed = t.diskHealed && !w.kubeletUp // some checks need the kubelet
	t.stateUnsaved = w.faulty["state"] != "" || t.stateUnsaved && !w.kubeletUp
	for name := range t.names {
		slots, _ := w.healthy(name)
		for _, slot := range slots {
			t.healthyBefore[base(slot)] = true
		}
	}
	// A cut stream may have ended since the check.
	if w.observable() {
		t.twins.observe(w.hw, func(id string) bool { return t.healthyBefore[id] })
	} else {
		t.twins.notObserved(w)
	}
	for i := range w.claims {
		c := &w.claims[i]
		if c.thing == "" {
			c.thing = unknown // it may have moved, or be one of the twins
			for _, name := range thingNames {
				if !wasUnsettled && w.hw.at[name].dir != "" && slices.Equal(w.ids(name), []string{base(c.id)}) {
					c.thing, c.moves = name, w.hw.moves[name]
				}
			}
		}
		c.sure = c.sure || !t.stateUnsaved
	}
}

func isOneOf(ids []string) func(d *kubeletDevice) bool {
	return func(d *kubeletDevice) bool { return slices.Contains(ids, base(d.GetID())) }
}
