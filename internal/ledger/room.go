package ledger

import (
	"cmp"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

const (
	// maxAbsentParts is what absent devices and retired slots may take of the budget. Present devices may take half
	// (device.MaxOffered), and devices that only the kubelet knows a quarter.
	maxAbsentParts = device.MaxParts / 4
	// dropAfter is the minimum time that a slot is Unhealthy before it leaves a list that has
	// no room. The kubelet panics if a device has left the list when its Allocate call
	// returns; a call for a healthy device is answered within a second.
	dropAfter = 5 * time.Second
	// reasonNoRoom is why a present device is not listed.
	reasonNoRoom = "no room in the lists: absent devices take it, which leave when no container holds them"
)

// parts returns what a record takes of the budget.
func (rec record) parts() int {
	return rec.offer.Parts() + rec.offer.SlotParts(rec.listed-rec.offer.Slots)
}

// makeRoom removes absent devices and retired slots that take more than their part of the lists, those first
// that have been absent the longest. They stay if they have been Unhealthy for less than dropAfter, or if a
// container holds or may hold them.
func (t *transition) makeRoom() {
	absent := 0
	for _, d := range t.drafts {
		t.taken += device.ResourceParts
		for _, rec := range d.records {
			t.taken += rec.parts()
			absent += rec.spare()
		}
	}
	for _, v := range t.absentFirst() {
		canLeave := !t.in.Held.IsUnknown && !t.in.Now.Before(v.since.Add(dropAfter))
		if !canLeave || absent <= maxAbsentParts {
			continue
		}
		freed := t.drop(v)
		t.taken -= freed
		absent -= freed
	}
}

// spare returns what a record takes for an absent device, or for slots that it does not need.
func (rec record) spare() int {
	if !rec.phase.isPresent() {
		return rec.parts()
	}
	return rec.offer.SlotParts(rec.listed - rec.needed())
}

// spare is a listed device that may leave its list, or some of its slots.
type spare struct {
	d     *draft
	id    string
	since time.Time
}

// absentFirst returns the absent devices and the devices with a surplus of slots, the longest
// absent first. A device is left out that was not awaited yet.
func (t *transition) absentFirst() []spare {
	var all []spare
	for _, d := range t.drafts {
		for id, rec := range d.records {
			since := rec.unneededSince()
			mayLeave := !since.IsZero()
			if rec.phase.isPresent() {
				mayLeave = rec.listed > rec.needed()
			}
			if mayLeave {
				all = append(all, spare{d, id, since})
			}
		}
	}
	order.Sort(all, func(a, b spare) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id))
	})
	return all
}

// drop removes an absent device from its list, or the slots of a device that it does not need and no
// container holds. It returns what that frees.
func (t *transition) drop(v spare) (freed int) {
	rec := v.d.records[v.id]
	if !rec.phase.isPresent() && len(t.held[v.id]) == 0 {
		delete(v.d.records, v.id)
		delete(t.owner, v.id)
		t.out.Dropped += rec.listed
		return rec.parts()
	}
	left := t.shrink(v.d, v.id, rec)
	v.d.records[v.id] = left
	t.out.Dropped += rec.listed - left.listed
	return rec.parts() - left.parts()
}

// slotsInRoom returns how many slots of an offer are listed now: all of them, or those that are listed
// already if there is no room for more. It is 0 if a new device must wait.
func (t *transition) slotsInRoom(d *draft, offer *device.Offer) int {
	rec, isListed := d.records[offer.ID]
	next := rec
	next.offer = *offer
	next.offer.Slots = max(1, offer.Slots)
	next.listed = max(rec.listed, next.offer.Slots)
	grown := next.parts()
	if isListed {
		grown -= rec.parts()
	}
	t.taken += grown
	if next.listed == rec.listed || t.taken <= device.MaxParts {
		return next.offer.Slots
	}
	t.taken -= grown
	t.out.WithoutRoom++
	d.waiting = append(d.waiting, Waiting{ID: offer.ID, Reason: reasonNoRoom})
	return rec.listed
}

// awaitRoom requests the next call of Next in which more slots may leave, if devices wait for room.
func (t *transition) awaitRoom() {
	if t.out.WithoutRoom == 0 {
		return
	}
	t.out.AwaitsHolders = true
	for _, v := range t.absentFirst() {
		due := v.since.Add(dropAfter)
		if due.After(t.in.Now) {
			t.wake(due)
		}
	}
}
