package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// For returns the resource for one device, as Find returns it. If a node was found, the resource
// has only this node where it can be distinguished from the other nodes of the device.
func (c *Catalog) For(found Found) Resource {
	h := found.Hardware
	n := found.Node
	hasModel := h != nil && (h.Bus != device.PlatformBus || h.IsPartition())
	if !hasModel && n == nil {
		// Platform devices are in a snapshot only if they have one.
		n = slices.Concat(h.Nodes, h.Nets)[0]
	}
	if n != nil && n.Net != nil {
		return forInterface(h, n, hasModel)
	}
	if !hasModel {
		k := c.kindOfNode(n)
		return c.resourceOfNodes(k, pattern.Quote(n.Path), []string{n.Path})
	}
	g := c.groupOf(h)
	if g == nil {
		g = &group{
			kind:    c.kindOf(h),
			members: []*device.Hardware{h},
		}
		g.name = cmp.Or(g.name, string(h.Bus)+" device")
		g.nodes = nil
		// Starter leaves out devices that the kernel uses, but this one was asked for.
		if !h.IsRootHub() && c.hasNode(h, []string{busNodes}) {
			g.nodes = []string{busNodes}
		}
	}
	conditions := c.distinguishing(h)
	// The number of an IOMMU group changes with the firmware: key vfio finds it.
	if n != nil && !strings.HasPrefix(n.Path, "/dev/vfio/") {
		conditions = append(conditions, c.narrow(g, n)...)
	}
	selection := append([]string{identity(h, conditions...)}, c.onePartition(h)...)
	g.identity = strings.Join(selection, "\n")
	g.resource = cmp.Or(g.resource, slug(strings.ToLower(g.name)))
	r := c.resourceOf(g)
	// The administrator asked for it: a comment is enough.
	driver := kernelDriver(h)
	if slices.Equal(g.nodes, []string{busNodes}) && driver != "" {
		r.Comment = append(r.Comment, "The kernel's driver "+driver+" uses it: a container with this node can take it away from the host.")
	}
	return r
}

// forInterface returns the resource for a network interface. Its name selects it, together with the
// model of its hardware if there is one.
func forInterface(h *device.Hardware, n *device.Node, hasModel bool) Resource {
	r := Resource{
		Name:    slug(n.Path),
		Comment: []string{"network interface " + n.Path},
	}
	if hasModel {
		r.Lines = append(r.Lines, identity(h))
	}
	r.Lines = append(r.Lines, "match.net.name = "+Quote(pattern.Quote(n.Path)), cdiLine)
	return r
}

// distinguishing returns conditions for one device among others of its model: its serial number if
// that is unique, otherwise its location. It returns nil if the device has no usable serial number
// and the host has no other device of its model, and for a partition: see onePartition.
func (c *Catalog) distinguishing(h *device.Hardware) []string {
	if reenumeratedIDs(h) != nil {
		// The serial number appears with the firmware.
		return []string{fmt.Sprintf("path = %q", attribute(h, "usb.path"))}
	}
	serial := attribute(h, "usb.serial")
	sameModel := c.sameModel(h)
	sameSerial := slices.ContainsFunc(sameModel, func(other *device.Hardware) bool {
		return attribute(other, "usb.serial") == serial
	})
	// A configuration is UTF-8, and a placeholder is the serial of all devices of a model.
	hasSerial := h.USB != nil && serial != "" && utf8.ValidString(serial) && !device.PlaceholderSerial(serial)
	switch {
	case h.IsPartition():
		return nil
	case hasSerial && !sameSerial:
		return []string{"serial = " + Quote(pattern.Quote(serial))}
	case len(sameModel) == 0:
		return nil
	case h.USB != nil:
		return []string{fmt.Sprintf("path = %q", attribute(h, "usb.path"))}
	case h.PCI != nil && h.PCI.SRIOV == "sf":
		return []string{
			fmt.Sprintf("pf = %q", h.PCI.PF),
			fmt.Sprintf("vf = \"%d\"", h.PCI.VF),
		}
	case h.PCI != nil:
		return []string{fmt.Sprintf("address = %q", h.PCI.Address)}
	}
	return []string{fmt.Sprintf("uuid = %q", attribute(h, "mdev.uuid"))}
}

// onePartition returns the lines that select one partition of an AMD GPU. All partitions have the
// address of the GPU. The first one has the nodes of the GPU itself.
func (c *Catalog) onePartition(h *device.Hardware) []string {
	if h.IsPartition() {
		return []string{fmt.Sprintf("match.attr.modalias = %q", "platform:"+h.Name)}
	}
	for _, other := range c.snap.Hardware {
		if other.IsPartition() && other.Parent == h {
			return []string{`exclude.attr.modalias = "platform:*"`}
		}
	}
	return nil
}

// sameModel returns the other hardware on the bus of h that has its vendor and product.
func (c *Catalog) sameModel(h *device.Hardware) []*device.Hardware {
	// Mediated devices have no IDs: all on the bus count as one model.
	vendor, product := ids(h)
	var found []*device.Hardware
	for _, other := range c.snap.Hardware {
		otherVendor, otherProduct := ids(other)
		isSame := otherVendor == vendor && otherProduct == product
		if other != h && other.Bus == h.Bus && isSame {
			found = append(found, other)
		}
	}
	return found
}
