package matchers

import "github.com/generic-dp/generic-dp/device"

// mdevValue is what a mediated device has for a key of an mdev table, and for
// the variable ${mdev.KEY}; empty where it has nothing.
func mdevValue(h *device.Hardware, key string) string {
	m := h.MDev
	if m == nil {
		return ""
	}
	switch key {
	case "type":
		return m.Type
	case "name":
		return m.Name
	case "uuid":
		return m.UUID
	case "iommu_group":
		return m.IOMMUGroup
	}
	return ""
}

// mdevHolds reports whether hardware is a mediated device that fulfils an mdev
// table.
func mdevHolds(conditions []condition, h *device.Hardware) bool {
	return h.MDev != nil && holdAll(conditions, func(key string) string { return mdevValue(h, key) })
}
