package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// maxOrphans is what devices that only the kubelet knows may take of the budget. A kubelet whose checkpoint comes
// from a backup may name tens of thousands.
const maxOrphans = device.MaxParts / 4

// restoreOrphans adds records for held devices of configured resources that have no record.
// They list the slots that containers hold: a kubelet shows a held device that is missing from
// the list as Healthy.
func (t *transition) restoreOrphans() {
	byName := make(map[string]*draft, len(t.drafts))
	taken := 0
	for _, d := range t.drafts {
		if d.config.Refuse == "" {
			byName[d.name] = d
		}
		for _, rec := range d.records {
			if rec.phase == onlyHeld {
				taken += rec.parts()
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
			phase:  onlyHeld,
		}
		if taken+rec.parts() > maxOrphans {
			t.unlisted = append(t.unlisted, id)
			continue
		}
		taken += rec.parts()
		d.records[id] = rec
		t.owner[id] = d
	}
}

// countUnlisted counts the held devices that are still not listed after all present devices
// were.
func (t *transition) countUnlisted() {
	for _, id := range t.unlisted {
		if t.owner[id] == nil {
			t.out.HeldUnlisted++
		}
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
	if rec.phase.isPresent() {
		return rec.offer.Slots
	}
	return 1
}

// surplus reports whether a device lists more slots than it needs, and since when these slots
// are Unhealthy.
func (rec record) surplus() (surplus bool, since time.Time) {
	since = rec.since
	if rec.phase.isPresent() {
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
		isOrphaned := isOwn && !rec.phase.isPresent() // listed before a loss of the state
		if isListed || isOrphaned {
			kept = append(kept, h.slot)
		}
	}
	slices.Sort(kept)
	rec.kept = slices.Compact(kept)
	rec.listed = needed
	if len(rec.kept) > 0 && rec.phase.isPresent() {
		t.out.AwaitsHolders = true // expire says so for an absent device, when it may leave
	}
	return rec
}

// isDue reports whether a time has come and the holders are known. If it has not come, it requests the
// call of Next at that time.
func (t *transition) isDue(at time.Time) bool {
	if t.in.Now.Before(at) {
		t.wake(at)
		return false
	}
	t.out.AwaitsHolders = t.out.AwaitsHolders || t.in.Held.IsUnknown
	return !t.in.Held.IsUnknown
}

// mayLeave reports whether a device leaves the list: that is due, and no container holds it.
func (t *transition) mayLeave(due time.Time, id string) bool {
	if !t.isDue(due) {
		return false
	}
	if len(t.held[id]) > 0 {
		t.out.AwaitsHolders = true
		return false
	}
	return true
}

// isHeld reports whether a container holds or may hold a device.
func (t *transition) isHeld(id string) bool {
	return t.in.Held.IsUnknown || len(t.held[id]) > 0
}

// blocked returns why a container holds the hardware of an offer in another way, see Input.Blocked.
func (t *transition) blocked(d *draft, offer *device.Offer) string {
	if t.in.Blocked == nil {
		return ""
	}
	reason := t.in.Blocked(d.name, offer)
	if reason != "" {
		t.out.AwaitsHolders = true
	}
	return reason
}
