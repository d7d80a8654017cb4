package matchers

import "github.com/generic-dp/generic-dp/device"

// mdevHolds reports whether hardware is a mediated device that fulfils an mdev
// table.
func mdevHolds(conditions []condition, h *device.Hardware) bool {
	return h.MDev != nil && hold(conditions, h)
}
