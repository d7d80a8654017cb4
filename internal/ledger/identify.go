package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// maxAbsent is how many serials of absent devices are remembered.
const maxAbsent = 512

// Decisions are the decisions about serials of USB devices. They persist over boots;
// otherwise an ID could depend on the order in which the kernel detects two devices
// with one serial.
//
// They have one entry for each present device with a usable serial, and for the last
// 512 absent ones: beyond that, the longest absent is forgotten.
type Decisions struct {
	// Serials of present devices, sorted by ID, then those of absent ones, the last
	// seen first.
	Serials []Serial `json:"serials,omitempty"`
}

// Serial is the decision about one serial of one vendor and product.
type Serial struct {
	// ID with the serial, the serial form of device.HardwareID.
	ID string `json:"id"`
	// Place of the device that has the serial ID, see device.Place.
	Place string `json:"place"`
	// Contested: two devices with the serial were present at once, so that it
	// identifies only the device at Place.
	Contested bool `json:"contested,omitempty"`
}

// Identify decides for each USB device of a snapshot whether it has its serial ID or
// its port ID, and returns the decisions for the next call. Equal snapshots and
// decisions have equal results.
//
// A device without a usable serial has its port ID. A serial belongs to the device that
// had it first, and to the first in natural order of the places if several are seen for
// the first time. It follows its device to another port. Once two devices with one
// serial have been present at the same time that would be a guess: from then on the one
// at the owner's place has the serial ID and all others have port IDs, alone or not.
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
		// A version before may have taken a placeholder for a serial: the ID stays.
		if _, accepted := known[id]; h.HasSerial() || accepted && !h.IsRootHub() {
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
		if _, there := groups[s.ID]; !there && absent < maxAbsent {
			next.Serials = append(next.Serials, s)
			absent++
		}
	}
	return forms, next
}

// decide returns which of the devices with one serial has the serial ID, nil for none,
// and the updated entry of the serial.
func decide(s Serial, group []*device.Hardware) (Serial, *device.Hardware) {
	if len(group) > 1 { // one device in nearly all of thousands of groups
		group = slices.SortedFunc(slices.Values(group), func(a, b *device.Hardware) int {
			p := device.Place(a)
			q := device.Place(b)
			if (p == "") != (q == "") {
				return -cmp.Compare(p, q) // a place that can be remembered first
			}
			return cmp.Or(device.CompareNatural(p, q), device.CompareNatural(a.Path, b.Path))
		})
	}
	s.Contested = s.Contested || len(group) > 1
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
	if place := device.Place(group[0]); place != "" {
		s.Place = place
	}
	return s, group[0]
}
