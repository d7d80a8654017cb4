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

// target is what a match selects from: a node or a network interface with its hardware, or hardware as a
// whole.
type target struct {
	// hardware is nil for a node without hardware. It is the hardware of the node, except for the node of
	// an IOMMU group, which belongs to each function of the group.
	hardware *device.Hardware
	// node is nil for hardware as a whole.
	node *device.Node
}

// isNet reports whether the target is a network interface, which has no path below /dev.
func (t target) isNet() bool { return t.node != nil && t.node.Net != nil }

// predicate decides which targets a match selects. All its conditions must hold.
type predicate struct {
	*config.Match
	run *run
	// conditions are in the order in which Explain lists them. The cheap ones come first.
	conditions []condition
	// usb, pci, net and mdev are set if the match has these tables.
	usb, pci, net, mdev bool
	// subFunctions is set if pci.sriov selects sub-functions, by a pattern without "!".
	subFunctions bool
	// exclude is set for a match in exclude. Conditions with unknown values hold then: a device
	// that might be excluded is not offered.
	exclude bool
}

// condition is a condition of a match.
type condition struct {
	about subject
	key   string // "usb.id"
	// want is empty for a condition that has no patterns: an empty table, and vfio.
	want pattern.Values
	// have returns the values of a target. unread is set if some of them are not known yet, which happens
	// with attributes in sysfs. A condition without patterns holds if there are no values: they are what
	// contradicts it.
	have func(target) (values []string, unread bool)
}

// subject is the kind of thing that a condition is about.
type subject byte

// The subjects. Conditions on nodes and directories are about the hardware if it has no nodes.
const (
	wholeHardware subject = iota
	netInterface
	anyNode
	sysfsDir
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

// predicate returns the predicate of a match.
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
	p.add(nodePaths, "glob", match.Glob, m.pathsOf)
	for _, name := range []string{"usb", "pci", "mdev", "net"} {
		// A table with keys has their conditions. isOfKind compares the kind of the hardware.
		if table := match.Hardware[name]; table != nil && len(table) == 0 {
			p.conditions = append(p.conditions, condition{key: name, have: nothing})
		}
	}
	for _, a := range device.Attributes() {
		p.addAttribute(&a, match.Hardware[a.Table][a.Key])
	}
	p.add(anyNode, "subsystem", match.Subsystem, subsystemOf)
	p.add(sysfsDir, "driver", match.Driver, m.drivers)
	// Explanations list the conditions in this order: it has to be the same in every run.
	for _, name := range slices.Sorted(maps.Keys(match.Attr)) {
		p.conditions = append(p.conditions, condition{
			about: sysfsDir,
			key:   "attr." + name,
			want:  match.Attr[name],
			have: func(t target) ([]string, bool) {
				// The name is quoted in messages, since it is a quoted key in TOML.
				values, unread := m.attr(match.Place, fmt.Sprintf("attr.%q", name), dirsOf(t), name)
				m.hexadecimalNote(match.Place, "attr."+name, match.Attr[name], values)
				return values, unread
			},
		})
	}
	if match.VFIO {
		p.conditions = append(p.conditions, condition{key: "vfio", have: contradictsVFIO})
	}
	return p
}

// add adds a condition, unless it has no patterns.
func (p *predicate) add(about subject, key string, want pattern.Values, values func(target) []string) {
	if want.Empty() {
		return
	}
	p.conditions = append(p.conditions, condition{
		about: about,
		key:   key,
		want:  want,
		have: func(t target) ([]string, bool) {
			return values(t), false
		},
	})
}

// addAttribute adds the condition on an attribute of hardware, of its USB interfaces or of a network
// interface.
func (p *predicate) addAttribute(a *device.Attribute, want pattern.Values) {
	values := func(t target) []string {
		return a.Of(t.hardware, t.node)
	}
	// The hardware is a USB device or a mediated device, and its controller or parent is tested.
	isAbove := a.Table == "pci" && (p.usb || p.mdev)
	if isAbove {
		values = func(t target) []string {
			return a.Of(t.hardware.Function(), nil)
		}
	}
	number := p.Hardware["usb"]["interface"]
	switch {
	// Its value may be the name of an interface of other hardware.
	case a.Name() == "pci.pf":
		values = p.run.namesOfPF
	// Both keys are about the same interface then.
	case a.Name() == "usb.interface_class" && !number.Empty():
		values = func(t target) []string {
			return classesOfInterfaces(number, a, t)
		}
	}
	// The attribute of a USB interface is about the nodes of the interface, not about the whole device.
	about := map[device.Subject]subject{
		device.OfHardware:  wholeHardware,
		device.OfInterface: anyNode,
		device.OfNet:       netInterface,
	}
	p.add(about[a.About], a.Name(), want, values)
}

// nothing contradicts the condition of an empty table.
func nothing(target) ([]string, bool) { return nil, false }

// subsystemOf returns the subsystem of a node. Hardware has none.
func subsystemOf(t target) []string {
	if t.node == nil {
		return nil
	}
	return []string{t.node.Subsystem}
}

// classesOfInterfaces returns the classes of the USB interfaces with a number. If no interface has the
// number, it returns the classes of all interfaces. The condition on the number does not hold then, and
// is the reason to report.
func classesOfInterfaces(number pattern.Values, class *device.Attribute, t target) []string {
	var classes []string
	for _, i := range t.hardware.InterfacesOf(t.node) {
		if number.Match(strconv.Itoa(i.Number)) {
			classes = append(classes, i.Class)
		}
	}
	if classes == nil {
		return class.Of(t.hardware, t.node)
	}
	return classes
}

// namesOfPF returns the names of the physical function of a virtual function: its address and its
// network interfaces.
func (m *run) namesOfPF(t target) []string {
	function := t.hardware.Function()
	if function == nil {
		return nil
	}
	names := []string{function.PCI.PF}
	// The snapshot may lack the physical function. Its address is known nevertheless.
	if pf := m.byAddress[function.PCI.PF]; pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}

// contradictsVFIO says why hardware has no VFIO node.
func contradictsVFIO(t target) ([]string, bool) {
	h := t.hardware
	if h.PCI != nil && !h.PCI.VFIO {
		// The driver is what an administrator has to change.
		return []string{"driver " + h.PCI.Driver}, false
	}
	if h.IOMMUGroup() == "" {
		return []string{"no IOMMU group"}, false
	}
	return nil, false
}

// without returns the predicate without the conditions of some keys.
func (p *predicate) without(keys ...string) *predicate {
	other := *p
	other.conditions = slices.DeleteFunc(slices.Clone(p.conditions), func(c condition) bool {
		return slices.Contains(keys, c.key)
	})
	return &other
}

// judgement is the result of one condition for one target.
type judgement struct {
	holds bool
	// unread is set if some values are not known yet, or if there is no time left to compare them.
	unread bool
	values []string
}

// judge compares a target with a condition.
func (p *predicate) judge(c *condition, t target) judgement {
	if p.run.isLate(c.want) {
		return judgement{unread: true}
	}
	values, unread := c.have(t)
	holds := len(values) == 0
	if !c.want.Empty() {
		holds = c.want.Match(values...)
	}
	return judgement{
		holds:  holds && !unread,
		unread: unread,
		values: values,
	}
}

// holds reports whether a condition holds. If that is unknown, the answer is false in match and true in
// exclude.
func (p *predicate) holds(c *condition, t target) bool {
	j := p.judge(c, t)
	return j.holds || j.unread && p.exclude
}

// matches reports whether the match selects a target.
func (p *predicate) matches(t target) bool {
	if !p.matchesPaths(t) || !p.isOfKind(t) || !p.matchesNets(t) {
		return false
	}
	for i := range p.conditions {
		c := &p.conditions[i]
		of := t
		if p.VFIO && c.about == sysfsDir {
			of.node = nil // the directory of a VFIO node has no attributes of the hardware
		}
		// A function is also compared while it has no VFIO node.
		isOfNoNode := p.VFIO && c.about == anyNode && t.node == nil
		isDone := c.about == netInterface || c.about == nodePaths
		if !isDone && !isOfNoNode && !p.holds(c, of) {
			return false
		}
	}
	return true
}

// matchesHardware compares hardware with what does not depend on its nodes: if that does not hold, the match
// selects neither the hardware nor a node of it.
func (p *predicate) matchesHardware(h *device.Hardware) bool {
	if p.NamesHardware() && !p.isOfTables(h) {
		return false
	}
	for i := range p.conditions {
		c := &p.conditions[i]
		if c.about == wholeHardware && !p.holds(c, target{hardware: h}) {
			return false
		}
	}
	return true
}

// matchesPaths compares the names of a node with glob. It comes first, because it rules out most nodes.
func (p *predicate) matchesPaths(t target) bool {
	isNode := t.node != nil && !t.isNet()
	switch {
	case p.Glob.Empty():
		return true
	case !isNode:
		return false
	case p.run.isLate(p.Glob):
		return p.exclude
	}
	return p.run.hasName(t.node, p.Glob)
}

// isOfKind reports whether a target has the kinds that the keys of the match describe. With net, a target
// is an interface, or hardware or a node beside an interface.
func (p *predicate) isOfKind(t target) bool {
	if p.VFIO && t.node != nil && !isVFIONode(t.node) {
		return false
	}
	if !p.NamesHardware() || t.isNet() && !p.namesDevices() {
		return true
	}
	if t.hardware == nil || !p.isOfTables(t.hardware) {
		return false
	}
	return !p.net || t.isNet() || len(t.hardware.Nets) > 0
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

// onlyNets reports whether the match selects only network interfaces. Nodes of their hardware are
// not selected then.
func (p *predicate) onlyNets() bool { return p.SelectsNets() && !p.namesDevices() }

// namesDevices reports whether the match has a table about hardware itself, and not only about
// its network interfaces.
func (p *predicate) namesDevices() bool { return p.usb || p.pci || p.mdev }

// matchesNets compares the target with net, or any of the network interfaces of its hardware.
func (p *predicate) matchesNets(t target) bool {
	if !p.net {
		return true
	}
	if t.isNet() {
		return p.matchesNet(t.node)
	}
	return slices.ContainsFunc(t.hardware.Nets, p.matchesNet)
}

// matchesNet compares a network interface with net.
func (p *predicate) matchesNet(n *device.Node) bool {
	for i := range p.conditions {
		c := &p.conditions[i]
		if c.about == netInterface && !p.holds(c, target{node: n}) {
			return false
		}
	}
	return true
}

// matchesPath reports whether the match has only a glob, and it matches a host path. An exclude
// with any other condition cannot be about a path to mount.
func (p *predicate) matchesPath(host string) bool {
	hasOnlyGlob := !p.Glob.Empty() && len(p.conditions) == 1
	return hasOnlyGlob && (p.run.isLate(p.Glob) || p.Glob.Match(host))
}
