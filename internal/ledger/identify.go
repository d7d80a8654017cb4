package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// maxAbsent is the maximum number of remembered serial numbers of absent devices.
const maxAbsent = 512

// Decisions are the decisions about serial numbers of USB devices. They are kept across boots, because
// an ID must not depend on the order in which the kernel detects two devices with one serial number.
//
// There is one entry for each serial of the present devices, and for the last 512 serials of
// absent devices. Beyond that, the device that has been absent the longest is forgotten.
type Decisions struct {
	// Serials are the serials of present devices, sorted by ID, and then the serials of
	// absent devices, the latest first.
	Serials []Serial `json:"serials,omitempty"`
}

// Serial is the decision about one serial of one vendor and product.
type Serial struct {
	// ID with the serial, the serial form of device.HardwareID.
	ID string `json:"id"`
	// Place of the device that has the serial ID, see device.Place.
	Place string `json:"place"`
	// Contested is set if two devices with the serial were present at once. From then on
	// the serial identifies only the device at Place.
	Contested bool `json:"contested,omitempty"`
}

// Identify decides for each USB device of a snapshot whether it has its serial ID or
// its port ID, and returns the decisions for the next call. Equal snapshots and
// decisions have equal results.
//
// A device without a usable serial has its port ID. A serial belongs to the first device that
// had it. If several devices with one serial appear at once, the first place in natural order
// decides. A serial follows its device to another port, until two devices with the serial have
// been present at the same time: which of them moved would be a guess. From then on only the
// device at the owner's place has the serial ID, and all others have port IDs, even while no
// other device is present.
func Identify(snap *device.Snapshot, prev Decisions) (device.Forms, Decisions) {
	known := make(map[string]Serial, len(prev.Serials))
	for _, s := range prev.Serials {
		known[s.ID] = s
	}
	forms := make(device.Forms, len(snap.Hardware))
	groups := make(map[string][]*device.Hardware, len(snap.Hardware))
	for _, h := range snap.Hardware {
		if h.Bus != device.USBBus {
			continue
		}
		id := device.HardwareID(h, device.SerialForm)
		_, isAccepted := known[id]
		// A decision stays even if the rules for placeholders have changed since: the ID must not.
		keepsSerial := isAccepted && !h.IsRootHub()
		if h.HasSerial() || keepsSerial {
			groups[id] = append(groups[id], h)
		} else {
			forms[h] = device.PortForm
		}
	}
	next := Decisions{Serials: make([]Serial, 0, len(groups))}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		s, owner := decide(known[id], groups[id])
		s.ID = id
		for _, h := range groups[id] {
			forms[h] = device.PortForm
		}
		if owner != nil {
			forms[owner] = device.SerialForm
		}
		if s.Place != "" {
			next.Serials = append(next.Serials, s)
		}
	}
	absent := 0
	for _, s := range prev.Serials {
		_, isPresent := groups[s.ID]
		if !isPresent && absent < maxAbsent {
			next.Serials = append(next.Serials, s)
			absent++
		}
	}
	return forms, next
}

// byPlace orders devices by their places. A device without a place comes last: it could not be
// found again.
func byPlace(a, b *device.Hardware) int {
	placeA := device.Place(a)
	placeB := device.Place(b)
	isOneUnknown := (placeA == "") != (placeB == "")
	if isOneUnknown {
		return -cmp.Compare(placeA, placeB)
	}
	byPlace := device.CompareNatural(placeA, placeB)
	return cmp.Or(byPlace, device.CompareNatural(a.Path, b.Path))
}

// decide returns the device that has the serial ID, of the devices with one serial, and the
// updated entry of the serial. The device is nil if none has the serial ID.
func decide(s Serial, group []*device.Hardware) (Serial, *device.Hardware) {
	if len(group) > 1 { // nearly all of thousands of groups have only one device
		group = slices.SortedFunc(slices.Values(group), byPlace)
		s.Contested = true
	}
	at := slices.IndexFunc(group, func(h *device.Hardware) bool {
		return s.Place != "" && device.Place(h) == s.Place
	})
	switch {
	case at >= 0:
		return s, group[at]
	case s.Place == "":
		s.Place = device.Place(group[0])
		return s, group[0]
	case s.Contested:
		return s, nil
	}
	place := device.Place(group[0])
	if place != "" {
		s.Place = place
	}
	return s, group[0]
}
