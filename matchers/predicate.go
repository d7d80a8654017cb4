package matchers

import (
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// predicate is a match, prepared for many comparisons.
type predicate struct {
	*config.Match
	ix *index
	// hardware are the conditions of usb, pci and mdev on hardware as a whole,
	// nets those on network interfaces.
	hardware, nets []condition
	// number, class and pf are usb.interface, usb.interface_class and pci.pf.
	number, class, pf pattern.Values
}

// condition is the wanted value of an attribute.
type condition struct {
	attribute *device.Attribute
	values    pattern.Values
}

func (ix *index) predicates(matches []config.Match) []*predicate {
	out := make([]*predicate, len(matches))
	for i := range matches {
		m := &matches[i]
		out[i] = &predicate{Match: m, ix: ix, number: m.USB["interface"], class: m.USB["interface_class"], pf: m.PCI["pf"]}
		out[i].add("usb", m.USB)
		out[i].add("pci", m.PCI)
		out[i].add("mdev", m.MDev)
		out[i].add("net", m.Net)
	}
	return out
}

// add adds the conditions of a table.
func (p *predicate) add(table string, conditions map[string]pattern.Values) {
	for key, v := range conditions {
		switch a, ok := device.FindAttribute(table + "." + key); {
		case !ok || a.Interface != nil || a.Name() == "pci.pf":
		case a.Net != nil:
			p.nets = append(p.nets, condition{a, v})
		default:
			p.hardware = append(p.hardware, condition{a, v})
		}
	}
}

// selectsNets reports whether the match selects network interfaces. With a glob,
// net is only a condition on the hardware of the nodes.
func (p *predicate) selectsNets() bool { return p.Net != nil && p.Glob.Empty() && !p.VFIO }

// onlyNets reports whether it selects network interfaces only.
func (p *predicate) onlyNets() bool {
	return p.selectsNets() && p.USB == nil && p.PCI == nil && p.MDev == nil
}

// matchesTables compares hardware with usb, pci and mdev, but for conditions on
// USB interfaces. Root hubs are part of their controllers and never match. Beside
// usb or mdev, pci is about the function above the device.
func (p *predicate) matchesTables(h *device.Hardware) bool {
	switch {
	case p.USB != nil && (h.USB == nil || h.IsRootHub()):
		return false
	case p.MDev != nil && h.MDev == nil:
		return false
	case p.PCI != nil && (h.Function() == nil || h.PCI == nil && p.USB == nil && p.MDev == nil):
		return false
	}
	for i := range p.hardware {
		if c := &p.hardware[i]; !c.values.Match(c.attribute.Hardware(h)) {
			return false
		}
	}
	return p.pf.Empty() || p.pf.Match(p.ix.physical(h.Function())...)
}

// physical names the physical function of a virtual one: its address and its
// network interfaces.
func (ix *index) physical(vf *device.Hardware) []string {
	names := []string{vf.PCI.PF}
	if pf := ix.byAddress()[vf.PCI.PF]; pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}

// matchesHardware is matchesTables and net: one of the network interfaces of the
// hardware matches.
func (p *predicate) matchesHardware(h *device.Hardware) bool {
	return p.matchesTables(h) && (p.Net == nil || slices.ContainsFunc(h.Nets, p.matchesNet))
}

// matchesNet compares a network interface with net.
func (p *predicate) matchesNet(n *device.Node) bool {
	return n.Net != nil && !slices.ContainsFunc(p.nets, func(c condition) bool { return !c.values.Match(c.attribute.Net(n)) })
}

// matchesInterface compares the USB interfaces of a node, or of h where n is nil,
// with usb.interface and usb.interface_class. With both, the class of that
// interface counts.
func (p *predicate) matchesInterface(h *device.Hardware, n *device.Node) bool {
	if h == nil || p.number.Empty() && p.class.Empty() {
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

// matchesSysfs compares directories of sysfs, nearest first, with driver and
// attr. It comes last, since reads are slow.
func (p *predicate) matchesSysfs(dirs []string) bool {
	return (p.Driver.Empty() || p.Driver.Match(p.ix.driver(dirs))) && p.matchesAttrs(dirs)
}

func (p *predicate) matchesAttrs(dirs []string) bool {
	for name, v := range p.Attr {
		if !v.Match(p.ix.attr(dirs, name)...) {
			return false
		}
	}
	return true
}

// readsSysfs reports whether the match has driver or attr.
func (p *predicate) readsSysfs() bool { return !p.Driver.Empty() || len(p.Attr) > 0 }

// matchesWithoutNode compares hardware that matches the tables with the rest of
// the match, regardless of its nodes.
func (p *predicate) matchesWithoutNode(h *device.Hardware) bool {
	return p.matchesInterface(h, nil) &&
		(p.Subsystem.Empty() || p.Subsystem.Match()) &&
		p.matchesSysfs([]string{h.Path})
}

// matchesWhole reports whether the match selects hardware, regardless of its
// nodes.
func (p *predicate) matchesWhole(h *device.Hardware) bool {
	return p.NamesHardware() && p.Glob.Empty() && p.matchesHardware(h) && p.matchesWithoutNode(h)
}

// matches reports whether the match selects a node or network interface.
func (p *predicate) matches(n *device.Node) bool { return p.matchesAs(n, n.Hardware) }

// matchesAs is matches for a node as one of h.
func (p *predicate) matchesAs(n *device.Node, h *device.Hardware) bool {
	return (p.Glob.Empty() || n.Net == nil && p.ix.matchesGlob(p.Glob, n)) && p.matchesExceptGlob(n, h)
}

// matchesExceptGlob is matchesAs for a node that the glob matches. A network
// interface without hardware matches net only.
func (p *predicate) matchesExceptGlob(n *device.Node, h *device.Hardware) bool {
	switch {
	case n.Net == nil && p.NamesHardware() && (h == nil || !p.matchesHardware(h)):
		return false
	case n.Net != nil && p.Net != nil && !p.matchesNet(n):
		return false
	case n.Net != nil && (p.USB != nil || p.PCI != nil || p.MDev != nil) && (h == nil || !p.matchesTables(h)):
		return false
	case p.VFIO && !isGroupNode(n) && !isFunctionNode(n):
		return false
	}
	return p.matchesNode(n)
}

// matchesNode compares a node with the conditions that are neither about its path
// nor about its hardware.
func (p *predicate) matchesNode(n *device.Node) bool {
	return p.matchesInterface(n.Hardware, n) &&
		(p.Subsystem.Empty() || p.Subsystem.Match(n.Subsystem)) &&
		(!p.readsSysfs() || p.matchesSysfs(sysDirs(n)))
}

// matchesPath reports whether the match has nothing but a glob, which matches a
// host path.
func (p *predicate) matchesPath(host string) bool {
	return !p.Glob.Empty() && !p.NamesHardware() && p.Subsystem.Empty() && !p.readsSysfs() && p.Glob.Match(host)
}
