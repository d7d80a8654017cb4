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

// absentParts is what absent devices and retired slots take of the budget.
func (t *transition) absentParts() int {
	absent := 0
	for _, rec := range t.records {
		absent += rec.spare()
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

// hasRoomFor reports whether there is room for all slots of an offer. rec is the record of the device, the zero
// record if it is not listed.
func (t *transition) hasRoomFor(rec record, offer device.Offer) bool {
	next := rec
	next.offer = offer
	next.listed = max(rec.listed, offer.Slots)
	grown := next.parts()
	if rec.listed > 0 {
		grown -= rec.parts()
	}
	return next.listed == rec.listed || t.taken+grown <= device.MaxParts
}
