package matchers

import (
	"strconv"

	"github.com/generic-dp/generic-dp/device"
)

// usbHolds reports whether a device fulfils a usb table but for what that
// says of interfaces. Root hubs are part of their controllers and fulfil none.
func usbHolds(conditions []condition, h *device.Hardware) bool {
	if h.USB == nil || h.IsRootHub() {
		return false
	}
	return hold(conditions, h)
}

// interfaceHolds reports whether a node of h, or h itself where n is nil,
// fulfils what a usb table says of interfaces. Where the table names both
// number and class, it is the interface of that number whose class counts.
func (p *predicate) interfaceHolds(h *device.Hardware, n *device.Node) bool {
	if p.number.Empty() && p.class.Empty() {
		return true
	}
	var numbers, classes []string
	for _, i := range h.InterfacesOf(n) {
		number := strconv.Itoa(i.Number)
		numbers = append(numbers, number)
		if p.number.Match(number) {
			classes = append(classes, i.Class)
		}
	}
	return p.number.Match(numbers...) && p.class.Match(classes...)
}
