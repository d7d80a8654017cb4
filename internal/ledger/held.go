package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxOrphans and maxOrphanList limit the devices that only the kubelet knows, to a part of
	// the memory of all lists and a part of the list of one resource. A kubelet whose
	// checkpoint comes from a backup may name tens of thousands.
	maxOrphans    = device.MaxMemory / 4
	maxOrphanList = device.MaxList / 4
)

// restoreOrphans adds records for held devices of configured resources that have no record.
// They list the slots that containers hold: a kubelet shows a held device that is missing from
// the list as Healthy.
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
			kept:   slotsFrom(held, 1),
			orphan: true,
		}
		exceedsMemory := memory+rec.memory() > maxOrphans
		exceedsList := sizes[d]+rec.listSize() > maxOrphanList
		if exceedsMemory || exceedsList {
			t.unlisted = append(t.unlisted, id)
			continue
		}
		memory += rec.memory()
		sizes[d] += rec.listSize()
		d.records[id] = rec
		t.owner[id] = d
	}
}

// countUnlisted counts the held devices that are still not listed after all present devices
// were. Once the kubelet has named all holders, it is known which devices were left out.
func (t *transition) countUnlisted() {
	for _, id := range t.unlisted {
		if t.owner[id] == nil {
			t.out.HeldUnlisted++
		}
	}
	if t.holdersKnown(t.in.Held.At) {
		t.forgot = t.out.HeldUnlisted > 0
	}
}

// holder returns the first configured resource through which containers hold a device, and the
// slots that they hold. It returns nil if there is none.
func (t *transition) holder(byName map[string]*draft, id string) (*draft, []int) {
	var d *draft
	for _, h := range t.held[id] {
		if d == nil && h.slot < device.MaxSlots {
			d = byName[h.resource]
		}
	}
	if d == nil {
		return nil, nil
	}
	var held []int
	for _, h := range t.held[id] {
		if h.resource == d.name && h.slot < device.MaxSlots {
			held = append(held, h.slot)
		}
	}
	slices.Sort(held)
	return d, slices.Compact(held)
}

// slotsFrom returns the part of sorted slots that begins with slot first.
func slotsFrom(slots []int, first int) []int {
	i, _ := slices.BinarySearch(slots, first)
	if i == len(slots) {
		return nil
	}
	return slots[i:]
}

// needed is how many slots of a device stay on the list, from slot 0 on, even if no container
// holds them.
func (rec record) needed() int {
	if rec.present {
		return rec.offer.Slots
	}
	return 1
}

// surplus reports whether a device lists more slots than it needs, and since when these slots
// are Unhealthy.
func (rec record) surplus() (surplus bool, since time.Time) {
	since = rec.since
	if rec.present {
		since = rec.lowered
	}
	surplus = rec.listed > rec.needed() || len(rec.kept) > 0
	return surplus, since
}

// shrunk returns the record with only the slots that it needs and the slots that a container
// holds. The holders must be known.
func (t *transition) shrunk(d *draft, id string, rec record) record {
	var kept []int
	needed := rec.needed()
	for _, h := range t.held[id] {
		if h.slot < needed {
			continue
		}
		isListed := h.slot < rec.listed || slices.Contains(rec.kept, h.slot)
		isOwn := h.resource == d.name && h.slot < device.MaxSlots
		isOrphaned := isOwn && !rec.present // listed before a loss of the state
		if isListed || isOrphaned {
			kept = append(kept, h.slot)
		}
	}
	slices.Sort(kept)
	rec.kept = slices.Compact(kept)
	rec.listed = needed
	if len(rec.kept) > 0 && rec.present {
		t.out.AskHeld = true // expire asks for an absent device, when it may leave
	}
	return rec
}

// awaitHolders reports whether the holders at a time are known. If they are not, it requests
// the call of Next that may know them.
func (t *transition) awaitHolders(at time.Time) bool {
	if t.in.Now.Before(at) {
		t.wake(at)
		return false
	}
	if !t.holdersKnown(at) {
		t.out.AskHeld = true
		return false
	}
	return true
}

// holdersKnown reports whether the kubelet has named all holders at a time or later.
func (t *transition) holdersKnown(at time.Time) bool {
	held := &t.in.Held
	isComplete := !held.At.IsZero() && !held.Partial
	return isComplete && !held.At.Before(at)
}

// mayLeave reports whether a device that is due to leave the list may do so, because no
// container holds it. If it may not, it requests the call of Next that may allow it.
func (t *transition) mayLeave(due time.Time, id string) bool {
	if !t.awaitHolders(due) {
		return false
	}
	if len(t.held[id]) > 0 {
		t.out.AskHeld = true
		return false
	}
	return true
}

// heldElsewhere returns why d cannot list a device without a record, or the empty string if it
// can. A container may hold the hardware through another resource or under an alias: listing
// the device would allocate the hardware a second time.
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
	mayBeHeld := d.config.AwaitHeld || t.forgot
	if mayBeHeld && !t.holdersKnown(t.in.Held.At) {
		return "the kubelet has not reported yet which containers hold it: if this lasts, check the kubelet and its PodResources socket"
	}
	return ""
}
