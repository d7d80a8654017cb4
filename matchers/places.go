package matchers

import (
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// places are what the device uses of the host, see device.Conflict: its hardware, or its nodes
// without the rest of their hardware. Companions do not count.
func (b *builder) places() []string {
	c := b.c
	var places []string
	whole := c.members()
	if c.single {
		whole = nil
	}
	if c.vfio && c.hardware != nil {
		places = b.hardwarePlaces(c.hardware) // it may be none of the selected functions
	}
	for _, h := range whole {
		places = append(places, b.hardwarePlaces(h)...)
	}
	for _, p := range c.picks {
		if !slices.Contains(whole, p.node.Hardware) {
			places = append(places, b.nodePlaces(p.node)...)
		}
	}
	for _, d := range c.cdiDevices() {
		places = append(places, b.cdiPlaces(d)...)
	}
	// A device without hardware, such as a licence, is only itself. Without any place it would be
	// unknown what a container uses that holds it.
	if len(places) == 0 {
		places = []string{device.OwnPlace(b.id)}
	}
	return unique(places)
}

// cdiDevices lists the CDI devices of the host that the device is or combines.
func (c *candidate) cdiDevices() []*device.CDIDevice {
	if c.cdi != nil {
		return []*device.CDIDevice{c.cdi}
	}
	var all []*device.CDIDevice
	for i := range c.parts {
		all = append(all, c.parts[i].cdiDevices()...)
	}
	return all
}

// unique returns the values that are not empty, each once, in their order.
func unique(values []string) []string {
	var all []string
	for _, v := range values {
		if v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// names are the names of the USB hardware of the device, see device.USBNames.
func (b *builder) names() []string {
	var names []string
	for _, h := range b.c.members() {
		names = append(names, device.USBNames(h)...)
	}
	for _, p := range b.c.picks {
		names = append(names, device.USBNames(p.node.Hardware)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hardwarePlaces are the places of hardware with all its nodes.
func (b *builder) hardwarePlaces(h *device.Hardware) []string {
	return append(b.wholePlaces(h), groupPlaces(h)...)
}

// groupPlaces are the IOMMU group of hardware that is bound to VFIO: each function of the group can reach the
// others.
func groupPlaces(h *device.Hardware) []string {
	group := vfioGroup(h)
	if group == "" {
		return nil
	}
	return []string{device.GroupPlace(group)}
}

// wholePlaces are the places that name hardware itself: where it is, and its serial number if the ID of
// the device may contain it. A device with the ID of its port is another one in another port.
func (b *builder) wholePlaces(h *device.Hardware) []string {
	places := []string{b.hardwarePlace(h)}
	isByPort := b.r.Identity == config.IdentityPort || b.forms.Of(h) != device.SerialForm
	if h.USB != nil && !isByPort {
		places = append(places, device.HardwareID(h, device.SerialForm))
	}
	return places
}

// hardwarePlace is the place of hardware in the tree of the host. That is its path in sysfs, except
// for parts of a function that are beside the function there.
func (m *run) hardwarePlace(h *device.Hardware) string {
	if h.PCI != nil && h.PCI.PF != "" {
		pf := m.function(h.PCI.PF)
		if pf != nil && pf != h {
			return m.hardwarePlace(pf) + "/" + h.Name
		}
	}
	if h.Parent == nil {
		return h.Path
	}
	whole := m.hardwarePlace(h.Parent)
	if !device.IsPart(h.Path, h.Parent.Path) {
		return whole + "/" + h.Name // a partition of a GPU
	}
	if whole == h.Parent.Path {
		return h.Path
	}
	return whole + h.Path[len(h.Parent.Path):]
}

// nodePlaces are the places of a node without the rest of its hardware. Its key stays the same when
// the kernel gives it another name.
func (b *builder) nodePlaces(n *device.Node) []string {
	var places []string
	if n.Hardware == nil {
		places = append(places, n.Path)
	} else {
		key := b.key(n)
		if busNodeOf(n) != nil {
			key = "" // it gives access to the whole device, whatever its drivers are
		}
		for _, place := range b.wholePlaces(n.Hardware) {
			places = append(places, device.NodePlace(place, key))
		}
	}
	// The directory of a partition is below the one of its disk. The key of an I2C bus depends on the
	// other buses of its hardware, and its directory does not.
	if n.SysPath != "" {
		places = append(places, n.SysPath)
	}
	// A node of a group gives access to all its functions.
	if isVFIONode(n) {
		places = append(places, groupPlaces(n.Hardware)...)
	}
	return places
}

// cdiPlaces are the places of a CDI device of the host: its name, and its own nodes if it is exclusive.
// Parts of a device may have a node in common, such as the partitions of a GPU.
func (b *builder) cdiPlaces(d *device.CDIDevice) []string {
	places := []string{"cdi " + d.Name}
	if !b.r.Exclusive {
		return places
	}
	for _, own := range d.Nodes {
		if own.Common {
			continue
		}
		if n := b.at(own.Path); n != nil {
			places = append(places, b.nodePlaces(n)...)
		}
	}
	return places
}
