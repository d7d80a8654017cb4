package ledger

import (
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxAbsentParts is what absent devices and retired slots may take of the budget. Present devices may take half
	// (device.MaxOffered), and devices that only the kubelet knows a quarter.
	maxAbsentParts = device.MaxParts / 4
	// dropAfter replaces leaveAfter while absent devices take more than that. The kubelet panics if a device has left the list when its Allocate call
	// returns; a call for a healthy device is answered within a second.
	dropAfter = 5 * time.Second
	// reasonNoRoom is why a present device is not listed.
	reasonNoRoom = "no room in the lists: absent devices take it, which leave when no container holds them"
)

// parts returns what a record takes of the budget.
func (rec record) parts() int {
	return rec.offer.Parts() + rec.offer.SlotParts(rec.listed-rec.offer.Slots)
}

// spare returns what a record takes for an absent device, or for slots that it does not need.
func (rec record) spare() int {
	if !rec.phase.isPresent() {
		return rec.parts()
	}
	return rec.offer.SlotParts(rec.listed - rec.needed())
}

// measure adds up what the lists take of the budget.
func (t *transition) measure() {
	t.taken = 0
	for _, d := range t.drafts {
		t.taken += device.ResourceParts
		for _, rec := range d.records {
			t.taken += rec.parts()
		}
	}
}

// absentParts is what absent devices and retired slots take of the budget.
func (t *transition) absentParts() int {
	absent := 0
	for _, d := range t.drafts {
		for _, rec := range d.records {
			absent += rec.spare()
		}
	}
	return absent
}

// leaveAfter is the minimum time that a slot is Unhealthy before it leaves its list.
func (t *transition) leaveAfter() time.Duration {
	if t.isFull {
		return dropAfter
	}
	return leaveAfter
}

// countDropped counts slots that left their list because the lists have no room.
func (t *transition) countDropped(slots int) {
	if t.isFull {
		t.out.Dropped += slots
	}
}

// slotsInRoom returns how many slots of an offer are listed now: all of them, or those that are listed
// already if there is no room for more. It is 0 if a new device must wait.
func (t *transition) slotsInRoom(d *draft, offer *device.Offer) (slots int, hasRoom bool) {
	rec, isListed := d.records[offer.ID]
	next := rec
	next.offer = *offer
	next.offer.Slots = max(1, offer.Slots)
	next.listed = max(rec.listed, next.offer.Slots)
	grown := next.parts()
	if isListed {
		grown -= rec.parts()
	}
	hasRoom = next.listed == rec.listed || t.taken+grown <= device.MaxParts
	if !hasRoom {
		return rec.listed, false
	}
	t.taken += grown
	return next.offer.Slots, true
}
