package main

import (
	"cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
)

// effect is what an edit does to a device. Its values are an API: they are in the JSON output of
// diff, and fleet diff reads them from the nodes.
type effect string

const (
	added           effect = "added"
	removed         effect = "removed"
	moved           effect = "moved"    // to another resource
	renamed         effect = "renamed"  // it has another ID in the same resource
	slotsChanged    effect = "slots"    // it has another number of slots
	contentsChanged effect = "contents" // a container gets something else
	settingsChanged effect = "settings" // of a resource, whose devices stay the same
)

// change is one effect of an edit. The names of the JSON fields are an API.
type change struct {
	Change effect `json:"change"`
	// Old is empty if the device was added, and New if it was removed.
	Old entry `json:"old"`
	New entry `json:"new"`
	// Details are what changes in a device or a resource, one difference in each line. A minus is
	// a loss, and a plus an addition.
	Details []string `json:"details"`
	// Held are the containers that hold what the edit takes away. They cannot restart with it.
	Held []status.Holder `json:"held"`
}

// entry is a device of a resource, as it is listed. The zero entry stands for no device. ID is
// empty and Slots is 0 for a change of a resource itself.
type entry struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Slots    int    `json:"slots"`
}

// listed returns the old entry, or the new one if there is no old one. It is the entry under
// which pods know the device now.
func (c *change) listed() entry { return cmp.Or(c.Old, c.New) }

// name names a device of a resource. An ID is only unique within a resource, because two
// resources may share a device.
type name struct{ resource, id string }

func (e entry) name() name { return name{e.Resource, e.ID} }

// holders are the containers that hold devices. The name has the ID of the device, and each
// holder has the ID of its slot. nil means that nothing is known.
type holders map[name][]status.Holder

// offered is a device of a resource.
type offered struct {
	entry
	// hardware is the path of its hardware, or its ID if it has none. It is the same for all
	// configurations, so that a device is found again under another name.
	hardware string
	// offer is everything that a container gets.
	offer device.Offer
}

// offers returns the devices of all resources of a view, in the order of the configuration.
func offers(v *agent.View) []offered {
	var all []offered
	for _, m := range v.Matched.Resources {
		for _, o := range m.Offers {
			all = append(all, offered{
				entry: entry{
					Resource: m.Name,
					ID:       o.ID,
					Slots:    o.Slots,
				},
				hardware: cmp.Or(o.Hardware, o.ID),
				offer:    o,
			})
		}
	}
	return all
}

// comparison collects the changes between two views of one host. changes is never nil.
type comparison struct {
	held    holders
	changes []change
}

// compare returns the changes between two views of one host. Changes that affect pods come first.
// held says which containers hold devices in the first view; if it is nil, no change has holders.
//
// It first pairs devices with the same name. A device that only exists before and a device that
// only exists after are then paired if they are the same hardware: it was moved or renamed.
// Everything else was added or removed.
func compare(before, after *agent.View, held holders) []change {
	c := comparison{held: held, changes: []change{}}
	newOffers := offers(after)
	isNew := make(map[name]bool)
	byName := make(map[name]offered)
	for _, o := range newOffers {
		isNew[o.name()] = true
		byName[o.name()] = o
	}
	// gone are the old devices that have no new one with their name, by hardware. Hardware may
	// have several devices, such as with each = "node". They are paired in the order of the
	// lists.
	gone := make(map[string][]offered)
	for _, old := range offers(before) {
		next, isKept := byName[old.name()]
		if !isKept {
			gone[old.hardware] = append(gone[old.hardware], old)
			continue
		}
		delete(isNew, old.name())
		c.compareKept(old, next)
	}
	for _, next := range newOffers {
		if !isNew[next.name()] {
			continue
		}
		left := gone[next.hardware]
		if len(left) == 0 {
			c.add(added, entry{}, next.entry)
			continue
		}
		gone[next.hardware] = left[1:]
		c.addReplaced(left[0], next)
	}
	for _, left := range gone {
		for _, old := range left {
			c.add(removed, old.entry, entry{})
		}
	}
	c.compareSettings(before, after)
	// The loops add changes in the order of maps.
	order.Sort(c.changes, byUrgency)
	return c.changes
}

// compareKept adds the change of a device with the same resource and ID in both views. It adds at
// most one change, and none if a container gets the same from both.
func (c *comparison) compareKept(old, next offered) {
	changed := details(&old.offer, &next.offer)
	if next.Slots != old.Slots {
		c.add(slotsChanged, old.entry, next.entry, changed...)
		return
	}
	if len(changed) > 0 {
		c.add(contentsChanged, old.entry, old.entry, changed...)
	}
}

// compareSettings adds the changes of settings that no device shows. It compares resources by
// their resulting names, in which variables have their values. A resource that is only in one
// view has no settings to compare.
func (c *comparison) compareSettings(before, after *agent.View) {
	wasResource := make(map[string]*config.Resource)
	for _, m := range before.Matched.Resources {
		wasResource[m.Name] = m.Resource
	}
	for _, m := range after.Matched.Resources {
		was := wasResource[m.Name]
		if was == nil {
			continue
		}
		changed := changedSettings(was, m.Resource)
		if len(changed) > 0 {
			resource := entry{Resource: m.Name}
			c.add(settingsChanged, resource, resource, changed...)
		}
	}
}

// addReplaced adds the change of hardware that has another resource or ID in the new view. For a
// pod, both are the loss of the old device.
func (c *comparison) addReplaced(old, next offered) {
	what := moved
	if old.Resource == next.Resource {
		what = renamed
	}
	c.add(what, old.entry, next.entry, details(&old.offer, &next.offer)...)
}

// add adds a change with its details and the containers that it affects. These are all holders of
// the old device if its name changes or disappears. If only the number of slots changes, they are
// the holders of slots that no longer exist.
func (c *comparison) add(what effect, old, next entry, details ...string) {
	held := []status.Holder{}
	for _, h := range c.held[old.name()] {
		_, slot := device.SplitSlot(h.ID)
		isSlotKept := slot < next.Slots
		switch {
		// A running container keeps what it got, and gets the new contents when it restarts.
		case what == contentsChanged:
		case what == slotsChanged && isSlotKept:
		default:
			held = append(held, h)
		}
	}
	c.changes = append(c.changes, change{
		Change: what,
		Old:    old,
		New:    next,
		// An empty list is [] in JSON, and nil is null.
		Details: append([]string{}, details...),
		Held:    held,
	})
}

// byUrgency compares changes by the number of affected containers, then by resource and ID. IDs
// are in natural order: 1-2 comes before 1-10.
func byUrgency(a, b change) int {
	return cmp.Or(
		len(b.Held)-len(a.Held),
		cmp.Compare(a.listed().Resource, b.listed().Resource),
		device.CompareNatural(a.listed().ID, b.listed().ID),
	)
}
