package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// predicate decides which nodes and hardware a match selects. All its conditions must hold.
type predicate struct {
	*config.Match
	run *run
	// conditions are in the order of the attributes in device, then subsystem, driver and attr.
	conditions []condition
	// usb, pci, net and mdev are set if the match has these tables. They are fields, because a
	// predicate asks for them for every node and all hardware.
	usb, pci, net, mdev bool
	// subFunctions is set if pci.sriov selects sub-functions, by a pattern without "!".
	subFunctions bool
	// exclude is set for a match in exclude. Conditions with unknown values hold then: a device
	// that might be excluded is not offered.
	exclude bool
}

// condition is a condition of a match, except for glob and vfio.
type condition struct {
	// about decides when the condition is compared, see matches and matchesHardware.
	about subject
	key   string // "usb.id"
	// want is never empty.
	want pattern.Values
	// One of these is set. They return the values of hardware, or of its node if the node is not nil.
	// hardware saves the allocation of a list with one value. The values of attr are in sysfs: unread is
	// set if some are not known yet.
	hardware func(*device.Hardware) string
	values   func(*device.Hardware, *device.Node) []string
	attr     func(*device.Hardware, *device.Node) (values []string, unread bool)
}

// subject is the kind of thing that a condition is about.
type subject byte

// The subjects. Conditions on nodes and directories are about the hardware if it has no nodes.
// Directories of sysfs come last, because reading them is slow.
const (
	wholeHardware subject = iota
	netInterface
	anyNode
	sysfsDir
	// The paths of a node are only a condition in explanations.
	nodePaths
)

// predicates returns the predicates of the matches of a resource, and of its excludes.
func (m *run) predicates(r *config.Resource) (matches, excludes []*predicate) {
	for i := range r.Match {
		matches = append(matches, m.predicate(&r.Match[i]))
	}
	// An exclude also applies to sub-functions, even without pci.sriov.
	for i := range r.Exclude {
		p := m.predicate(&r.Exclude[i])
		p.exclude = true
		p.subFunctions = true
		excludes = append(excludes, p)
	}
	return matches, excludes
}

// predicate returns the predicate of a match. Its conditions are in the order of the
// attributes in device, which is also the order in which Explain lists them.
func (m *run) predicate(match *config.Match) *predicate {
	sriov := match.Hardware["pci"]["sriov"]
	p := &predicate{
		Match:        match,
		run:          m,
		subFunctions: len(sriov.Alternatives()) > 0 && sriov.Match("sf"),
		usb:          match.Has("usb"),
		pci:          match.Has("pci"),
		net:          match.Has("net"),
		mdev:         match.Has("mdev"),
	}
	for i := range m.attributes {
		a := &m.attributes[i]
		want := match.Hardware[a.Table][a.Key]
		if !want.Empty() {
			p.conditions = append(p.conditions, m.attributeCondition(match, a, want))
		}
	}
	if !match.Subsystem.Empty() {
		p.conditions = append(p.conditions, condition{
			about:  anyNode,
			key:    "subsystem",
			want:   match.Subsystem,
			values: subsystemOf,
		})
	}
	if !match.Driver.Empty() {
		p.conditions = append(p.conditions, condition{
			about:  sysfsDir,
			key:    "driver",
			want:   match.Driver,
			values: m.drivers,
		})
	}
	// The order decides which attribute uses up the budget, so that it must not be random.
	for _, name := range slices.Sorted(maps.Keys(match.Attr)) {
		// The name is quoted in messages, since it is a quoted key in TOML.
		written := fmt.Sprintf("attr.%q", name)
		p.conditions = append(p.conditions, condition{
			about: sysfsDir,
			key:   "attr." + name,
			want:  match.Attr[name],
			attr: func(h *device.Hardware, n *device.Node) ([]string, bool) {
				return m.attr(match.Place, written, dirsOf(h, n), name)
			},
		})
	}
	return p
}

// attributeCondition returns the condition of a match on an attribute of hardware, of its USB
// interfaces or of a network interface.
func (m *run) attributeCondition(match *config.Match, a *device.Attribute, want pattern.Values) condition {
	c := condition{
		key:  a.Name(),
		want: want,
	}
	// Its value may be the name of an interface of other hardware, which a single Hardware cannot
	// provide.
	if c.key == "pci.pf" {
		c.values = m.namesOfPF
		return c
	}
	// The subject is wholeHardware, its zero value.
	if a.About == device.OfHardware {
		c.hardware = a.Value
		return c
	}
	c.values = a.Of
	if a.About == device.OfNet {
		c.about = netInterface
		return c
	}
	// The attribute belongs to a USB interface. A node of the interface decides, not the whole
	// device.
	c.about = anyNode
	number := match.Hardware["usb"]["interface"]
	// Both keys are about the same interface then.
	if c.key == "usb.interface_class" && !number.Empty() {
		c.values = classesOfInterfaces(number, a)
	}
	return c
}

// subsystemOf returns the subsystem of a node. Hardware has none.
func subsystemOf(_ *device.Hardware, n *device.Node) []string {
	if n == nil {
		return nil
	}
	return []string{n.Subsystem}
}

// classesOfInterfaces returns a getter for the classes of the USB interfaces with a number. If no
// interface has the number, it returns the classes of all interfaces. The condition on the number does
// not hold then, and is the reason to report.
func classesOfInterfaces(number pattern.Values, class *device.Attribute) func(*device.Hardware, *device.Node) []string {
	return func(h *device.Hardware, n *device.Node) []string {
		// A node without hardware has no interfaces.
		if h == nil {
			return class.Of(h, n)
		}
		var classes []string
		for _, i := range h.InterfacesOf(n) {
			if number.Match(strconv.Itoa(i.Number)) {
				classes = append(classes, i.Class)
			}
		}
		if classes == nil {
			return class.Of(h, n)
		}
		return classes
	}
}

// namesOfPF returns the names of the physical function of a virtual function: its address and its
// network interfaces.
func (m *run) namesOfPF(h *device.Hardware, _ *device.Node) []string {
	function := h.Function()
	if function == nil {
		return nil
	}
	names := []string{function.PCI.PF}
	pf := m.indexes.byAddress()[function.PCI.PF]
	// The snapshot may lack the physical function. Its address is known nevertheless.
	if pf == nil {
		return names
	}
	for _, n := range pf.Nets {
		names = append(names, n.Path)
	}
	return names
}

// fits reports whether all conditions about a subject hold for hardware, or for its node if the
// node is not nil. Without conditions about the subject, it returns true.
func (p *predicate) fits(about subject, h *device.Hardware, n *device.Node) bool {
	for i := range p.conditions {
		c := &p.conditions[i]
		if c.about == about && !p.holds(c, h, n) {
			return false
		}
	}
	return true
}

// holds reports whether a condition holds. If values are not known yet, or if there is no time left, the
// answer is false in match and true in exclude.
func (p *predicate) holds(c *condition, h *device.Hardware, n *device.Node) bool {
	if p.run.isLate(c.want) {
		return p.exclude
	}
	if c.hardware != nil {
		return c.want.Match(c.hardware(h))
	}
	values, unread := c.have(h, n)
	if unread {
		return p.exclude
	}
	return c.want.Match(values...)
}

// have lists the values that the condition compares.
func (c *condition) have(h *device.Hardware, n *device.Node) (values []string, unread bool) {
	if c.hardware != nil {
		return []string{c.hardware(h)}, false
	}
	if c.attr != nil {
		return c.attr(h, n)
	}
	return c.values(h, n), false
}

// onlyNets reports whether the match selects only network interfaces. Nodes of their hardware are
// not selected then.
func (p *predicate) onlyNets() bool {
	return p.SelectsNets() && !p.namesDevices()
}

// namesDevices reports whether the match has a table about hardware itself, and not only about
// its network interfaces.
func (p *predicate) namesDevices() bool {
	return p.usb || p.pci || p.mdev
}

// matchesTables compares hardware with the tables usb, pci and mdev, except for conditions on USB
// interfaces.
func (p *predicate) matchesTables(h *device.Hardware) bool {
	return p.isOfTables(h) && p.fits(wholeHardware, h, nil)
}

// isOfTables reports whether hardware has the kinds that the tables of the match describe. Root hubs are
// parts of their controllers and never match. Sub-functions are parts of PCI functions and match only
// if pci.sriov selects them. Together with usb or mdev, pci describes the function above.
func (p *predicate) isOfTables(h *device.Hardware) bool {
	if p.usb && (h.USB == nil || h.IsRootHub()) {
		return false
	}
	if p.mdev && h.MDev == nil {
		return false
	}
	if !p.pci {
		return true
	}
	if p.ignores(h) {
		return false
	}
	// The hardware is a USB device or a mediated device. The conditions of pci use its Function.
	if p.usb || p.mdev {
		return h.Function() != nil
	}
	// A partition of a GPU is a part of a PCI function that is selected like a function.
	return h.PCI != nil || h.IsPartition()
}

// ignores reports whether hardware is a sub-function, and the match does not select sub-functions.
func (p *predicate) ignores(h *device.Hardware) bool {
	return !p.subFunctions && h.PCI != nil && h.PCI.SRIOV == "sf"
}

// matchesHardware compares hardware with its tables: usb, pci and mdev, and net with any of its
// network interfaces.
func (p *predicate) matchesHardware(h *device.Hardware) bool {
	if !p.matchesTables(h) {
		return false
	}
	return !p.net || slices.ContainsFunc(h.Nets, p.matchesNet)
}

// matchesNet compares a network interface with net. The subject of these conditions is the
// interface, so that its hardware is not needed.
func (p *predicate) matchesNet(n *device.Node) bool {
	return n.Net != nil && p.fits(netInterface, nil, n)
}

// matchesWhole reports whether the match selects hardware, regardless of its nodes. A glob is
// about nodes, so that a match with a glob selects no hardware as a whole. A match without a table
// only selects hardware in exclude: in match, it selects nodes.
func (p *predicate) matchesWhole(h *device.Hardware) bool {
	if !p.Glob.Empty() {
		return false
	}
	if p.NamesHardware() && !p.matchesHardware(h) {
		return false
	}
	return p.matchesNode(h, nil)
}

// matches reports whether the match selects a node or network interface, as one of h. h is the
// hardware of the node, except for the node of an IOMMU group, which belongs to each function of
// the group. It may be nil.
func (p *predicate) matches(n *device.Node, h *device.Hardware) bool {
	// The glob comes first, because it needs no hardware and no file.
	return p.matchesPaths(n) && p.matchesExceptGlob(n, h)
}

// matchesPaths compares the paths of a node with glob. Network interfaces have no path.
func (p *predicate) matchesPaths(n *device.Node) bool {
	if p.Glob.Empty() {
		return true
	}
	if p.run.isLate(p.Glob) {
		return p.exclude
	}
	return n.Net == nil && p.run.matchesGlob(p.Glob, n)
}

// matchesExceptGlob is matches for a node that the glob matches. A network interface without
// hardware matches only net.
func (p *predicate) matchesExceptGlob(n *device.Node, h *device.Hardware) bool {
	matches := true
	if n.Net != nil {
		matches = p.matchesAsNet(n, h)
	} else if p.NamesHardware() {
		matches = h != nil && p.matchesHardware(h)
	}
	if !matches {
		return false
	}
	// With vfio = true, the match is only about VFIO nodes.
	if p.VFIO && !isVFIONode(n) {
		return false
	}
	// The sysfs directories belong to the owner of the node, whatever h is.
	return p.matchesNode(n.Hardware, n)
}

// matchesAsNet compares a network interface with net, and its hardware with the other tables.
func (p *predicate) matchesAsNet(n *device.Node, h *device.Hardware) bool {
	if p.net && !p.matchesNet(n) {
		return false
	}
	return !p.namesDevices() || h != nil && p.matchesTables(h)
}

// matchesNode compares a node of hardware with all conditions except for glob and conditions on
// the hardware. If n is nil, it compares the hardware, regardless of its nodes. Conditions that
// read sysfs come last, because most nodes are out before.
func (p *predicate) matchesNode(h *device.Hardware, n *device.Node) bool {
	return p.fits(anyNode, h, n) && p.fits(sysfsDir, h, n)
}

// matchesPath reports whether the match has only a glob, and it matches a host path. An exclude
// with any other condition cannot be about a path to mount.
func (p *predicate) matchesPath(host string) bool {
	hasOnlyGlob := !p.NamesHardware() && len(p.conditions) == 0
	if !hasOnlyGlob || p.Glob.Empty() {
		return false
	}
	return p.run.isLate(p.Glob) || p.Glob.Match(host)
}
