package ledger

import (
	"cmp"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// dropAfter is how long a slot is Unhealthy at least before it leaves a list that has no
	// room. The kubelet panics if a device left the list when its Allocate call returns;
	// a call for a healthy device is answered within a second.
	dropAfter = 5 * time.Second
	// askForRoom is how often the holders are queried while a device waits for room.
	askForRoom = time.Second
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
	// full is set if memory exceeds the budget, fullLists for each list that does.
	full      bool
	fullLists map[*draft]bool
}

// add adds a record of d to the lists, for a sign of 1, or removes it, for -1. A resource
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

// short reports whether something must leave the list of d. If so an eighth of the budget
// becomes free: in a storm of new devices not each one causes that.
func (r *room) short(d *draft) bool {
	return r.full && r.memory > device.MaxMemory/8*7 || r.fullLists[d] && r.lists[d] > device.MaxList/8*7
}

// measure returns how much the lists take.
func (t *transition) measure() *room {
	r := &room{lists: make(map[*draft]int), fullLists: make(map[*draft]bool)}
	for _, d := range t.drafts {
		others := 0
		for _, rec := range d.records {
			r.add(d, rec, 1, others)
			others++
		}
		r.fullLists[d] = r.lists[d] > device.MaxList
	}
	r.full = r.memory > device.MaxMemory
	return r
}

// exceeded reports whether any limit is exceeded.
func (r *room) exceeded() bool {
	for d := range r.fullLists {
		if !r.fits(d) {
			return true
		}
	}
	return false
}

// fit keeps all lists within the budget. Until they are, these leave, the longest absent
// first:
//
//  1. slots of absent devices, but for one, and slots beyond a lowered count
//  2. absent devices
//  3. devices that only the kubelet knows
//
// Of 1 and 2 only what has been Unhealthy for dropAfter and no container holds, as the
// kubelet has said since then. If that is not enough, new devices and slots wait: a listed
// device never leaves for them.
func (t *transition) fit() {
	r := t.measure()
	if !r.exceeded() {
		t.forgetWaits(nil)
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
	t.forgetWaits(waiting)
}

// victim is a listed device with slots that may leave.
type victim struct {
	d     *draft
	id    string
	since time.Time
}

// absentFirst returns the devices that list more than present slots, the longest absent
// first.
func (t *transition) absentFirst() []victim {
	var all []victim
	for _, d := range t.drafts {
		for id, rec := range d.records {
			extra, since := rec.extra()
			if extra || !rec.present {
				all = append(all, victim{d, id, since})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a := all[i]
		b := all[j]
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id)) < 0
	})
	return all
}

// blocked is what has to be known before more may leave the lists.
type blocked struct {
	t    *transition
	due  time.Time // when the next slots may leave
	asks time.Time // the holders at that time are unknown
}

// free reports whether the holders of what is Unhealthy since a time are known well enough.
func (b *blocked) free(since time.Time) bool {
	due := since.Add(dropAfter)
	if b.t.in.Now.Before(due) {
		if b.due.IsZero() || due.Before(b.due) {
			b.due = due
		}
		return false
	}
	if !b.t.answered(due) {
		if due.After(b.asks) {
			b.asks = due
		}
		return false
	}
	return true
}

// request requests a call of Next for when more may leave.
func (b *blocked) request() {
	t := b.t
	t.out.AskHeld = true
	if !b.due.IsZero() {
		t.wake(b.due)
	}
	if b.asks.IsZero() {
		return
	}
	next := t.in.Held.At.Add(askForRoom)
	if t.in.Now.Before(next) {
		t.wake(next)
		return
	}
	if b.asks.After(t.out.AskSince) {
		t.out.AskSince = b.asks
	}
}

// dropSlots drops the slots that a device does not need and no container holds.
func (t *transition) dropSlots(r *room, v victim, b *blocked) {
	rec := v.d.records[v.id]
	if extra, _ := rec.extra(); !extra || rec.orphan || !r.short(v.d) || !b.free(v.since) {
		return
	}
	r.add(v.d, rec, -1, 1)
	before := rec.listed + len(rec.kept)
	rec = t.shortened(v.d, v.id, rec)
	t.out.Dropped += max(0, before-rec.listed-len(rec.kept))
	v.d.records[v.id] = rec
	r.add(v.d, rec, 1, 1)
}

// dropDevice drops an absent device that no container holds.
func (t *transition) dropDevice(r *room, v victim, b *blocked) {
	rec := v.d.records[v.id]
	if rec.present || len(t.held[v.id]) > 0 || !r.short(v.d) || !b.free(v.since) {
		return
	}
	t.drop(r, v)
}

// dropOrphan drops a device that only the kubelet knows. It was never healthy, so that no
// Allocate call is in flight, and while its holder is known it is not offered elsewhere, see
// heldElsewhere.
func (t *transition) dropOrphan(r *room, v victim) {
	rec, listed := v.d.records[v.id]
	if !listed || !rec.orphan || !r.short(v.d) {
		return
	}
	t.forgot = true
	t.unlisted = append(t.unlisted, v.id)
	t.drop(r, v)
}

func (t *transition) drop(r *room, v victim) {
	rec := v.d.records[v.id]
	r.add(v.d, rec, -1, len(v.d.records)-1)
	if _, listed := v.d.before[v.id]; listed {
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
	since time.Time // it waits since then
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
			if !rec.present || known && rec.offer.Slots <= before.listed {
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
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.id, b.id)) < 0
	})
	var waiting []newcomer
	for _, n := range all {
		if !t.admitOne(r, n) {
			waiting = append(waiting, n)
		}
	}
	return waiting
}

// withhold lists a newcomer as before, with its former number of slots or not at all.
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

// forgetWaits remembers since when the waiting newcomers wait, and of no others.
func (t *transition) forgetWaits(waiting []newcomer) {
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
