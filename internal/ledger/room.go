package ledger

import (
	"cmp"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// dropAfter is the minimum time that a slot is Unhealthy before it leaves a list that has
	// no room. The kubelet panics if a device has left the list when its Allocate call
	// returns; a call for a healthy device is answered within a second.
	dropAfter = 5 * time.Second
	// reasonNoRoom is why a present device is not listed.
	reasonNoRoom = "no room in the lists: absent devices take it that containers hold, or may hold; it is listed when they leave"
)

// memory returns the memory of a record with its listed slots in bytes.
func (rec record) memory() int {
	unlisted := rec.offer.Slots - rec.listed - len(rec.kept)
	return rec.offer.Memory() - device.PartMemory*unlisted
}

// listSize returns an upper bound for the size of the slots in the kubelet's list.
func (rec record) listSize() int {
	slot := device.ListedSize(rec.offer.ID, rec.offer.NUMA)
	others := rec.listed + len(rec.kept) - 1
	return slot + others*(slot+device.MaxSlotID-device.MaxID)
}

// room is how much of the budget the lists take.
type room struct {
	memory int
	lists  map[*draft]int
	// full is set if the memory exceeded the budget when it was measured, and overLists for
	// each list that exceeded its budget.
	full      bool
	overLists map[*draft]bool
}

// add adds a record of d to the lists if sign is 1, and removes it if sign is -1. A resource
// takes memory while it has records: others is how many it has besides this one.
func (r *room) add(d *draft, rec record, sign, others int) {
	r.memory += sign * rec.memory()
	r.lists[d] += sign * rec.listSize()
	if others == 0 {
		r.memory += sign * device.ResourceMemory
	}
}

// fits reports whether the list of d, and all lists together, are within the budget.
func (r *room) fits(d *draft) bool {
	return r.memory <= device.MaxMemory && r.lists[d] <= device.MaxList
}

// mustFree reports whether something must leave the list of d. An exceeded budget is reduced to seven
// eighths, so that not every device in a storm of new devices must free room again.
func (r *room) mustFree(d *draft) bool {
	exceedsMemory := r.full && r.memory > device.MaxMemory/8*7
	exceedsList := r.overLists[d] && r.lists[d] > device.MaxList/8*7
	return exceedsMemory || exceedsList
}

// measure returns the sizes of the lists.
func (t *transition) measure() *room {
	r := &room{
		lists:     make(map[*draft]int),
		overLists: make(map[*draft]bool),
	}
	for _, d := range t.drafts {
		others := 0
		for _, rec := range d.records {
			r.add(d, rec, 1, others)
			others++
		}
		r.overLists[d] = r.lists[d] > device.MaxList
	}
	r.full = r.memory > device.MaxMemory
	return r
}

// exceeded reports whether any limit is exceeded.
func (r *room) exceeded() bool {
	for d := range r.overLists {
		if !r.fits(d) {
			return true
		}
	}
	return false
}

// fit keeps all lists within the budget. It removes the following, beginning with the longest absent, until
// all lists fit:
//
//  1. slots of absent devices except one, and slots beyond a lowered count
//  2. absent devices
//  3. devices that only the kubelet knows
//
// Steps 1 and 2 only remove devices and slots that have been Unhealthy for dropAfter and that no container
// holds, according to a later query. If that is not enough, new devices and slots wait, because a
// present device never leaves the list for them.
func (t *transition) fit() {
	r := t.measure()
	if !r.exceeded() {
		t.rememberWaits(nil)
		return
	}
	blocked := &blocked{t: t}
	absent := t.absentFirst()
	for _, v := range absent {
		t.dropSlots(r, v, blocked)
	}
	for _, v := range absent {
		t.dropDevice(r, v, blocked)
	}
	for _, v := range absent {
		t.dropOrphan(r, v)
	}
	waiting := t.admit(r)
	if len(waiting) > 0 {
		blocked.request()
	}
	t.rememberWaits(waiting)
}

// victim is a listed device that may leave its list, or some of its slots.
type victim struct {
	d     *draft
	id    string
	since time.Time
}

// absentFirst returns the absent devices and the devices with a surplus of slots, the longest
// absent first.
func (t *transition) absentFirst() []victim {
	var all []victim
	for _, d := range t.drafts {
		for id, rec := range d.records {
			surplus, since := rec.surplus()
			if surplus || !rec.present {
				all = append(all, victim{d, id, since})
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

// blocked collects why slots could not leave the lists although the lists have no room.
type blocked struct {
	t *transition
	// due is when the next slots have been Unhealthy for long enough.
	due time.Time
}

// allows reports whether slots that are Unhealthy since a time may leave, if no container holds
// them.
func (b *blocked) allows(since time.Time) bool {
	due := since.Add(dropAfter)
	if b.t.in.Now.Before(due) {
		if b.due.IsZero() || due.Before(b.due) {
			b.due = due
		}
		return false
	}
	return !b.t.in.Held.IsUnknown
}

// request requests the next call of Next in which more slots may leave.
func (b *blocked) request() {
	b.t.out.AwaitsHolders = true
	if !b.due.IsZero() {
		b.t.wake(b.due)
	}
}

// dropSlots drops the slots that a device does not need and no container holds.
func (t *transition) dropSlots(r *room, v victim, b *blocked) {
	rec := v.d.records[v.id]
	surplus, _ := rec.surplus()
	if !surplus || rec.orphan {
		return
	}
	if !r.mustFree(v.d) || !b.allows(v.since) {
		return
	}
	r.add(v.d, rec, -1, 1)
	before := rec.listed + len(rec.kept)
	rec = t.shrunk(v.d, v.id, rec)
	t.out.Dropped += max(0, before-rec.listed-len(rec.kept))
	v.d.records[v.id] = rec
	r.add(v.d, rec, 1, 1)
}

// dropDevice drops an absent device that no container holds.
func (t *transition) dropDevice(r *room, v victim, b *blocked) {
	rec := v.d.records[v.id]
	isHeld := len(t.held[v.id]) > 0
	if rec.present || isHeld {
		return
	}
	if !r.mustFree(v.d) || !b.allows(v.since) {
		return
	}
	t.drop(r, v)
}

// dropOrphan drops a device that only the kubelet knows. It was never healthy, so that no
// Allocate call is in flight, and while it is held it is not offered elsewhere.
func (t *transition) dropOrphan(r *room, v victim) {
	rec, isListed := v.d.records[v.id]
	isOrphan := isListed && rec.orphan
	if !isOrphan || !r.mustFree(v.d) {
		return
	}
	t.unlisted = append(t.unlisted, v.id)
	t.drop(r, v)
}

// drop removes a device from its list.
func (t *transition) drop(r *room, v victim) {
	rec := v.d.records[v.id]
	r.add(v.d, rec, -1, len(v.d.records)-1)
	_, wasListed := v.d.before[v.id]
	if wasListed {
		t.out.Dropped += rec.listed + len(rec.kept)
	}
	delete(v.d.records, v.id)
	delete(t.owner, v.id)
}

// newcomer is a device that was not listed before, or not with all slots.
type newcomer struct {
	d     *draft
	id    string
	rec   record
	since time.Time // when it began to wait
}

// admit lists the newcomers that fit, the longest waiting first, and returns the others.
func (t *transition) admit(r *room) []newcomer {
	if !r.exceeded() {
		return nil
	}
	var all []newcomer
	for _, d := range t.drafts {
		for id, rec := range d.records {
			before, known := d.before[id]
			hadAllSlots := known && rec.offer.Slots <= before.listed
			if !rec.present || hadAllSlots {
				continue
			}
			since, waits := d.waits[id]
			if !waits {
				since = t.in.Now
			}
			all = append(all, newcomer{d, id, rec, since})
			t.withhold(r, d, id, before, known)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a := all[i]
		b := all[j]
		order := cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id))
		return order < 0
	})
	var waiting []newcomer
	for _, n := range all {
		if !t.admitOne(r, n) {
			waiting = append(waiting, n)
		}
	}
	return waiting
}

// withhold lists a newcomer as in the last state: with its previous number of slots, or not at
// all.
func (t *transition) withhold(r *room, d *draft, id string, before record, known bool) {
	rec := d.records[id]
	if !known {
		r.add(d, rec, -1, len(d.records)-1)
		delete(d.records, id)
		delete(t.owner, id)
		return
	}
	r.add(d, rec, -1, 1)
	rec.offer.Slots = max(1, before.listed)
	rec.listed = rec.offer.Slots
	rec.kept = before.kept
	d.records[id] = rec
	r.add(d, rec, 1, 1)
}

// admitOne lists a newcomer if it fits.
func (t *transition) admitOne(r *room, n newcomer) bool {
	d := n.d
	listed, known := d.records[n.id]
	others := len(d.records)
	if known {
		r.add(d, listed, -1, 1)
	}
	r.add(d, n.rec, 1, others)
	if r.fits(d) {
		d.records[n.id] = n.rec
		t.owner[n.id] = d
		return true
	}
	r.add(d, n.rec, -1, others)
	if known {
		r.add(d, listed, 1, 1)
	}
	d.waiting = append(d.waiting, Waiting{ID: n.id, Reason: reasonNoRoom, NoRoom: true})
	return false
}

// rememberWaits remembers since when these newcomers wait, and forgets all others.
func (t *transition) rememberWaits(waiting []newcomer) {
	for _, d := range t.drafts {
		d.waits = nil
	}
	for _, n := range waiting {
		if n.d.waits == nil {
			n.d.waits = make(map[string]time.Time)
		}
		n.d.waits[n.id] = n.since
	}
}
