package device

import "strings"

// A place is what an offer uses of the host, as text in a tree: "/" separates a part from what it
// is a part of. The functions below take any text as a place.
//
//	devices/pci0000:00/0000:00:14.0/usb1/1-2              hardware, by its sysfs path
//	devices/pci0000:00/0000:00:14.0/usb1/1-2/if00:ttyUSB  a node of it, by its key
//	devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0          a physical function
//	devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3b:02.1  its virtual function
//	/dev/net/tun                                          a node without hardware, or a path
//	group 12                                              an IOMMU group
//	usb:10c4:ea60:A1B2C3                                  a USB device, in whichever port it is
//
// A virtual function is beside its physical function in sysfs, but it is a part of it. A USB device
// with a serial number has two places: it may return in another port, and be found for one resource
// before it is found for another one.
//
// Two offers conflict if a place of one is a place of the other, or a part of it.

// Conflict reports whether a place of a is a place of b, or one of them is a part of the other.
func Conflict(a, b []string) bool {
	for _, p := range a {
		for _, q := range b {
			if p == q || IsPart(p, q) || IsPart(q, p) {
				return true
			}
		}
	}
	return false
}

// IsPart reports whether a place is a part of another place.
func IsPart(part, whole string) bool {
	return len(part) > len(whole) && part[len(whole)] == '/' && strings.HasPrefix(part, whole)
}

// WholeOf returns the place of which a place is a part, or an empty string.
func WholeOf(place string) string {
	i := strings.LastIndexByte(place, '/')
	if i < 0 {
		return ""
	}
	return place[:i]
}

// Places finds conflicts with many IDs in a time that does not depend on their number. The zero
// value is ready to use.
type Places struct {
	// at has IDs at a place, and below has IDs at the parts of a place.
	at    map[string]twoIDs
	below map[string]twoIDs
}

// twoIDs are the first two IDs. That is enough to find one that differs from a given ID.
type twoIDs [2]string

// with returns the IDs with another one, unless they are full.
func (ids twoIDs) with(id string) twoIDs {
	if ids[0] == "" {
		ids[0] = id
	} else if ids[0] != id && ids[1] == "" {
		ids[1] = id
	}
	return ids
}

// except returns an ID other than the given one, or an empty string.
func (ids twoIDs) except(id string) string {
	if ids[0] != id {
		return ids[0]
	}
	return ids[1]
}

// Add adds the places of an ID.
func (p *Places) Add(id string, places []string) {
	if p.at == nil {
		p.at = make(map[string]twoIDs)
		p.below = make(map[string]twoIDs)
	}
	for _, place := range places {
		p.at[place] = p.at[place].with(id)
		for whole := WholeOf(place); whole != ""; whole = WholeOf(whole) {
			p.below[whole] = p.below[whole].with(id)
		}
	}
}

// Rival returns an ID other than id that conflicts with the places, or an empty string. If there are
// several, it is always the same one for the same calls of Add.
func (p *Places) Rival(id string, places []string) string {
	for _, place := range places {
		if rival := p.below[place].except(id); rival != "" {
			return rival
		}
		for ; place != ""; place = WholeOf(place) {
			if rival := p.at[place].except(id); rival != "" {
				return rival
			}
		}
	}
	return ""
}
