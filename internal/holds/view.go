package holds

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// View is who holds what at one moment. It is immutable. The zero value has no holders.
type View struct {
	// unread is why the checkpoint of the kubelet is not known, empty if it is known.
	unread string
	// unreadClaims is why the devices of some claims are not known.
	unreadClaims string
	// holders has the holders of each device, by its ID.
	holders map[string][]Holder
	// uses is what each held device uses, as far as it is known.
	uses map[string]Device
	// heldAt has the IDs of held devices by their places, and heldBelow by everything that their
	// places are a part of.
	heldAt, heldBelow map[string][]string
	// unknown are the IDs of held devices of which it is not known what they use.
	unknown []string
}

// newView returns the view of holders. It keeps the map.
func newView(holders []Holder, uses map[string]Device) *View {
	v := &View{
		holders:   map[string][]Holder{},
		uses:      uses,
		heldAt:    map[string][]string{},
		heldBelow: map[string][]string{},
	}
	for _, h := range holders {
		v.holders[h.ID] = append(v.holders[h.ID], h)
	}
	for id := range v.holders {
		use, isKnown := uses[id]
		if !isKnown {
			v.unknown = append(v.unknown, id)
		}
		for _, place := range use.Places {
			place = device.TreePlace(place)
			v.heldAt[place] = append(v.heldAt[place], id)
			for whole := device.WholeOf(place); whole != ""; whole = device.WholeOf(whole) {
				v.heldBelow[whole] = append(v.heldBelow[whole], id)
			}
		}
	}
	return v
}

// Slots returns the holders of a device.
func (v *View) Slots(id string) []Holder { return v.holders[id] }

// Places returns what a held device uses, see Device.Places.
func (v *View) Places(id string) []string { return v.uses[id].Places }

// IsHeld reports whether a container holds a device, or may hold it because that is not known.
func (v *View) IsHeld(id string) bool { return v.unread != "" || len(v.holders[id]) > 0 }

// Unread is why it is not known which pods hold devices, empty if it is known.
func (v *View) Unread() string { return v.unread }

// HeldIDs returns the IDs of all held devices, sorted.
func (v *View) HeldIDs() []string { return slices.Sorted(maps.Keys(v.holders)) }

// Blocked returns why a device must not be offered through a resource, because a container holds the
// same hardware in another way, or may hold it. It is empty if nothing speaks against the offer.
//
// Claims do not block offers for other claims: the scheduler counts what they use, and Book.Reserve
// compares them.
func (v *View) Blocked(w Wanted) string {
	if v.unread != "" {
		return "it is not known which containers hold devices: " + v.unread
	}
	if v.unreadClaims != "" && w.Exclusive {
		return "it is not known which devices claims hold: " + v.unreadClaims
	}
	_, byClaim := device.SplitResourceKey(w.Resource)
	// They are in the order of their IDs, so that a reason stays the same.
	for _, id := range v.candidates(&w) {
		var known *Device
		if use, isKnown := v.uses[id]; isKnown {
			known = &use
		}
		for _, h := range v.holders[id] {
			isLeftToScheduler := byClaim && h.Claim != ""
			if !isLeftToScheduler && h.excludes(known, &w) {
				return h.reason(known, &w)
			}
		}
	}
	return ""
}

// candidates returns the held devices that may exclude a device, sorted.
func (v *View) candidates(w *Wanted) []string {
	var ids []string
	if len(v.holders[w.ID]) > 0 {
		ids = append(ids, w.ID)
	}
	ids = append(ids, v.unknown...)
	for _, place := range w.Places {
		place = device.TreePlace(place)
		ids = append(ids, v.heldBelow[place]...)
		for ; place != ""; place = device.WholeOf(place) {
			ids = append(ids, v.heldAt[place]...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
