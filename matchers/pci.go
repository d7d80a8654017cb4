package matchers

import (
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// pfKey is the key of a pci table that another function is named by.
const pfKey = "pf"

// pciValue is what hardware has for a key of a pci table, and for the
// variable ${pci.KEY}; empty where it has nothing. Of a USB or mediated device
// it is what the nearest PCI function above it has.
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
	case pfKey:
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

// pciHolds reports whether hardware fulfils conditions of a pci table: a PCI
// function by what it is, and a USB or mediated device, where the table of
// those stands beside it, by the function above it.
func (p *predicate) pciHolds(conditions []condition, h *device.Hardware) bool {
	below := p.match.USB != nil || p.match.MDev != nil
	if h.PCI == nil && !below || function(h) == nil {
		return false
	}
	return holdAll(conditions, func(key string) string { return pciValue(h, key) }) &&
		(p.pf.Empty() || p.pf.Match(p.ix.physical(h)...))
}

// physical names the physical function of a virtual one: by its address, and by
// its network interfaces.
func (ix *index) physical(h *device.Hardware) []string {
	address := pciValue(h, pfKey)
	if address == "" {
		return nil
	}
	names := []string{address}
	if ix.functions == nil {
		ix.functions = map[string]*device.Hardware{}
		for _, f := range ix.bus[device.PCIBus] {
			ix.functions[f.Name] = f
		}
	}
	if pf := ix.functions[address]; pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}
