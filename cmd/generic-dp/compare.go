package main

import (
	"cmp"
	"slices"

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
	// offer is everything that a container gets.
	offer *device.Offer
}

// offers returns the devices of all resources of a view, in the order of the configuration.
func offers(v *agent.View) []*offered {
	var all []*offered
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			o := &m.Offers[i]
			all = append(all, &offered{
				Entry: answer.Entry{
					Resource: m.Name,
					ID:       o.ID,
					Slots:    o.Slots,
				},
				offer: o,
			})
		}
	}
	return all
}

// compare returns the changes between two views of one host. Changes that affect pods come first.
// held says which containers hold devices in the first view; if it is nil, no change has holders.
//
// It first pairs devices with the same name. Devices that are left before and after are then paired
// if they use the same of the host: they were renamed or moved. Everything else was added or removed.
func compare(before, after *agent.View, held holders) []answer.Change {
	changes := []answer.Change{}
	add := func(what answer.Effect, old, next answer.Entry, details []string) {
		changes = append(changes, answer.Change{
			Change:  what,
			Old:     old,
			New:     next,
			Details: details,
			Held:    held.affected(what, old, next),
		})
	}
	gone := offers(before)
	left := offers(after)
	for _, isSame := range []func(old, next *offered) bool{haveOneName, haveOnePlace, haveOneHardware} {
		var unpaired []*offered
		for _, old := range gone {
			i := slices.IndexFunc(left, func(next *offered) bool {
				return isSame(old, next)
			})
			if i < 0 {
				unpaired = append(unpaired, old)
				continue
			}
			next := left[i]
			left = slices.Delete(left, i, i+1)
			changed := details(old.offer, next.offer)
			switch {
			case next.Resource != old.Resource:
				add(answer.Moved, old.Entry, next.Entry, changed)
			case next.ID != old.ID:
				add(answer.Renamed, old.Entry, next.Entry, changed)
			case next.Slots != old.Slots:
				add(answer.SlotsChanged, old.Entry, next.Entry, changed)
			case len(changed) > 0:
				add(answer.ContentsChanged, old.Entry, old.Entry, changed)
			}
		}
		gone = unpaired
	}
	for _, old := range gone {
		add(answer.Removed, old.Entry, answer.Entry{}, []string{})
	}
	for _, next := range left {
		add(answer.Added, answer.Entry{}, next.Entry, []string{})
	}
	order.Sort(changes, byUrgency)
	return changes
}

// haveOneName reports whether pods know both devices by one name.
func haveOneName(old, next *offered) bool { return nameOf(old.Entry) == nameOf(next.Entry) }

// haveOnePlace reports whether one resource offers both devices, which use exactly the same of the host.
func haveOnePlace(old, next *offered) bool {
	return old.Resource == next.Resource && slices.Equal(old.offer.Places, next.offer.Places)
}

// haveOneHardware reports whether both devices are the same hardware, or have the same ID.
func haveOneHardware(old, next *offered) bool {
	return cmp.Or(old.offer.Hardware, old.ID) == cmp.Or(next.offer.Hardware, next.ID)
}

// affected returns the containers that a change affects. These are all holders of the old device if
// its name changes or disappears. If only the number of slots changes, they are the holders of slots
// that no longer exist. The result is never nil.
func (h holders) affected(what answer.Effect, old, next answer.Entry) []status.Holder {
	affected := []status.Holder{}
	for _, holder := range h[nameOf(old)] {
		_, slot := device.SplitSlot(holder.ID)
		isSlotKept := slot < next.Slots
		switch {
		// A running container keeps what it got, and gets the new contents when it restarts.
		case what == answer.ContentsChanged:
		case what == answer.SlotsChanged && isSlotKept:
		default:
			affected = append(affected, holder)
		}
	}
	return affected
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
