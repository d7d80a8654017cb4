package importer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// The plugin reads devlink and netlink as well. Pools that select by them, such as vDPA and
// DDP profiles, are not compared.

// sriovLister lists the devices of all pools. A function belongs to the first pool with a
// selector that selects it (discoverDevices and GetFilteredDevices in
// pkg/resources and cmd/sriovdp/manager.go of sriov-network-device-plugin).
type sriovLister struct {
	pools []sriovPool
}

// comparable reports whether a snapshot of a host has everything that the selectors test.
func (l *sriovLister) comparable() bool {
	for _, p := range l.pools {
		for _, s := range p.oneOf {
			needsMore := len(s.ACPIIndexes) > 0 || s.VDPAType != ""
			isOfOneNode := p.node != ""
			if p.DeviceType == sriovAux || isOfOneNode || needsMore {
				return false
			}
			if s.untestable(p.DeviceType) != "" {
				return false
			}
		}
	}
	return true
}

// devices lists the functions that belong to a pool, by address.
func (l *sriovLister) devices(h *host) (devices []Device) {
	for _, hw := range h.Hardware {
		if hw.PCI == nil || hw.PCI.SRIOV == "sf" {
			continue
		}
		i := slices.IndexFunc(l.pools, func(p sriovPool) bool {
			return p.selects(h, hw)
		})
		if i < 0 {
			continue
		}
		devices = append(devices, Device{
			Resource: l.pools[i].ResourcePrefix + "/" + l.pools[i].ResourceName,
			Slots:    1,
			ID:       hw.PCI.Address,
		})
	}
	order.Sort(devices, func(a, b Device) int {
		return cmp.Compare(a.ID, b.ID)
	})
	return devices
}

// selects reports whether a pool selects a function. Functions with virtual functions in use
// belong to none (AddTargetDevices in pkg/netdevice/netDeviceProvider.go).
func (p sriovPool) selects(h *host, hw *device.Hardware) bool {
	class := "02"
	if p.DeviceType == sriovAccelerator {
		class = "12"
	}
	if !strings.HasPrefix(hw.PCI.Class, class) {
		return false
	}
	if p.DeviceType == sriovNet && hasVirtualFunctions(h, hw) {
		return false
	}
	return slices.ContainsFunc(p.oneOf, func(s sriovSelector) bool {
		return s.selects(h, hw)
	})
}

// hasVirtualFunctions reports whether virtual functions of a function exist.
func hasVirtualFunctions(h *host, hw *device.Hardware) bool {
	return slices.ContainsFunc(h.Hardware, func(vf *device.Hardware) bool {
		return vf.PCI != nil && vf.PCI.SRIOV == "vf" && vf.PCI.PF == hw.PCI.Address
	})
}

// selects reports whether all conditions of a selector hold for a function.
func (s sriovSelector) selects(h *host, hw *device.Hardware) bool {
	conditions := []struct {
		list []string
		text string
	}{
		{s.Vendors, hw.PCI.Vendor},
		{s.Devices, hw.PCI.Device},
		{s.Drivers, hw.PCI.Driver},
		{s.PCIAddresses, hw.PCI.Address},
	}
	for _, c := range conditions {
		if len(c.list) > 0 && !slices.Contains(c.list, c.text) {
			return false
		}
	}
	pf := h.function(hw)
	if len(s.RootDevices) > 0 && !selectsFunction(s.RootDevices, []string{pf.PCI.Address}, hw) {
		return false
	}
	if len(s.PFNames) > 0 && !selectsFunction(s.PFNames, interfaces(pf), hw) {
		return false
	}
	if len(s.LinkTypes) > 0 && !selectsLink(s.LinkTypes, hw, pf) {
		return false
	}
	isUverbs := func(n *device.Node) bool {
		return strings.HasPrefix(n.Kernel, "uverbs")
	}
	return !s.IsRDMA || slices.ContainsFunc(hw.Nodes, isUverbs)
}

// function is the physical function of a virtual function, otherwise the function itself.
func (h *host) function(hw *device.Hardware) *device.Hardware {
	for _, pf := range h.Hardware {
		if pf.PCI != nil && hw.PCI.PF != "" && pf.PCI.Address == hw.PCI.PF {
			return pf
		}
	}
	return hw
}

// interfaces are the names of the network interfaces of a function.
func interfaces(hw *device.Hardware) (names []string) {
	for _, n := range hw.Nets {
		names = append(names, n.Path)
	}
	return names
}

// selectsFunction reports whether a list of physical functions, with or without numbers of
// virtual functions, has the function with one of the names.
func selectsFunction(list, names []string, hw *device.Hardware) bool {
	for _, element := range list {
		pf, vfs, ranged := strings.Cut(element, "#")
		isPF := slices.ContainsFunc(names, func(name string) bool {
			return strings.EqualFold(name, pf)
		})
		if !isPF {
			continue
		}
		if !ranged {
			return true
		}
		return hw.PCI.VF >= 0 && inRanges(vfs, hw.PCI.VF)
	}
	return false
}

// inRanges reports whether a list of ranges such as "0,2-7" has a number.
func inRanges(ranges string, n int) bool {
	for _, r := range strings.Split(ranges, ",") {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		isValid := errFrom == nil && errTo == nil
		if isValid && from <= n && n <= to {
			return true
		}
	}
	return false
}

// selectsLink reports whether the interface of a function, or of its physical function, has
// one of the types. A function without an interface may have any type.
func selectsLink(types []string, hw, pf *device.Hardware) bool {
	for _, n := range slices.Concat(hw.Nets, pf.Nets) {
		if !slices.Contains(types, n.Net.Type) {
			return false
		}
	}
	return true
}
