package catalog

import (
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// reenumerating are the IDs of USB accelerators that appear with another ID once a program has loaded
// their firmware. A resource must select all IDs, and its devices are identified by their port, which
// stays.
var reenumerating = [][]string{
	// libedgetpu loads the firmware of Google's Coral.
	{"1a6e:089a", "18d1:9302"},
	// OpenVINO and DepthAI boot the Myriad X in Intel's compute stick and in OAK cameras.
	{"03e7:2485", "03e7:f63b"},
}

// Reenumerating returns all IDs of a USB device that loads its firmware, if one of some patterns for
// usb.id is one of them. The result is nil for all other patterns.
func Reenumerating(patterns []string) []string {
	for _, ids := range reenumerating {
		isNamed := func(id string) bool { return slices.Contains(patterns, id) }
		if slices.ContainsFunc(ids, isNamed) {
			return ids
		}
	}
	return nil
}

// reenumeratedIDs returns all IDs of a USB device that loads its firmware, before and after it has
// loaded it. They are nil for all other hardware.
func reenumeratedIDs(h *device.Hardware) []string {
	if h.USB == nil {
		return nil
	}
	return Reenumerating([]string{attribute(h, "usb.id")})
}

// modelCondition returns the condition for the model of a USB device: one ID, or all IDs of a
// device that loads its firmware.
func modelCondition(h *device.Hardware) string {
	ids := reenumeratedIDs(h)
	if ids == nil {
		ids = []string{attribute(h, "usb.id")}
	}
	return "id = " + quoteAll(ids)
}

// byPort groups hardware by its port, so that a device keeps its ID when it appears with another
// one.
const byPort = `each = "usb.path"`

// firmwareGroup returns the group of a USB device that loads its firmware. It returns nil for all
// other hardware. The node of such a device changes with its ID while a container holds it, and
// only a CDI name follows it.
func firmwareGroup(h *device.Hardware) *group {
	if reenumeratedIDs(h) == nil {
		return nil
	}
	g := newSpecial(h, "accelerator", "accelerator", identity(h), byPort, cdiLine)
	g.isWhole = true
	g.notes = []string{"It has another ID once its firmware is loaded: the port identifies it."}
	return g
}
