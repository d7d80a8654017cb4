package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// finish returns the state and the output.
func (t *transition) finish() (State, Output) {
	next := State{started: true, forgot: t.forgot}
	for _, d := range t.drafts {
		refused := d.config.Refuse != ""
		if len(d.records) == 0 && (refused || d.config.Derived && len(d.waiting) == 0) {
			t.out.Changes = append(t.out.Changes, changes(d.name, d.last, nil)...)
			continue // the resource ends
		}
		d.registered = d.registered || !refused && len(d.records) > 0
		entries := t.entries(d)
		t.out.Changes = append(t.out.Changes, changes(d.name, d.last, entries)...)
		t.out.Resources = append(t.out.Resources, ListedResource{
			Name:     d.name,
			Devices:  slices.Clone(entries), // the caller may add its own health of a device
			Complete: t.complete(d),
			Register: d.registered,
			Waiting:  d.waiting,
		})
		d.last = entries
		next.resources = append(next.resources, d.resource)
	}
	return next, t.out
}

// complete reports whether d has all its remembered devices.
func (t *transition) complete(d *draft) bool {
	complete := true
	deadline := t.in.Start.Add(completeAfter)
	awaited := d.config.Refuse == "" && t.in.Now.Before(deadline)
	for id, rec := range d.records {
		rec.pending = rec.pending && awaited && !(rec.present && rec.settled) && t.nextOwner[id] == ""
		d.records[id] = rec
		complete = complete && !rec.pending
	}
	if !complete {
		t.wake(deadline)
	}
	return complete
}

func (t *transition) entries(d *draft) []Entry {
	entries := make([]Entry, 0, len(d.records))
	for _, id := range slices.SortedFunc(maps.Keys(d.records), device.CompareNatural) {
		rec := d.records[id]
		e := Entry{
			Offer:    rec.offer,
			Present:  rec.present,
			Unseen:   !rec.present && rec.net.away(),
			Retired:  max(0, rec.listed-rec.offer.Slots),
			Unlisted: max(0, rec.offer.Slots-rec.listed),
			Kept:     rec.kept,
		}
		switch {
		case !rec.present && t.nextOwner[id] != "":
			e.Reason = reasonTakenOver + t.nextOwner[id]
			e.Sound = t.in.Failing[id] == ""
		case !rec.present && t.renamed[id] != "":
			next := t.renamed[id]
			e.Reason = reasonRenamed + next
			e.Sound = t.in.Failing[next] == ""
		case d.config.Refuse != "":
			e.Reason = d.config.Refuse
		case !rec.present && rec.unread:
			e.Reason = ReasonUnread
		case !rec.present:
			e.Reason = ReasonGone
		case !rec.settled:
			e.Reason = ReasonSettling
		default:
			e.Reason = cmp.Or(rec.offer.Problem, t.in.Failing[id])
		}
		e.Healthy = e.Reason == ""
		entries = append(entries, e)
	}
	return entries
}

// changes returns the differences between two lists of one resource.
func changes(resource string, before, after []Entry) []Change {
	was := make(map[string]Entry, len(before))
	for _, e := range before {
		was[e.Offer.ID] = e
	}
	var out []Change
	for _, e := range after {
		old, known := was[e.Offer.ID]
		delete(was, e.Offer.ID)
		if !known || old.Healthy != e.Healthy || old.Reason != e.Reason {
			out = append(out, Change{
				Resource: resource,
				ID:       e.Offer.ID,
				Healthy:  e.Healthy,
				Reason:   e.Reason,
			})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(was), device.CompareNatural) {
		out = append(out, Change{
			Resource: resource,
			ID:       id,
			Reason:   was[id].Reason,
			Left:     true,
		})
	}
	return out
}

// Slots returns the slots of an entry as listed to the kubelet.
func Slots(e Entry) []device.Listed {
	slots := make([]device.Listed, 0, e.first()+len(e.Kept))
	add := func(slot int, retired bool) {
		l := device.Listed{
			ID:      device.SlotID(e.Offer.ID, slot),
			Healthy: e.Healthy,
			Reason:  e.Reason,
			NUMA:    e.Offer.NUMA,
			Device:  cmp.Or(e.Offer.Hardware, e.Offer.ID),
		}
		if retired {
			l.Healthy = false
			l.Reason = ReasonSlotRetired
		}
		slots = append(slots, l)
	}
	for slot := range e.first() {
		add(slot, slot >= e.Offer.Slots)
	}
	for _, slot := range e.Kept {
		add(slot, e.Present)
	}
	return slots
}
