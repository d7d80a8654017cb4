package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// leave drops what may go.
func (r *round) leave() {
	for _, w := range r.works {
		for id, rec := range w.records {
			if !rec.since.IsZero() {
				after := leaveAfter
				if w.config.Refuse == "" && r.moved[id] == "" {
					after = max(after, w.config.ForgetAfter)
				}
				if r.mayLeave(rec.since.Add(after), id, -1) {
					delete(w.records, id)
					delete(r.owner, id)
					continue
				}
			}
			var kept []retiredSlot
			for _, s := range rec.retired {
				if !r.mayLeave(s.since.Add(leaveAfter), id, s.slot) {
					kept = append(kept, s)
				}
			}
			rec.retired = kept
			w.records[id] = rec
			if rec.net.away() {
				r.out.AskHeld = true // nothing else tells that a virtual interface ended with its pod
			}
		}
	}
}

// mayLeave reports whether a slot, or the whole device for slot -1, may leave
// the list, and sees to it that Next is called when it might.
func (r *round) mayLeave(due time.Time, id string, slot int) bool {
	if r.in.Now.Before(due) {
		r.wake(due)
		return false
	}
	held := r.in.Held.At.IsZero() || r.in.Held.Partial || r.in.Held.At.Before(due)
	for _, h := range r.held[id] {
		held = held || slot < 0 || h.slot == slot
	}
	if held {
		r.out.AskHeld = true
	}
	return !held
}

// adopt lists what waited and is free now.
func (r *round) adopt() {
	for _, w := range r.works {
		for _, offer := range w.waiting {
			by := r.blockedBy(w, offer.ID)
			if by == "" {
				r.take(w, offer)
				continue
			}
			if r.owner[offer.ID] == nil {
				r.out.AskHeld = true
			}
			w.blocked = append(w.blocked, Waiting{ID: offer.ID, By: by})
		}
		slices.SortFunc(w.blocked, func(a, b Waiting) int { return device.CompareNatural(a.ID, b.ID) })
	}
}

// blockedBy returns the name of the resource for which w can't list a device
// yet, empty where it can.
func (r *round) blockedBy(w *work, id string) string {
	switch owner := r.owner[id]; owner {
	case w:
		return ""
	case nil:
		// What the state does not know of may still be held through the name
		// that it had before.
		var names []string
		for _, h := range r.held[id] {
			if h.resource != w.name {
				names = append(names, h.resource)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return slices.Min(names)
	default:
		return owner.name
	}
}

// absent returns the record of a device that is not matched.
func (rec record) absent(now time.Time) record {
	if rec.since.IsZero() {
		rec.since = now
	}
	rec.present, rec.settled, rec.nodes = false, false, nil
	rec.offer = device.Offer{ID: rec.offer.ID, Slots: rec.offer.Slots, NUMA: rec.offer.NUMA}
	return rec
}

// retire returns which slots are listed beyond count, when there were before
// slots up to now.
func retire(retired []retiredSlot, before, count int, now time.Time) []retiredSlot {
	var kept []retiredSlot
	for slot := count; slot < before; slot++ {
		kept = append(kept, retiredSlot{slot, now})
	}
	for _, s := range retired {
		if s.slot >= count {
			kept = append(kept, s)
		}
	}
	return kept
}
