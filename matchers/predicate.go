package matchers

import (
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// predicate is a match made ready to be asked many times.
type predicate struct {
	*config.Match
	ix *index
	// hardware are the conditions of the usb, pci and mdev tables on hardware as
	// a whole, nets those on network interfaces.
	hardware, nets []condition
	// number and class are what the usb table says of USB interfaces, pf what
	// the pci table says of a physical function.
	number, class, pf pattern.Values
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

// selectsNets reports whether the match selects network interfaces. With a glob
// the net table is no more than a condition on the hardware of its nodes.
func (p *predicate) selectsNets() bool { return p.Net != nil && p.Glob.Empty() && !p.VFIO }

// onlyNets reports whether the match selects nothing but network interfaces.
func (p *predicate) onlyNets() bool {
	return p.selectsNets() && p.USB == nil && p.PCI == nil && p.MDev == nil
}

// tablesHold reports whether hardware fulfils the usb, pci and mdev tables, but
// for what they say of USB interfaces. Root hubs are part of their controllers
// and fulfil none. With usb or mdev beside it the pci table is about the
// function above the device.
func (p *predicate) tablesHold(h *device.Hardware) bool {
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

// physical names the physical function of a virtual one: by its address, and by
// its network interfaces.
func (ix *index) physical(vf *device.Hardware) []string {
	names := []string{vf.PCI.PF}
	if pf := ix.byName()[vf.PCI.PF]; pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}

// hardwareHolds is tablesHold, and hardware has a network interface as the net
// table wants it.
func (p *predicate) hardwareHolds(h *device.Hardware) bool {
	return p.tablesHold(h) && (p.Net == nil || slices.ContainsFunc(h.Nets, p.netHolds))
}

// netHolds reports whether a network interface fulfils the net table.
func (p *predicate) netHolds(n *device.Node) bool {
	return n.Net != nil && !slices.ContainsFunc(p.nets, func(c condition) bool { return !c.values.Match(c.attribute.Net(n)) })
}

// interfaceHolds reports whether a node of h, or h itself where n is nil,
// fulfils what the usb table says of USB interfaces. Where the table names both
// number and class, it is the interface of that number whose class counts.
func (p *predicate) interfaceHolds(h *device.Hardware, n *device.Node) bool {
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

// sysHolds reports whether directories of sysfs, nearest first, fulfil what the
// match says of driver and attributes. It comes last: a read takes long beside
// a comparison.
func (p *predicate) sysHolds(dirs []string) bool {
	return (p.Driver.Empty() || p.Driver.Match(p.ix.driver(dirs))) && p.attrsHold(dirs)
}

func (p *predicate) attrsHold(dirs []string) bool {
	for name, v := range p.Attr {
		if !v.Match(p.ix.attr(dirs, name)) {
			return false
		}
	}
	return true
}

// readsSysfs reports whether the match has conditions for sysHolds.
func (p *predicate) readsSysfs() bool { return !p.Driver.Empty() || len(p.Attr) > 0 }

// withoutNode reports whether hardware that fulfils the tables fulfils the rest
// of the match, too, whatever nodes it has.
func (p *predicate) withoutNode(h *device.Hardware) bool {
	return p.interfaceHolds(h, nil) &&
		(p.Subsystem.Empty() || p.Subsystem.Match()) &&
		p.sysHolds([]string{h.Path})
}

// holdsWhole reports whether the match selects hardware as such.
func (p *predicate) holdsWhole(h *device.Hardware) bool {
	return p.NamesHardware() && p.Glob.Empty() && p.hardwareHolds(h) && p.withoutNode(h)
}

// holds reports whether the match selects a node or a network interface.
func (p *predicate) holds(n *device.Node) bool { return p.holdsOf(n, n.Hardware) }

// holdsOf does so for one that is taken as one of h.
func (p *predicate) holdsOf(n *device.Node, h *device.Hardware) bool {
	return (p.Glob.Empty() || n.Net == nil && p.ix.globHolds(p.Glob, n)) && p.holdsBesideGlob(n, h)
}

// holdsBesideGlob does so where the glob holds. A network interface without
// hardware fulfils no table but net.
func (p *predicate) holdsBesideGlob(n *device.Node, h *device.Hardware) bool {
	switch {
	case n.Net == nil && p.NamesHardware() && (h == nil || !p.hardwareHolds(h)):
		return false
	case n.Net != nil && p.Net != nil && !p.netHolds(n):
		return false
	case n.Net != nil && (p.USB != nil || p.PCI != nil || p.MDev != nil) && (h == nil || !p.tablesHold(h)):
		return false
	case p.VFIO && !isGroupNode(n) && !isFunctionNode(n):
		return false
	}
	return p.restHolds(n)
}

// restHolds is the part of holds that is neither about the path of a node nor
// about its hardware.
func (p *predicate) restHolds(n *device.Node) bool {
	return p.interfaceHolds(n.Hardware, n) &&
		(p.Subsystem.Empty() || p.Subsystem.Match(n.Subsystem)) &&
		(!p.readsSysfs() || p.sysHolds(sysDirs(n)))
}

// holdsPath reports whether the match is nothing but a glob, and that selects a
// path.
func (p *predicate) holdsPath(host string) bool {
	return !p.Glob.Empty() && !p.NamesHardware() && p.Subsystem.Empty() && !p.readsSysfs() && p.Glob.Match(host)
}
