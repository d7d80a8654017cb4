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
	taken := 0
	for _, rec := range t.records {
		if rec.phase == onlyHeld {
			taken += rec.parts()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.in.Held.Slots)) {
		_, isListed := t.records[id]
		name := t.holder(id)
		if isListed || name == "" || !device.ValidID(id) {
			continue
		}
		rec := record{
			resource: name,
			offer:    device.Offer{ID: id, Slots: 1},
			listed:   t.heldSlots(name, id),
			phase:    onlyHeld,
			since:    t.in.Now,
		}
		taken += rec.parts()
		if taken > maxOrphans || t.taken+rec.parts() > device.MaxParts {
			t.out.HeldUnlisted++
			continue
		}
		t.put(id, rec)
	}
}

// holder returns the first configured resource through which containers hold a device, empty if there is
// none.
func (t *transition) holder(id string) string {
	for _, h := range t.in.Held.Slots[id] {
		config := t.configs[h.Resource]
		if config != nil && config.Refuse == "" && h.Number < device.MaxSlots {
			return h.Resource
		}
	}
	return ""
}

// heldSlots is how many slots of a device are listed for the containers that hold it through a resource: those
// up to the last one that a container holds.
func (t *transition) heldSlots(resource, id string) int {
	slots := 0
	for _, h := range t.in.Held.Slots[id] {
		if h.Resource == resource && h.Number < device.MaxSlots {
			slots = max(slots, h.Number+1)
		}
	}
	return slots
}

// needed is how many slots of a device stay on the list even if no container holds them.
func (rec record) needed() int {
	if rec.phase.isPresent() {
		return rec.offer.Slots
	}
	return 1
}

// unneededSince is when the slots that a device does not need turned Unhealthy.
func (rec record) unneededSince() time.Time {
	if rec.phase.isPresent() {
		return rec.lowered
	}
	return rec.since
}

// shrink returns the record with only the slots that the device needs or that containers hold. The holders
// must be known.
func (t *transition) shrink(id string, rec record) record {
	needed := rec.needed()
	rec.listed = max(needed, t.heldSlots(rec.resource, id))
	if rec.listed > needed && rec.phase.isPresent() {
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
	if len(t.in.Held.Slots[id]) > 0 {
		t.out.AwaitsHolders = true
		return false
	}
	return true
}

// isHeld reports whether a container holds or may hold a device.
func (t *transition) isHeld(id string) bool {
	return t.in.Held.IsUnknown || len(t.in.Held.Slots[id]) > 0
}

// blocked returns why a container holds the hardware of an offer in another way, see Input.Blocked.
func (t *transition) blocked(resource string, offer *device.Offer) string {
	if t.in.Blocked == nil {
		return ""
	}
	reason := t.in.Blocked(resource, offer)
	if reason != "" {
		t.out.AwaitsHolders = true
	}
	return reason
}
