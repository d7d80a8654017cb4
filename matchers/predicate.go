package matchers

import (
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// predicate is a match made ready to be asked many times.
type predicate struct {
	match                *config.Match
	usb, pci, mdev, nets []condition
	// number and class are what the usb table says of interfaces.
	number, class pattern.Values
	// pf is what the pci table says of a physical function, which is looked
	// up in ix.
	pf pattern.Values
	ix *index
}

// condition is what a table says of one attribute.
type condition struct {
	attribute *device.Attribute
	values    pattern.Values
}

func (ix *index) predicates(matches []config.Match) []*predicate {
	out := make([]*predicate, len(matches))
	for i := range matches {
		m := &matches[i]
		out[i] = &predicate{
			match: m, ix: ix,
			usb: conditions("usb", m.USB), pci: conditions("pci", m.PCI), mdev: conditions("mdev", m.MDev), nets: conditions("net", m.Net),
			number: m.USB["interface"], class: m.USB["interface_class"], pf: m.PCI["pf"],
		}
	}
	return out
}

// conditions are those of a table that are about hardware as a whole, or about a
// network interface. That on a physical function has more to ask than its own
// attribute.
func conditions(table string, values map[string]pattern.Values) []condition {
	var out []condition
	for key, v := range values {
		if a, ok := device.FindAttribute(table + "." + key); ok && a.Interface == nil && a.Name() != "pci.pf" {
			out = append(out, condition{a, v})
		}
	}
	return out
}

// hold reports whether all conditions hold for hardware.
func hold(conditions []condition, h *device.Hardware) bool {
	for i := range conditions {
		if c := &conditions[i]; !c.values.Match(c.attribute.Hardware(h)) {
			return false
		}
	}
	return true
}

// selectsNodes reports whether nodes are among what the match selects: all
// matches but those of network interfaces alone.
func (p *predicate) selectsNodes() bool {
	m := p.match
	return m.Net == nil || !m.Glob.Empty() || m.VFIO || m.USB != nil || m.PCI != nil || m.MDev != nil
}

// selectsNets reports whether network interfaces are. With a glob the net
// table is no more than a condition on the hardware of its nodes.
func (p *predicate) selectsNets() bool {
	return p.match.Net != nil && p.match.Glob.Empty() && !p.match.VFIO
}

// tablesHold reports whether hardware fulfils the usb, pci and mdev tables of
// a match, but for what they say of interfaces.
func (p *predicate) tablesHold(h *device.Hardware) bool {
	m := p.match
	return (m.USB == nil || usbHolds(p.usb, h)) &&
		(m.MDev == nil || mdevHolds(p.mdev, h)) &&
		(m.PCI == nil || p.pciHolds(p.pci, h))
}

// hardwareHolds is tablesHold, and hardware has a network interface as the
// net table wants it.
func (p *predicate) hardwareHolds(h *device.Hardware) bool {
	return p.tablesHold(h) && (p.match.Net == nil || slices.ContainsFunc(h.Nets, p.netHolds))
}

// wholeHolds reports whether the match selects hardware as such, whatever
// nodes it has.
func (p *predicate) wholeHolds(ix *index, h *device.Hardware) bool {
	return p.match.NamesHardware() && p.match.Glob.Empty() && p.hardwareHolds(h) && p.withoutNode(ix, h)
}

// withoutNode reports whether hardware of which the tables hold fulfils the
// rest of the match where there is no node to look at.
func (p *predicate) withoutNode(ix *index, h *device.Hardware) bool {
	return p.interfaceHolds(h, nil) &&
		(p.match.Subsystem.Empty() || p.match.Subsystem.Match()) &&
		(p.asksNothing() || p.sysHolds(ix, []string{h.Path}))
}

// holds reports whether the match selects a node or a network interface.
func (p *predicate) holds(ix *index, n *device.Node) bool { return p.holdsOf(ix, n, n.Hardware) }

// holdsOf does so for one that is taken as one of h.
func (p *predicate) holdsOf(ix *index, n *device.Node, h *device.Hardware) bool {
	if n.Net != nil {
		return p.interfaceSelected(ix, n)
	}
	return (p.match.Glob.Empty() || ix.globHolds(p.match.Glob, n)) && p.holdsBesideGlob(ix, n, h)
}

// holdsBesideGlob does so where the glob holds.
func (p *predicate) holdsBesideGlob(ix *index, n *device.Node, h *device.Hardware) bool {
	return (!p.match.NamesHardware() || h != nil && p.hardwareHolds(h)) && p.nodeHolds(ix, n)
}

// nodeHolds is the part of holds that looks at the node, not its path or its
// hardware.
func (p *predicate) nodeHolds(ix *index, n *device.Node) bool {
	m := p.match
	if n.Hardware != nil && !p.interfaceHolds(n.Hardware, n) {
		return false
	}
	if m.VFIO && !isGroupNode(n) && !isFunctionNode(n) {
		return false
	}
	return (m.Subsystem.Empty() || m.Subsystem.Match(n.Subsystem)) &&
		(p.asksNothing() || p.sysHolds(ix, ix.sysDirs(n)))
}
