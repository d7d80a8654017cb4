package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// finish returns the state and the output.
func (t *transition) finish() (State, Output) {
	next := State{started: true}
	for _, d := range t.drafts {
		isRetired := d.config.Refuse != ""
		isEmpty := len(d.records) == 0
		if isEmpty && d.endsEmpty() {
			t.out.Changes = append(t.out.Changes, changes(d.name, d.last, nil)...)
			continue
		}
		// The kubelet writes its checkpoint, which says that a pod has ended, with a list only.
		isHeld := isRetired && t.holdsAny(d)
		if !isRetired && !isEmpty || isHeld {
			d.registered = true
		}
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

// holdsAny reports whether a container holds a device of d.
func (t *transition) holdsAny(d *draft) bool {
	for id := range d.records {
		if len(t.held[id]) > 0 {
			return true
		}
	}
	return false
}

// endsEmpty reports whether the resource ends when it lists no device. A configured resource
// without a device is still listed, as empty.
func (d *draft) endsEmpty() bool {
	isRetired := d.config.Refuse != ""
	hasLostName := d.config.Derived && len(d.waiting) == 0
	return isRetired || hasLostName
}

// complete reports whether no device of d is awaited any more: all hardware could be read, and each
// remembered device is present or superseded, or the time is up.
func (t *transition) complete(d *draft) bool {
	deadline := t.in.Start.Add(completeAfter)
	isOver := d.config.Refuse != "" || !t.in.Now.Before(deadline)
	if isOver {
		return true
	}
	isAwaited := d.config.MatchIncomplete || len(t.in.UnreadHardware) > 0
	for id, rec := range d.records {
		_, isSuperseded := t.superseded[id]
		mayComeSoon := rec.phase.mayComeSoon() && !isSuperseded
		isAwaited = isAwaited || mayComeSoon
	}
	if isAwaited {
		t.wake(deadline)
	}
	return !isAwaited
}

// entries are the listed devices of d, in natural order of their IDs.
func (t *transition) entries(d *draft) []Entry {
	entries := make([]Entry, 0, len(d.records))
	for _, id := range slices.SortedFunc(maps.Keys(d.records), device.CompareNatural) {
		rec := d.records[id]
		e := Entry{
			Offer:       rec.offer,
			Present:     rec.phase.isPresent(),
			NetsMissing: !rec.phase.isPresent() && rec.net.haveLeft,
			Listed:      rec.listed,
		}
		e.Reason = t.reason(d, id)
		e.Withheld = t.isWithheld(id, rec)
		// The container that holds the device must not see it as failing.
		mayWithdraw := e.Present && e.Reason == "" && !t.isHeld(id)
		if mayWithdraw {
			e.Reason = t.blocked(d, &rec.offer)
			e.Withheld = e.Withheld || e.Reason != ""
		}
		e.Healthy = e.Reason == ""
		entries = append(entries, e)
	}
	return entries
}

// reason returns why a listed device is Unhealthy, or the empty string if it is Healthy.
func (t *transition) reason(d *draft, id string) string {
	rec := d.records[id]
	superseded, isSuperseded := t.superseded[id]
	switch {
	case !rec.phase.isPresent() && isSuperseded:
		return superseded.reason
	case d.config.Refuse != "":
		return d.config.Refuse
	}
	switch rec.phase {
	case ready:
		return cmp.Or(rec.offer.Problem, t.in.Failing[id])
	case settling:
		return ReasonSettling
	case unread:
		return ReasonUnread
	default:
		return ReasonGone
	}
}

// isWithheld reports whether a listed device is in order and only waits to be offered by
// another resource or under another ID.
func (t *transition) isWithheld(id string, rec record) bool {
	superseded, isSuperseded := t.superseded[id]
	return !rec.phase.isPresent() && isSuperseded && t.in.Failing[superseded.by] == ""
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
		isSame := old.Healthy == e.Healthy && old.Reason == e.Reason
		if !known || !isSame {
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
	slots := make([]device.Listed, e.Listed)
	for slot := range slots {
		l := device.Listed{
			ID:      device.SlotID(e.Offer.ID, slot),
			Healthy: e.Healthy,
			Reason:  e.Reason,
			NUMA:    e.Offer.NUMA,
			Device:  cmp.Or(e.Offer.Hardware, e.Offer.ID),
		}
		if e.Present && slot >= e.Offer.Slots {
			l.Healthy = false
			l.Reason = ReasonSlotRetired
		}
		slots[slot] = l
	}
	return slots
}
