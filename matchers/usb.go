package matchers

import (
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// The keys of a usb table that look at interfaces: a device may have several
// values for them.
const (
	interfaceKey      = "interface"
	interfaceClassKey = "interface_class"
)

// usbValue is what a USB device has for a key of a usb table, and for the
// variable ${usb.KEY}; empty where it has nothing.
func usbValue(h *device.Hardware, key string) string {
	u := h.USB
	if u == nil {
		return ""
	}
	switch key {
	case "id":
		return pair(u.Vendor, u.Product)
	case "vendor":
		return u.Vendor
	case "product":
		return u.Product
	case "serial":
		return strings.TrimSpace(u.Serial)
	case "manufacturer":
		return strings.TrimSpace(u.Manufacturer)
	case "product_name":
		return strings.TrimSpace(u.ProductName)
	case "class":
		return u.Class
	case "port":
		return u.Port
	case "path":
		return device.Place(h) // as in IDs
	case "speed":
		return u.Speed
	}
	return ""
}

// interfaceValues is what a node has for interface or interface_class. A node
// of one interface has that; a node of the device as a whole (its bus node),
// and a device without nodes (n is nil), have those of all interfaces.
func interfaceValues(h *device.Hardware, n *device.Node, key string) []string {
	var values []string
	for _, i := range interfacesOf(h, n) {
		v := i.Class
		if key == interfaceKey {
			v = strconv.Itoa(i.Number)
		}
		if v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

func interfacesOf(h *device.Hardware, n *device.Node) []device.USBInterface {
	if h.USB == nil {
		return nil
	}
	if n == nil || n.Interface < 0 {
		return h.USB.Interfaces
	}
	for i, found := range h.USB.Interfaces {
		if found.Number == n.Interface {
			return h.USB.Interfaces[i : i+1]
		}
	}
	return []device.USBInterface{{Number: n.Interface}}
}

// usbHolds reports whether a device fulfils a usb table but for what that
// says of interfaces. Root hubs are part of their controllers and fulfil none.
func usbHolds(conditions []condition, h *device.Hardware) bool {
	if h.USB == nil || isRootHub(h) {
		return false
	}
	return holdAll(conditions, func(key string) string { return usbValue(h, key) })
}

// interfaceHolds reports whether a node of h, or h itself where n is nil,
// fulfils what a usb table says of interfaces. Where the table names both
// number and class, it is the interface of that number whose class counts.
func (p *predicate) interfaceHolds(h *device.Hardware, n *device.Node) bool {
	if p.number.Empty() && p.class.Empty() {
		return true
	}
	if !p.number.Match(interfaceValues(h, n, interfaceKey)...) {
		return false
	}
	var classes []string
	for _, i := range interfacesOf(h, n) {
		if p.number.Match(strconv.Itoa(i.Number)) {
			classes = append(classes, i.Class)
		}
	}
	return p.class.Match(classes...)
}

// isRootHub reports whether h is a controller's own hub: the kernel names it
// "usb1" (usb_alloc_dev in drivers/usb/core/usb.c), and all others after
// their ports.
func isRootHub(h *device.Hardware) bool {
	return h.Bus == device.USBBus && strings.HasPrefix(h.Name, "usb")
}

// pair is an ID of two numbers, empty unless both are there.
func pair(vendor, product string) string {
	if vendor == "" || product == "" {
		return ""
	}
	return vendor + ":" + product
}
