package ledger

import (
	"cmp"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// finish returns the state and the output.
func (t *transition) finish() (State, Output) {
	ids := idsByResource(t.records)
	for _, name := range t.names {
		config := t.configs[name]
		isRetired := config.Refuse != ""
		isEmpty := len(ids[name]) == 0
		// A configured resource without a device is still listed, as empty.
		hasLostName := config.Derived && len(t.waiting[name]) == 0
		if isEmpty && (isRetired || hasLostName) {
			continue
		}
		// The kubelet writes its checkpoint, which says that a pod has ended, with a list only.
		isHeld := slices.ContainsFunc(ids[name], func(id string) bool {
			return len(t.in.Held.Slots[id]) > 0
		})
		listed := ListedResource{
			Name:     name,
			Complete: t.complete(config, ids[name]),
			Register: !isRetired && !isEmpty || isHeld,
			Waiting:  t.waiting[name],
		}
		for _, id := range ids[name] {
			listed.Devices = append(listed.Devices, t.entry(id))
		}
		order.Sort(listed.Waiting, func(a, b Waiting) int {
			return device.CompareNatural(a.ID, b.ID)
		})
		t.out.Resources = append(t.out.Resources, listed)
	}
	// A device that has moved has left before it is listed again.
	order.Stable(t.out.Changes, func(a, b Change) int {
		return device.CompareNatural(a.ID, b.ID)
	})
	return State{started: true, records: t.records}, t.out
}

// complete reports whether no device of a resource is awaited any more: all hardware could be read, and each
// remembered device is present or superseded, or the time is up.
func (t *transition) complete(config *Resource, ids []string) bool {
	deadline := t.in.Start.Add(completeAfter)
	isOver := config.Refuse != "" || !t.in.Now.Before(deadline)
	if isOver {
		return true
	}
	isAwaited := config.MatchIncomplete || len(t.in.UnreadHardware) > 0
	for _, id := range ids {
		_, isSuperseded := t.superseded[id]
		mayComeSoon := t.records[id].phase.mayComeSoon() && !isSuperseded
		isAwaited = isAwaited || mayComeSoon
	}
	if isAwaited {
		t.wake(deadline)
	}
	return !isAwaited
}

// entry returns the entry of a listed device, and records its reason.
func (t *transition) entry(id string) Entry {
	rec := t.records[id]
	e := Entry{
		Offer:       rec.offer,
		Present:     rec.phase.isPresent(),
		NetsMissing: !rec.phase.isPresent() && rec.net.haveLeft,
		Listed:      rec.listed,
		Reason:      t.reason(rec),
		Withheld:    t.isWithheld(id, rec),
	}
	// The container that holds the device must not see it as failing.
	mayWithdraw := e.Present && e.Reason == "" && !t.isHeld(id)
	if mayWithdraw {
		e.Reason = t.blocked(rec.resource, &rec.offer)
		e.Withheld = e.Withheld || e.Reason != ""
	}
	e.Healthy = e.Reason == ""
	if !rec.isShown || rec.reason != e.Reason {
		rec.isShown = true
		rec.reason = e.Reason
		t.records[id] = rec
		t.addChange(id, rec, false)
	}
	return e
}

// addChange adds a change of a device.
func (t *transition) addChange(id string, rec record, hasLeft bool) {
	t.out.Changes = append(t.out.Changes, Change{
		Resource: rec.resource,
		ID:       id,
		Healthy:  rec.reason == "" && !hasLeft,
		Reason:   rec.reason,
		Left:     hasLeft,
	})
}

// reason returns why a listed device is Unhealthy, or the empty string if it is Healthy.
func (t *transition) reason(rec record) string {
	id := rec.offer.ID
	config := t.configs[rec.resource]
	superseded, isSuperseded := t.superseded[id]
	switch {
	case !rec.phase.isPresent() && isSuperseded:
		return superseded.reason
	case config.Refuse != "":
		return config.Refuse
	}
	switch rec.phase {
	case ready:
		return cmp.Or(rec.offer.Problem, t.in.Failing[id])
	case settling:
		return ReasonSettling
	case unread:
		return ReasonUnread
	case unselected:
		return ReasonUnselected
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
