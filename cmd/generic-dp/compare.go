package main

import (
	"cmp"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

// name names a device of a resource. An ID is only unique within a resource, because two
// resources may share a device.
type name struct{ resource, id string }

// nameOf returns the name of an entry.
func nameOf(e answer.Entry) name { return name{e.Resource, e.ID} }

// holders are the containers that hold devices. The name has the ID of the device, and each
// holder has the ID of its slot. nil means that nothing is known.
type holders map[name][]status.Holder

// offered is a device of a resource.
type offered struct {
	answer.Entry
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
				Entry: answer.Entry{
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
	changes []answer.Change
}

// compare returns the changes between two views of one host. Changes that affect pods come first.
// held says which containers hold devices in the first view; if it is nil, no change has holders.
//
// It first pairs devices with the same name. A device that only exists before and a device that
// only exists after are then paired if they are the same hardware: it was moved or renamed.
// Everything else was added or removed.
func compare(before, after *agent.View, held holders) []answer.Change {
	c := comparison{held: held, changes: []answer.Change{}}
	newOffers := offers(after)
	isNew := make(map[name]bool)
	byName := make(map[name]offered)
	for _, o := range newOffers {
		isNew[nameOf(o.Entry)] = true
		byName[nameOf(o.Entry)] = o
	}
	// gone are the old devices that have no new one with their name, by hardware. Hardware may
	// have several devices, such as with each = "node". They are paired in the order of the
	// lists.
	gone := make(map[string][]offered)
	for _, old := range offers(before) {
		next, isKept := byName[nameOf(old.Entry)]
		if !isKept {
			gone[old.hardware] = append(gone[old.hardware], old)
			continue
		}
		delete(isNew, nameOf(old.Entry))
		c.compareKept(old, next)
	}
	for _, next := range newOffers {
		if !isNew[nameOf(next.Entry)] {
			continue
		}
		left := gone[next.hardware]
		if len(left) == 0 {
			c.add(answer.Added, answer.Entry{}, next.Entry)
			continue
		}
		gone[next.hardware] = left[1:]
		c.addReplaced(left[0], next)
	}
	for _, left := range gone {
		for _, old := range left {
			c.add(answer.Removed, old.Entry, answer.Entry{})
		}
	}
	// The loops add changes in the order of maps.
	order.Sort(c.changes, byUrgency)
	return c.changes
}

// compareKept adds the change of a device with the same resource and ID in both views. It adds at
// most one change, and none if a container gets the same from both.
func (c *comparison) compareKept(old, next offered) {
	changed := details(&old.offer, &next.offer)
	if next.Slots != old.Slots {
		c.add(answer.SlotsChanged, old.Entry, next.Entry, changed...)
		return
	}
	if len(changed) > 0 {
		c.add(answer.ContentsChanged, old.Entry, old.Entry, changed...)
	}
}

// addReplaced adds the change of hardware that has another resource or ID in the new view. For a
// pod, both are the loss of the old device.
func (c *comparison) addReplaced(old, next offered) {
	what := answer.Moved
	if old.Resource == next.Resource {
		what = answer.Renamed
	}
	c.add(what, old.Entry, next.Entry, details(&old.offer, &next.offer)...)
}

// add adds a change with its details and the containers that it affects. These are all holders of
// the old device if its name changes or disappears. If only the number of slots changes, they are
// the holders of slots that no longer exist.
func (c *comparison) add(what answer.Effect, old, next answer.Entry, details ...string) {
	held := []status.Holder{}
	for _, h := range c.held[nameOf(old)] {
		_, slot := device.SplitSlot(h.ID)
		isSlotKept := slot < next.Slots
		switch {
		// A running container keeps what it got, and gets the new contents when it restarts.
		case what == answer.ContentsChanged:
		case what == answer.SlotsChanged && isSlotKept:
		default:
			held = append(held, h)
		}
	}
	c.changes = append(c.changes, answer.Change{
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
func byUrgency(a, b answer.Change) int {
	return cmp.Or(
		len(b.Held)-len(a.Held),
		cmp.Compare(a.Listed().Resource, b.Listed().Resource),
		device.CompareNatural(a.Listed().ID, b.Listed().ID),
	)
}
