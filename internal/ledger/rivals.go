package ledger

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// rivals are the devices that containers hold or may hold, and that exclude exclusive devices with
// conflicting places. An exclusive device is only excluded by another exclusive one, or by one that
// is no longer offered: an edit may have taken it from the configuration, or changed its ID. A
// device that is gone keeps its places, because it may return before it is matched again.
type rivals struct {
	// byPlugin and byClaim are the devices that are held through the device plugin, and through
	// claims.
	byPlugin, byClaim device.Places
	// resources has the resource through which each of them is held.
	resources map[string]string
	// unknown is a held device whose places are not known, empty if there is none.
	unknown string
}

// findRivals finds the rivals of exclusive devices. It costs nothing if there is no such device.
func (t *transition) findRivals() *rivals {
	if !slices.ContainsFunc(t.drafts, (*draft).hasExclusive) {
		return nil
	}
	found := &rivals{resources: map[string]string{}}
	held := t.mayBeHeld()
	for _, id := range slices.Sorted(maps.Keys(held)) {
		places, excludes := t.placesOf(id)
		if !excludes {
			continue
		}
		for _, name := range held[id] {
			i := slices.IndexFunc(t.drafts, func(d *draft) bool { return d.name == name })
			isUnknown := len(places) == 0
			// The name of another program's resource may look like one of this program.
			if i < 0 && isUnknown {
				continue
			}
			found.resources[id] = name
			if isUnknown {
				found.unknown = id
			} else if i >= 0 && t.drafts[i].config.Claims {
				found.byClaim.Add(id, places)
			} else {
				found.byPlugin.Add(id, places)
			}
		}
	}
	return found
}

// hasExclusive reports whether the resource lists an exclusive device that is present.
func (d *draft) hasExclusive() bool {
	for _, rec := range d.records {
		if rec.present && rec.offer.Exclusive {
			return true
		}
	}
	return false
}

// mayBeHeld returns the resources through which containers hold or may hold a device, by ID.
func (t *transition) mayBeHeld() map[string][]string {
	held := map[string][]string{}
	for id, slots := range t.held {
		for _, h := range slots {
			held[id] = append(held[id], h.resource)
		}
		slices.Sort(held[id])
		held[id] = slices.Compact(held[id])
	}
	for id, grant := range t.in.Granted {
		held[id] = append(held[id], grant.Resource)
	}
	// A container may have got a device just before an edit took it from the configuration.
	isEdited := t.in.Switched.After(t.in.Start)
	if !isEdited || t.holdersKnown(t.in.Switched.Add(leaveAfter)) {
		return held
	}
	for _, d := range t.drafts {
		for id, rec := range d.records {
			hasLeft := !rec.present && !rec.since.Before(t.in.Switched)
			if hasLeft && len(held[id]) == 0 {
				held[id] = []string{d.name}
			}
		}
	}
	return held
}

// placesOf returns the places of a device, nil if they are not known. excludes is set if the device
// excludes exclusive devices while a container holds it.
func (t *transition) placesOf(id string) (places []string, excludes bool) {
	// The device may have moved since it was granted.
	granted := t.in.Granted[id].Places
	if d := t.owner[id]; d != nil {
		rec := d.records[id]
		isExclusive := !rec.present || rec.offer.Exclusive || len(granted) > 0
		return slices.Concat(rec.offer.Places, granted), isExclusive
	}
	for _, d := range t.drafts {
		for _, offer := range d.contested {
			if offer.ID == id {
				return slices.Concat(offer.Places, granted), true
			}
		}
	}
	return granted, true
}

// excludedBy returns why an exclusive device cannot be allocated, empty if it can. A claim does not
// exclude devices of other claims here: the scheduler and the driver decide about these.
func (t *transition) excludedBy(r *rivals, d *draft, id string) string {
	rec := d.records[id]
	if r == nil || !rec.present || !rec.offer.Exclusive {
		return ""
	}
	rival := r.byPlugin.Rival(id, rec.offer.Places)
	if rival == "" && !d.config.Claims {
		rival = r.byClaim.Rival(id, rec.offer.Places)
	}
	if rival != "" || r.unknown != "" {
		t.out.AskHeld = true // no event says that the container has ended
	}
	if rival != "" {
		return "held as " + rival + " through " + r.resources[rival]
	}
	if r.unknown != "" && r.unknown != id {
		return "a container holds " + r.unknown + " through " + r.resources[r.unknown] + ", and it is not known which hardware that is"
	}
	return ""
}

// isHeld reports whether a container holds or may hold a device.
func (t *transition) isHeld(id string) bool {
	_, isGranted := t.in.Granted[id]
	return isGranted || len(t.held[id]) > 0
}
