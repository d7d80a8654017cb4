package device

import (
	"path"
	"slices"
	"strings"
)

// A place is what an offer uses of the host, as text in a tree: "/" separates a part from what it
// is a part of. The functions below take any text as a place.
//
//	devices/pci0000:00/0000:00:14.0/usb1/1-2               hardware, by its sysfs path
//	devices/pci0000:00/0000:00:14.0/usb1/1-2//if00:ttyUSB  a node of it, by its key
//	devices/pci0000:00/0000:00:14.0/usb1/1-2//             the node that gives access to all of it
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
// There are two relations between offers. They have the same hardware if a place of one is a place of
// the other, or a node of it. They conflict if a place of one is any part of a place of the other, such
// as a virtual function of a physical one: that matters for exclusive devices.

// SameHardware reports whether a place of a is a place of b, or one of them is a node of the other.
func SameHardware(a, b []string) bool {
	return anyPair(a, b, func(p, q string) bool {
		return p == q || isNodeOf(p, q) || isNodeOf(q, p)
	})
}

// isNodeOf reports whether a place is a node of the hardware at another place.
func isNodeOf(node, hardware string) bool {
	return strings.HasPrefix(node, hardware+nodeMark)
}

// nodeMark separates the key of a node from its hardware.
const nodeMark = "//"

// NodePlace is the place of a node of hardware. An empty key is the node that gives access to all of it.
func NodePlace(hardware, key string) string { return hardware + nodeMark + key }

// groupMark begins the place of an IOMMU group.
const groupMark = "group "

// GroupPlace is the place of an IOMMU group. Its functions can reach each other, but are different hardware.
func GroupPlace(number string) string { return groupMark + number }

// ownMark begins the place of a device that uses nothing of the host.
const ownMark = "id "

// OwnPlace is the place of a device that uses nothing of the host, such as a licence.
func OwnPlace(id string) string { return ownMark + id }

// IsOwnPlace reports whether a place is of a device that uses nothing of the host.
func IsOwnPlace(place string) bool { return strings.HasPrefix(place, ownMark) }

// IsGroupPlace reports whether a place is an IOMMU group.
func IsGroupPlace(place string) bool { return strings.HasPrefix(place, groupMark) }

// HardwareOf returns the place of the hardware of a node, and other places as they are.
func HardwareOf(place string) string {
	hardware, _, _ := strings.Cut(place, nodeMark)
	return hardware
}

// IsPlaceOf reports whether a place is the hardware at a sysfs path, or a node of it. The place of a virtual
// function is below its physical function: both have the address of the function.
func IsPlaceOf(place, sysfsPath string) bool {
	hardware := HardwareOf(place)
	address := path.Base(sysfsPath)
	return hardware == sysfsPath || IsPCIAddress(address) && path.Base(hardware) == address
}

// Conflict reports whether a place of a is a place of b, or one of them is a part of the other.
func Conflict(a, b []string) bool {
	return anyPair(a, b, func(p, q string) bool {
		p = TreePlace(p)
		q = TreePlace(q)
		return p == q || IsPart(p, q) || IsPart(q, p)
	})
}

// TreePlace is a place in the tree of parts: the node that gives access to all of its hardware is the
// hardware.
func TreePlace(place string) string { return strings.TrimSuffix(place, nodeMark) }

// anyPair reports whether a relation holds for any place of a and any place of b.
func anyPair(a, b []string, holds func(p, q string) bool) bool {
	for _, p := range a {
		for _, q := range b {
			if holds(p, q) {
				return true
			}
		}
	}
	return false
}

// serialsOf returns the places that name USB devices by their serial numbers.
func serialsOf(places []string) []string {
	var serials []string
	for _, place := range places {
		if strings.HasPrefix(place, "usb:") {
			serials = append(serials, HardwareOf(place))
		}
	}
	return serials
}

// USBNames returns the name of a USB device whatever its ID is, "usb:VENDOR:PRODUCT:SERIAL", or with its
// port if it has no serial number. Other hardware has none.
func USBNames(h *Hardware) []string {
	if h == nil || h.USB == nil {
		return nil
	}
	return []string{HardwareID(h, SerialForm)}
}

// HaveOtherSerials reports whether two devices have serial numbers, and none in common: then they are not
// the same hardware, even in the same port.
func HaveOtherSerials(a, b []string) bool {
	return len(serialsOf(a)) > 0 && len(serialsOf(b)) > 0 && !ShareSerial(a, b)
}

// ShareSerial reports whether two devices have a USB serial number in common.
func ShareSerial(a, b []string) bool {
	others := serialsOf(b)
	return slices.ContainsFunc(serialsOf(a), func(serial string) bool {
		return slices.Contains(others, serial)
	})
}

// LastingPlaces returns the places that name the hardware. A device that was unplugged has no other ones:
// what is in its port next is another device.
func LastingPlaces(places []string) []string {
	lasting := []string{}
	for _, place := range places {
		if PortOf(place) == "" {
			lasting = append(lasting, place)
		}
	}
	return lasting
}

// PortOf returns the port of a USB device in a place below a USB bus, "usb1/1-2" or "usb1/1-2/1-2.4",
// and an empty string for other places. When a device is unplugged, its port may get another one.
func PortOf(place string) string {
	parts := strings.Split(HardwareOf(place), "/")
	bus := slices.IndexFunc(parts, IsRootHubName)
	if bus < 0 {
		return ""
	}
	end := bus + 1
	for end < len(parts) && isPort(parts[end]) {
		end++
	}
	return strings.Join(parts[bus:end], "/")
}

// isPort reports whether a directory is a USB device by its port, "1-2.4".
func isPort(name string) bool {
	return strings.Contains(name, "-") && strings.Trim(name, "0123456789-.") == ""
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
