package matchers

import (
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// pciValue is what hardware has for a key of a pci table, and for the
// variable ${pci.KEY}; empty where it has nothing. Of a USB device it is what
// its controller has: the nearest PCI function above it.
func pciValue(h *device.Hardware, key string) string {
	f := function(h)
	if f == nil {
		return ""
	}
	p := f.PCI
	switch key {
	case "id":
		return pair(p.Vendor, p.Device)
	case "vendor":
		return p.Vendor
	case "device":
		return p.Device
	case "subsystem_id":
		return pair(p.SubVendor, p.SubDevice)
	case "class":
		return p.Class
	case "revision":
		return p.Revision
	case "driver":
		return p.Driver
	case "address":
		return p.Address
	case "slot":
		slot, _, _ := strings.Cut(p.Address, ".")
		return slot
	case "iommu_group":
		return p.IOMMUGroup
	case "sriov":
		return p.SRIOV
	case "pf":
		return p.PF
	case "vf":
		if p.PF != "" && p.VF >= 0 {
			return strconv.Itoa(p.VF)
		}
	}
	return ""
}

// function is the PCI function that hardware is, or the nearest one above it.
func function(h *device.Hardware) *device.Hardware {
	for ; h != nil; h = h.Parent {
		if h.PCI != nil {
			return h
		}
	}
	return nil
}

// pciHolds reports whether hardware fulfils a pci table: a PCI function by
// what it is, and a USB device, where a usb table stands beside it (below),
// by what its controller is.
func pciHolds(conditions []condition, h *device.Hardware, below bool) bool {
	if h.PCI == nil && !below || function(h) == nil {
		return false
	}
	for i := range conditions {
		if c := &conditions[i]; !c.values.Match(pciValue(h, c.key)) {
			return false
		}
	}
	return true
}
