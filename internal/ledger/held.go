package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxOrphans and maxOrphanList limit the devices that only the kubelet knows: a part of
	// the memory of all lists, and of the list of one resource. A kubelet whose checkpoint is
	// from a backup may name tens of thousands.
	maxOrphans    = device.MaxMemory / 4
	maxOrphanList = device.MaxList / 4
)

// restoreOrphans makes records of held devices of a configured resource that have none. They
// have the slots that containers hold.
func (t *transition) restoreOrphans() {
	byName := make(map[string]*draft, len(t.drafts))
	sizes := make(map[*draft]int)
	memory := 0
	for _, d := range t.drafts {
		if d.config.Refuse == "" {
			byName[d.name] = d
		}
		for _, rec := range d.records {
			if rec.orphan {
				memory += rec.memory()
				sizes[d] += rec.listSize()
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.held)) {
		if t.owner[id] != nil || !device.ValidID(id) {
			continue
		}
		d, held := t.holder(byName, id)
		if d == nil {
			continue
		}
		rec := record{
			offer:  device.Offer{ID: id, Slots: 1},
			listed: 1,
			kept:   from(held, 1),
			orphan: true,
		}
		if memory+rec.memory() > maxOrphans || sizes[d]+rec.listSize() > maxOrphanList {
			t.unlisted = append(t.unlisted, id)
			continue
		}
		memory += rec.memory()
		sizes[d] += rec.listSize()
		d.records[id] = rec
		t.owner[id] = d
	}
}

// countUnlisted counts the held devices that are not listed, now that the present ones are.
func (t *transition) countUnlisted() {
	for _, id := range t.unlisted {
		if t.owner[id] == nil {
			t.out.HeldUnlisted++
		}
	}
	if t.answered(t.in.Held.At) {
		t.forgot = t.out.HeldUnlisted > 0
	}
}

// holder returns the first resource through which containers hold a device, and the slots.
func (t *transition) holder(byName map[string]*draft, id string) (d *draft, held []int) {
	for _, h := range t.held[id] {
		if d == nil && h.slot < device.MaxSlots {
			d = byName[h.resource]
		}
	}
	if d == nil {
		return nil, nil
	}
	for _, h := range t.held[id] {
		if h.resource == d.name && h.slot < device.MaxSlots {
			held = append(held, h.slot)
		}
	}
	slices.Sort(held)
	return d, slices.Compact(held)
}

// from returns the part of sorted slots from one on.
func from(slots []int, first int) []int {
	i, _ := slices.BinarySearch(slots, first)
	if i == len(slots) {
		return nil
	}
	return slots[i:]
}

// needed is how many slots of a device stay on the list, from slot 0 on, whoever holds them.
func (rec record) needed() int {
	if rec.present {
		return rec.offer.Slots
	}
	return 1
}

// extra reports whether a device lists more slots than it needs, and since when they are
// Unhealthy.
func (rec record) extra() (extra bool, since time.Time) {
	since = rec.since
	if rec.present {
		since = rec.lowered
	}
	return rec.listed > rec.needed() || len(rec.kept) > 0, since
}

// shortened returns the record with the slots that it needs, and those that a container
// holds. The holders are known.
func (t *transition) shortened(d *draft, id string, rec record) record {
	var kept []int
	needed := rec.needed()
	for _, h := range t.held[id] {
		listed := h.slot < rec.listed || slices.Contains(rec.kept, h.slot)
		own := h.resource == d.name && !rec.present && h.slot < device.MaxSlots
		if h.slot >= needed && (listed || own) {
			kept = append(kept, h.slot)
		}
	}
	slices.Sort(kept)
	rec.kept = slices.Compact(kept)
	rec.listed = needed
	if len(rec.kept) > 0 && rec.present { // of an absent device, expire asks when it may leave
		t.out.AskHeld = true
	}
	return rec
}

// knows reports whether the holders at a time are known, and otherwise requests a call of Next
// for when they may be.
func (t *transition) knows(at time.Time) bool {
	if t.in.Now.Before(at) {
		t.wake(at)
		return false
	}
	if !t.answered(at) {
		t.out.AskHeld = true
		return false
	}
	return true
}

// answered reports whether the kubelet has named all holders at a time or later.
func (t *transition) answered(at time.Time) bool {
	held := &t.in.Held
	return !held.At.IsZero() && !held.Partial && !held.At.Before(at)
}

// mayLeave reports whether a device may leave the list, and otherwise requests a call of Next
// for when it may.
func (t *transition) mayLeave(due time.Time, id string) bool {
	if !t.knows(due) {
		return false
	}
	if len(t.held[id]) > 0 {
		t.out.AskHeld = true
		return false
	}
	return true
}

// heldElsewhere returns why d can't list a device without a record, empty if it can: a
// container may hold its hardware through another resource, or under an alias.
func (t *transition) heldElsewhere(d *draft, offer device.Offer) string {
	var names []string
	for _, h := range t.held[offer.ID] {
		if h.resource != d.name {
			names = append(names, h.resource)
		}
	}
	if len(names) > 0 {
		return "held by a container through " + slices.Min(names)
	}
	for _, id := range t.in.Aliases[offer.ID] {
		if len(t.held[id]) > 0 {
			return "held by a container as " + id
		}
	}
	if (d.config.AwaitHeld || t.forgot) && !t.answered(t.in.Held.At) {
		return "the kubelet has not reported yet which containers hold it: if this lasts, check the kubelet and its PodResources socket"
	}
	return ""
}
