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

// path is the path of the node. It is empty for hardware as a whole.
func (t target) path() string {
	if t.node == nil {
		return ""
	}
	return t.node.Path
}

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
	key string // "usb.id"
	// want is empty for a condition that has no patterns: an empty table, and vfio.
	want pattern.Values
	// have returns the values of a target of the right kind. unread is set if some of them are not known yet,
	// which happens with attributes in sysfs. A condition without patterns holds if there are no values: they
	// are what contradicts it.
	have func(target) (values []string, unread bool)
	// isRead is set if values are read from sysfs.
	isRead bool
}

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
	p.add("glob", match.Glob, m.pathsOf)
	for _, name := range []string{"usb", "pci", "mdev", "net"} {
		// A table with keys has their conditions. isOfKind compares the kind of the hardware.
		if table := match.Hardware[name]; table != nil && len(table) == 0 {
			p.conditions = append(p.conditions, condition{key: name, have: nothing})
		}
	}
	attributes := device.Attributes()
	for i := range attributes {
		a := &attributes[i]
		want := match.Hardware[a.Table][a.Key]
		if !want.Empty() {
			p.add(a.Name(), want, p.valuesOf(a))
		}
	}
	p.add("subsystem", match.Subsystem, p.subsystems)
	p.addRead("driver", match.Driver, func(t target) ([]string, bool) {
		return m.drivers(t), false
	})
	// Explanations list the conditions in this order: it has to be the same in every run.
	for _, name := range slices.Sorted(maps.Keys(match.Attr)) {
		p.addRead("attr."+name, match.Attr[name], func(t target) ([]string, bool) {
			// The name is quoted in messages, since it is a quoted key in TOML.
			values, unread := m.attr(match.Place, fmt.Sprintf("attr.%q", name), dirsOf(t), name)
			m.hexadecimalNote(match.Place, "attr."+name, match.Attr[name], values)
			return values, unread
		})
	}
	if match.VFIO {
		p.conditions = append(p.conditions, condition{key: "vfio", have: m.contradictsVFIO})
	}
	return p
}

// add adds a condition, unless it has no patterns.
func (p *predicate) add(key string, want pattern.Values, values func(target) []string) {
	if want.Empty() {
		return
	}
	p.conditions = append(p.conditions, condition{
		key:  key,
		want: want,
		have: func(t target) ([]string, bool) {
			return values(t), false
		},
	})
}

// addRead adds a condition on values that are read from sysfs.
func (p *predicate) addRead(key string, want pattern.Values, have func(target) ([]string, bool)) {
	if want.Empty() {
		return
	}
	p.conditions = append(p.conditions, condition{
		key:  key,
		want: want,
		have: func(t target) ([]string, bool) {
			if p.VFIO {
				t.node = nil // the directory of a VFIO node has no attributes of the hardware
			}
			return have(t)
		},
		isRead: true,
	})
}

// nothing contradicts the condition of an empty table.
func nothing(target) ([]string, bool) { return nil, false }

// subsystems lists the subsystem of a node. Hardware has none, but a function has the subsystems of the VFIO
// nodes that it may get.
func (p *predicate) subsystems(t target) []string {
	if t.node != nil {
		return []string{t.node.Subsystem}
	}
	if p.VFIO {
		return []string{"vfio", "vfio-dev"}
	}
	return nil
}

// valuesOf returns what lists the values of an attribute of a target. The two keys about USB interfaces must
// hold for one interface, and so must the two keys about network interfaces.
func (p *predicate) valuesOf(a *device.Attribute) func(target) []string {
	number := p.Hardware["usb"]["interface"]
	switch {
	// Its value may be the name of an interface of other hardware.
	case a.Name() == "pci.pf":
		return p.run.namesOfPF
	// The hardware is a USB device or a mediated device, and its controller or parent is tested.
	case a.Table == "pci" && (p.usb || p.mdev):
		return func(t target) []string {
			return a.Of(t.hardware.Function(), nil)
		}
	case a.Name() == "usb.interface_class" && !number.Empty():
		return func(t target) []string {
			return classesOfInterfaces(number, a, t)
		}
	case a.About == device.OfNet:
		return func(t target) []string {
			return p.valuesOfNets(a, t)
		}
	}
	return func(t target) []string {
		return a.Of(t.hardware, t.node)
	}
}

// valuesOfNets lists the values of the network interfaces that fit all keys. If there are none, the types are of
// the interfaces with a wanted name, so that the key that does not hold is the reason to report.
func (p *predicate) valuesOfNets(a *device.Attribute, t target) []string {
	nets := []*device.Node{t.node}
	if !t.isNet() {
		nets = t.hardware.Nets
	}
	fitsName := func(n *device.Node) bool {
		return a.Key == "type" && p.Hardware["net"]["name"].Match(n.Path)
	}
	for _, fits := range []func(*device.Node) bool{p.matchesNet, fitsName} {
		if slices.ContainsFunc(nets, fits) {
			nets = slices.DeleteFunc(slices.Clone(nets), func(n *device.Node) bool {
				return !fits(n)
			})
			break
		}
	}
	var values []string
	for _, n := range nets {
		values = append(values, a.Of(nil, n)...)
	}
	return values
}

// matchesNet compares a network interface with net.
func (p *predicate) matchesNet(n *device.Node) bool {
	keys := p.Hardware["net"]
	return keys["name"].Match(n.Path) && keys["type"].Match(n.Net.Type)
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
	if pf := m.function(function.PCI.PF); pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}

// contradictsVFIO says why hardware has no VFIO node, or that a node is none.
func (m *run) contradictsVFIO(t target) ([]string, bool) {
	h := t.hardware
	switch {
	case t.node != nil && !isVFIONode(t.node):
		return []string{"another node"}, false
	case h.PCI != nil && !h.PCI.VFIO:
		// The driver is what an administrator has to change.
		return []string{"driver " + h.PCI.Driver}, false
	case h.IOMMUGroup() == "":
		return []string{"no IOMMU group"}, false
	case len(m.vfioNodes(h)) == 0:
		return []string{"no node in /dev/vfio"}, false
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

// judge compares a target with a condition. The result is empty if the match is not about such a target.
func (p *predicate) judge(c *condition, t target) judgement {
	isAbout := t.node != nil && !t.isNet()
	if c.key != "glob" {
		isAbout = p.isOfKind(t)
	}
	switch {
	case !isAbout:
		return judgement{}
	case p.run.isLate(c.want):
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

// matches reports whether the match selects a target. A condition of which that is unknown does not hold in
// match, and holds in exclude.
func (p *predicate) matches(t target) bool {
	for i := range p.conditions {
		j := p.judge(&p.conditions[i], t)
		isMaybe := j.unread && p.exclude
		if !j.holds && !isMaybe {
			return false
		}
	}
	return true
}

// isOfKind reports whether a target has the kinds that the keys of the match describe. With net, a target
// is an interface, or hardware or a node beside an interface.
func (p *predicate) isOfKind(t target) bool {
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

// namesDevices reports whether the match has a table about hardware itself, and not only about
// its network interfaces.
func (p *predicate) namesDevices() bool { return p.usb || p.pci || p.mdev }

// isWhole reports whether the match selects hardware with its nodes, and not single nodes or interfaces.
func (p *predicate) isWhole() bool {
	return p.VFIO || p.NamesHardware() && p.Glob.Empty() && !p.SelectsNets()
}

// targets calls use with everything that the match may select: hardware followed by its nodes, or single nodes
// and interfaces.
func (p *predicate) targets(use func(target)) {
	snap := p.run.snap
	isWhole := p.isWhole()
	// With a table about hardware, net also selects the nodes beside an interface.
	if isWhole || p.SelectsNets() && p.namesDevices() {
		for _, h := range snap.Hardware {
			if isWhole {
				use(target{hardware: h})
			}
			for _, n := range p.nodesOf(h) {
				use(target{h, n})
			}
		}
	}
	if isWhole {
		return
	}
	nodes := snap.Nodes
	if p.SelectsNets() {
		nodes = snap.Nets
	}
	for _, n := range nodes {
		use(target{n.Hardware, n})
	}
}

// nodesOf lists the nodes of hardware that the match may select. The node of an IOMMU group also belongs to the
// other functions of the group: only vfio = true, or a match about nodes, selects it. A mediated device has its
// own group.
func (p *predicate) nodesOf(h *device.Hardware) []*device.Node {
	if p.VFIO {
		return p.run.vfioNodes(h)
	}
	if h.MDev != nil || !slices.ContainsFunc(h.Nodes, isGroupNode) {
		return h.Nodes
	}
	return slices.DeleteFunc(slices.Clone(h.Nodes), isGroupNode)
}

// matchesPath reports whether the match has only a glob, and it matches a host path. An exclude
// with any other condition cannot be about a path to mount.
func (p *predicate) matchesPath(host string) bool {
	hasOnlyGlob := !p.Glob.Empty() && len(p.conditions) == 1
	return hasOnlyGlob && (p.run.isLate(p.Glob) || p.Glob.Match(host))
}
