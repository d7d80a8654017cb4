package ledger

import (
	"cmp"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxAbsentMemory and maxAbsentList are what absent devices and retired slots may take of the memory of all
	// lists, and of one list. Present devices may take half (device.MaxOffered), and devices that only the
	// kubelet knows a quarter.
	maxAbsentMemory = device.MaxMemory / 4
	maxAbsentList   = device.MaxList / 4
	// dropAfter is the minimum time that a slot is Unhealthy before it leaves a list that has
	// no room. The kubelet panics if a device has left the list when its Allocate call
	// returns; a call for a healthy device is answered within a second.
	dropAfter = 5 * time.Second
	// reasonNoRoom is why a present device is not listed.
	reasonNoRoom = "no room in the lists: absent devices take it, which leave when no container holds them"
)

// size is what listed devices take: memory in bytes, and bytes of the kubelet's list.
type size struct{ memory, list int }

// size returns an upper bound for what a record takes.
func (rec record) size() size {
	listed := rec.listed + len(rec.kept)
	slot := device.ListedSize(rec.offer.ID, rec.offer.NUMA)
	return size{
		memory: rec.offer.Memory() + device.PartMemory*(listed-rec.offer.Slots),
		list:   slot + (listed-1)*(slot+device.MaxSlotID-device.MaxID),
	}
}

func (s size) minus(other size) size {
	return size{
		memory: s.memory - other.memory,
		list:   s.list - other.list,
	}
}

// room is how much of the budget is taken.
type room struct {
	memory int
	lists  map[*draft]int
}

func (r *room) add(d *draft, s size) {
	if r.lists == nil {
		r.lists = make(map[*draft]int)
	}
	r.memory += s.memory
	r.lists[d] += s.list
}

// exceeds reports whether all lists together, or the list of d, take more than this.
func (r *room) exceeds(memory, list int, d *draft) bool {
	return r.memory > memory || r.lists[d] > list
}

// makeRoom removes absent devices and retired slots that take more than their part of the lists, those first
// that have been absent the longest. They stay if they have been Unhealthy for less than dropAfter, or if a
// container holds or may hold them.
func (t *transition) makeRoom() {
	var absent room
	for _, d := range t.drafts {
		t.room.add(d, size{memory: device.ResourceMemory})
		for _, rec := range d.records {
			t.room.add(d, rec.size())
			absent.add(d, rec.spare())
		}
	}
	for _, v := range t.absentFirst() {
		canLeave := !t.in.Held.IsUnknown && !t.in.Now.Before(v.since.Add(dropAfter))
		if !canLeave || !absent.exceeds(maxAbsentMemory, maxAbsentList, v.d) {
			continue
		}
		freed := t.drop(v)
		t.room.add(v.d, size{}.minus(freed))
		absent.add(v.d, size{}.minus(freed))
	}
}

// spare returns what a record takes for an absent device, or for slots that it does not need.
func (rec record) spare() size {
	if !rec.phase.isPresent() {
		return rec.size()
	}
	needed := rec
	needed.listed = rec.needed()
	needed.kept = nil
	return rec.size().minus(needed.size())
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
			surplus, since := rec.surplus()
			mayLeave := !since.IsZero()
			if rec.phase.isPresent() {
				mayLeave = surplus
			}
			if mayLeave {
				all = append(all, spare{d, id, since})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a := all[i]
		b := all[j]
		order := cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id))
		return order < 0
	})
	return all
}

// drop removes an absent device from its list, or the slots of a device that it does not need and no
// container holds. It returns what that frees.
func (t *transition) drop(v spare) (freed size) {
	rec := v.d.records[v.id]
	if !rec.phase.isPresent() && len(t.held[v.id]) == 0 {
		delete(v.d.records, v.id)
		delete(t.owner, v.id)
		t.out.Dropped += rec.listed + len(rec.kept)
		return rec.size()
	}
	left := t.shrunk(v.d, v.id, rec)
	v.d.records[v.id] = left
	t.out.Dropped += rec.listed + len(rec.kept) - left.listed - len(left.kept)
	return rec.size().minus(left.size())
}

// slotsInRoom returns how many slots of an offer are listed now: all of them, or those that are listed
// already if there is no room for more. It is 0 if a new device must wait.
func (t *transition) slotsInRoom(d *draft, offer *device.Offer) int {
	rec, isListed := d.records[offer.ID]
	next := rec
	next.offer = *offer
	next.offer.Slots = max(1, offer.Slots)
	next.listed = max(rec.listed, next.offer.Slots)
	grown := next.size()
	if isListed {
		grown = grown.minus(rec.size())
	}
	t.room.add(d, grown)
	isShort := t.room.exceeds(device.MaxMemory, device.MaxList, d)
	if next.listed == rec.listed || !isShort {
		return next.offer.Slots
	}
	t.room.add(d, size{}.minus(grown))
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
