package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Found is a device that Find has found.
type Found struct {
	// Hardware is nil if the node has none.
	Hardware *device.Hardware
	// Node is nil unless the name belongs to a node or a network interface.
	Node *device.Node
}

// Find finds a device by any of its names: a path, a device ID, a PCI address, a USB port, a serial
// number, vendor:product, or a network interface. Exact names come first. The error names the
// devices if several match, and otherwise a similar path or a command that lists all names. forms
// are the forms of USB IDs on this host.
func (c *Catalog) Find(forms device.Forms, name string) (Found, error) {
	// udev's links such as /dev/serial/by-id are names of the nodes that they point to.
	for _, l := range c.snap.Links {
		if l.Path == name {
			return Found{l.Node.Hardware, l.Node}, nil
		}
	}
	// The name of an interface is never the path of a node.
	nodes := slices.Concat(c.snap.Nodes, c.snap.Nets)
	for _, n := range nodes {
		if n.Path == name || c.nodeID(n, forms) == name {
			return Found{n.Hardware, n}, nil
		}
	}
	for _, h := range c.snap.Hardware {
		if isNamed(h, forms, name) {
			return Found{Hardware: h}, nil
		}
	}
	models := c.ofModel(name)
	if len(models) == 1 {
		return Found{Hardware: models[0]}, nil
	}
	if len(models) > 1 {
		return Found{}, ambiguous(name, models)
	}
	// The kernel's name comes last: it may be a serial number of other hardware.
	for _, n := range nodes {
		if n.Kernel == name {
			return Found{n.Hardware, n}, nil
		}
	}
	return Found{}, fmt.Errorf("no device %q on this host\n  hint: %s", name, c.hint(name))
}

// nodeID returns the ID of a node or a network interface. It caches the keys of the hardware,
// because Find asks for the ID of every node.
func (c *Catalog) nodeID(n *device.Node, forms device.Forms) string {
	h := n.Hardware
	if h == nil {
		return device.NodeID(n, "")
	}
	keys, known := c.keys[h]
	if !known {
		keys = device.NodeKeys(h)
		c.keys[h] = keys
	}
	return device.KeyedNodeID(n, forms.Of(h), keys[n])
}

// isNamed reports whether a name means this hardware, and not just its model.
func isNamed(h *device.Hardware, forms device.Forms, name string) bool {
	isKernelName := h.Name == name || h.Name == "0000:"+name // lspci omits the domain
	// An empty name would match every device without a serial number.
	isSerial := h.USB != nil && name != "" && h.USB.Serial == name
	return isKernelName || isSerial || device.HardwareID(h, forms.Of(h)) == name
}

// ofModel returns the hardware with an ID vendor:product.
func (c *Catalog) ofModel(id string) []*device.Hardware {
	var found []*device.Hardware
	for _, h := range c.snap.Hardware {
		// Root hubs have the IDs of the Linux Foundation, and cannot be selected.
		vendor, product := ids(h)
		if !h.IsRootHub() && strings.EqualFold(vendor+":"+product, id) {
			found = append(found, h)
		}
	}
	return found
}

// ambiguous returns the error for the ID of a model of which the host has several devices.
func ambiguous(name string, found []*device.Hardware) error {
	var names []string
	for _, h := range found {
		names = append(names, h.Name)
	}
	return fmt.Errorf("%q matches %d devices: use one of %s", name, len(found), strings.Join(names, ", "))
}

// hint says what to try instead of a name that no device has.
func (c *Catalog) hint(name string) string {
	// The numbers of nodes change, and people remember the old ones.
	for _, n := range c.snap.Nodes {
		if stem(n.Path) == stem(name) {
			return "there is " + n.Path
		}
	}
	return "generic-dp devices --all lists all hardware"
}
