package matchers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// candidate is a device that a resource selects: nodes by path with their hardware, if any, or a path, a
// CDI device or a virtual device.
type candidate struct {
	// hardware is nil for nodes without hardware and for a pool. For a group it is the hardware
	// of the first part, by which devices are sorted.
	hardware *device.Hardware
	// picks are the selected nodes, network interfaces and paths to mount.
	picks []pick
	// single is set for one node without the rest of its hardware, and for a candidate without
	// nodes and hardware.
	single bool
	// cdi and virtual are nil, unless the device is a CDI device of the host or a virtual device.
	cdi     *device.CDIDevice
	virtual *config.Virtual
	// name is the name of a path, a CDI device or a virtual device in messages.
	name string
	// vfio is set for the device of an IOMMU group that a match with vfio = true selects.
	vfio bool
	// united is the hardware of a device that combines several: the parts of a pool or a group, and the
	// selected functions of an IOMMU group.
	united []*device.Hardware
	// pool is set for everything that a resource selects, as one device.
	pool bool
	// value is the value of the variable of each that all hardware of the device has, or empty.
	value string
	// parts are the candidates that the device combines.
	parts []candidate
	// match is the first match that selects a device without picks.
	match *predicate
}

// matches lists the matches that select the device and its parts.
func (c *candidate) matches() []*predicate {
	var all []*predicate
	if c.match != nil {
		all = append(all, c.match)
	}
	for _, p := range c.picks {
		all = append(all, p.match)
	}
	for i := range c.parts {
		all = append(all, c.parts[i].matches()...)
	}
	return all
}

// slots returns the number of slots: the smallest count of its matches, so that no node has more containers than
// its match allows. A device without any match, as in Variables, has one slot.
func (c *candidate) slots() int {
	matches := c.matches()
	if len(matches) == 0 {
		return 1
	}
	return slices.MinFunc(matches, func(a, b *predicate) int {
		return cmp.Compare(a.Count, b.Count)
	}).Count
}

// isDangerous reports whether a match that selects the device, which permits its companions too, has
// dangerous = true.
func (c *candidate) isDangerous() bool {
	return slices.ContainsFunc(c.matches(), func(p *predicate) bool {
		return p.Dangerous
	})
}

// pick is a selected node, network interface or path to mount, and the first match that selected it, which
// has its path in the container. The hardware is the hardware of the device that the node is part of. The
// node of a mount only has the path on the host.
type pick struct {
	target
	match *predicate
}

// members lists the hardware of a device.
func (c *candidate) members() []*device.Hardware {
	if c.united == nil && c.hardware != nil {
		return []*device.Hardware{c.hardware}
	}
	return c.united
}

// isCombined reports whether the device is a pool or a group.
func (c *candidate) isCombined() bool { return c.pool || c.value != "" }

// nodes lists the picks that are device nodes.
func (c *candidate) nodes() []pick {
	return slices.DeleteFunc(slices.Clone(c.picks), func(p pick) bool {
		return p.isNet() || p.match.Mount
	})
}

// comparePicks orders picks by the sysfs path of their hardware, then by path. Hardware as a whole comes before
// its nodes.
func comparePicks(a, b pick) int {
	return cmp.Or(
		strings.Compare(hardwarePath(a.hardware), hardwarePath(b.hardware)),
		strings.Compare(a.target.path(), b.target.path()),
	)
}

// compareHardware orders candidates by the sysfs path of their hardware. Candidates without
// hardware come first, and are equal.
func compareHardware(a, b candidate) int {
	return strings.Compare(hardwarePath(a.hardware), hardwarePath(b.hardware))
}

// sortHardware sorts hardware as a snapshot does, without repeats.
func sortHardware(hardware []*device.Hardware) []*device.Hardware {
	slices.SortFunc(hardware, func(a, b *device.Hardware) int {
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(hardware)
}

// iommuGroup returns the number of the IOMMU group that a device reaches through VFIO, or an empty string.
func (c *candidate) iommuGroup() string {
	if c.vfio {
		return c.hardware.IOMMUGroup()
	}
	return vfioGroup(c.hardware)
}

// describe names a device for an administrator, in notes and in explanations.
func (c *candidate) describe() string {
	// The order matters: a pool or a group may also have hardware and picks.
	if c.pool {
		return "the pool"
	}
	if c.value != "" {
		return fmt.Sprintf("the group %q", c.value)
	}
	if c.name != "" {
		return c.name
	}
	text := ""
	// A candidate that is not single has hardware: nodes without hardware are always single.
	if !c.single {
		text = describe(c.hardware)
	} else if c.picks[0].isNet() {
		text = "network interface " + c.picks[0].node.Path
	} else {
		text = c.picks[0].node.Path
	}
	group := c.iommuGroup()
	if group != "" {
		text += " of IOMMU group " + group
	}
	return text
}

// describe names hardware for an administrator. h must not be nil.
func describe(h *device.Hardware) string {
	switch h.Bus {
	case device.USBBus:
		// The name in sysfs is only the port: "1-2". The product tells people which device it is.
		if h.USB != nil && h.USB.ProductName != "" {
			return fmt.Sprintf("USB device %s (%q)", h.Name, h.USB.ProductName)
		}
		return "USB device " + h.Name
	case device.PCIBus:
		return "PCI function " + h.Name
	case device.MDevBus:
		return "mediated device " + h.Name
	}
	return "platform device " + h.Name
}

// andMore formats the first of n names, and the number of the others: "/dev/ttyUSB0 and 2 more".
func andMore(first string, n int) string {
	if n < 2 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, n-1)
}
