package ledger

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/generic-dp/generic-dp/device"
)

// close makes the state and the output of what has been worked out.
func (r *round) close() (State, Output) {
	next := State{started: true}
	for _, w := range r.works {
		refused := w.config.Refuse != ""
		if len(w.records) == 0 && (refused || w.config.Derived && len(w.blocked) == 0) {
			if w.known {
				r.out.Ended = append(r.out.Ended, w.name)
				r.out.Changes = append(r.out.Changes, changes(w.last, ListedResource{Name: w.name})...)
			}
			continue
		}
		w.registered = w.registered || !refused && len(w.records) > 0
		listed := ListedResource{
			Name:     w.name,
			Devices:  r.entries(w),
			Complete: r.complete(w),
			Register: w.registered,
			Waiting:  w.blocked,
		}
		r.out.Changes = append(r.out.Changes, changes(w.last, listed)...)
		changed := !w.known || !reflect.DeepEqual(w.last, listed)
		w.last = listed
		next.resources = append(next.resources, w.resource)
		listed.Changed = changed
		// The caller may add what it knows of a device's health.
		listed.Devices = slices.Clone(listed.Devices)
		r.out.Resources = append(r.out.Resources, listed)
	}
	return next, r.out
}

// complete reports whether w has all that is remembered of it.
func (r *round) complete(w *work) bool {
	deadline := r.in.Start.Add(completeAfter)
	if w.config.Refuse != "" || !r.in.Now.Before(deadline) {
		w.pending = nil
	}
	for id := range w.pending {
		if rec := w.records[id]; rec.present && rec.settled || r.moved[id] != "" {
			delete(w.pending, id)
		}
	}
	if len(w.pending) > 0 {
		r.wake(deadline)
	}
	return len(w.pending) == 0
}

func (r *round) entries(w *work) []Entry {
	entries := make([]Entry, 0, len(w.records))
	for _, id := range slices.SortedFunc(maps.Keys(w.records), device.CompareNatural) {
		rec := w.records[id]
		e := Entry{Offer: rec.offer, Present: rec.present, Unseen: !rec.present && rec.net.away()}
		switch {
		case !rec.present && r.moved[id] != "":
			e.Reason = reasonMoved + r.moved[id]
		case w.config.Refuse != "":
			e.Reason = w.config.Refuse
		case !rec.present && rec.unread:
			e.Reason = ReasonUnread
		case !rec.present:
			e.Reason = ReasonGone
		case !rec.settled:
			e.Reason = ReasonSettling
		default:
			e.Reason = cmp.Or(rec.offer.Problem, r.in.Failing[id])
		}
		e.Healthy = e.Reason == ""
		for _, s := range rec.retired {
			e.Retired = append(e.Retired, s.slot)
		}
		entries = append(entries, e)
	}
	return entries
}

// changes returns what differs between two lists of one resource.
func changes(before, after ListedResource) []Change {
	was := make(map[string]Entry, len(before.Devices))
	for _, e := range before.Devices {
		was[e.Offer.ID] = e
	}
	var out []Change
	for _, e := range after.Devices {
		old, known := was[e.Offer.ID]
		delete(was, e.Offer.ID)
		if !known || old.Healthy != e.Healthy || old.Reason != e.Reason {
			out = append(out, Change{Resource: after.Name, ID: e.Offer.ID, Healthy: e.Healthy, Reason: e.Reason})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(was), device.CompareNatural) {
		out = append(out, Change{Resource: after.Name, ID: id, Reason: was[id].Reason, Left: true})
	}
	return out
}
