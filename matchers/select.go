package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// selection collects the candidates of a resource. It exists only during candidates.
type selection struct {
	*run
	r                 *config.Resource
	matches, excludes []*predicate
	// picks are the selected nodes and network interfaces, and hardware that is a device even without a
	// node, until exclude drops some of them.
	picks []pick
	// picked are the nodes among them.
	picked map[*device.Node]bool
	// groups are the functions that matches with vfio = true select, by the number of their IOMMU group.
	groups map[string][]*device.Hardware
	// heads has the hardware with the ID of the device of each group: the selected function with the lowest
	// address, bound to VFIO or not, since the ID must not depend on the order in which functions are bound.
	heads map[string]*device.Hardware
	// others are paths, CDI devices and virtual devices.
	others []candidate
}

// candidates finds the devices of a resource in the order of the snapshot, including devices
// that other resources claim.
//
// A node is selected if any match selects it and no exclude does. Hardware is a device if
// one of its nodes is left, or if it never had a selected node and a match without a glob
// matches it. The candidates of a pool or a group are its parts, which other resources may claim:
// hardware if a match names it, otherwise single nodes.
func (m *run) candidates(r *config.Resource) []candidate {
	s := &selection{
		run:    m,
		r:      r,
		picked: make(map[*device.Node]bool),
		groups: make(map[string][]*device.Hardware),
		heads:  make(map[string]*device.Hardware),
	}
	s.matches, s.excludes = m.predicates(r)
	for _, p := range s.matches {
		s.add(p)
	}
	// Excludes apply to the result of all matches, wherever they are in the resource.
	s.applyExcludes()
	// Only the nodes that are left become part of the device of an IOMMU group.
	s.unite()
	// The others have no place in the hierarchy of hardware, and stay in the order of the
	// matches.
	found := append(s.devices(), s.others...)
	for _, p := range s.matches {
		if p.Required {
			found = s.withNodeOf(p, found)
		}
	}
	return found
}

// add selects for a match. The cases exclude each other.
func (s *selection) add(p *predicate) {
	switch {
	case p.Mount:
		s.addPaths(p)
	case !p.CDIDevice.Empty():
		s.addCDIDevices(p)
	case len(p.Virtual) > 0:
		s.addVirtual(p)
	default:
		s.addTargets(p)
	}
}

// addTargets selects nodes, hardware and network interfaces.
func (s *selection) addTargets(p *predicate) {
	paths, isLiteral := p.Glob.Literals()
	if !isLiteral {
		p.targets(func(t target) {
			s.pick(p, t)
		})
		return
	}
	// With a glob, only nodes are selected. A path without wildcards is looked up instead of compared with
	// the paths of all nodes.
	for _, path := range paths {
		n := s.at(path)
		if n != nil {
			s.pick(p, target{n.Hardware, n})
		}
	}
}

// pick selects a target if the match does.
func (s *selection) pick(p *predicate, t target) {
	// The first match decides about a node, but each function of an IOMMU group selects its node. A
	// function is no device without its VFIO nodes.
	isSkipped := s.picked[t.node]
	if p.VFIO {
		isSkipped = t.node == nil
	}
	if isSkipped || !p.matches(t) {
		return
	}
	s.picks = append(s.picks, pick{t, p})
	if t.node != nil {
		s.picked[t.node] = true
	}
}

// devices makes devices of the picks.
func (s *selection) devices() []candidate {
	// The picks of one hardware are adjacent then. Nodes without hardware come first. Of several matches
	// that select the same hardware, the first one stays first.
	slices.SortStableFunc(s.picks, comparePicks)
	// If two matches select a node, the first one decides its path in the container, its permissions and its
	// count. The node of an IOMMU group was selected once for each of its functions.
	picks := slices.CompactFunc(s.picks, func(a, b pick) bool {
		return a.target == b.target
	})
	found := make([]candidate, 0, len(picks))
	for rest := picks; len(rest) > 0; {
		h := rest[0].hardware
		n := 1
		// Nodes without hardware have nothing in common: each is a candidate.
		for n < len(rest) && h != nil && rest[n].hardware == h {
			n++
		}
		// The capacity ends here, so that appending to picks cannot overwrite the picks that
		// follow.
		found = s.appendDevices(found, rest[:n:n])
		rest = rest[n:]
	}
	return found
}

// appendDevices appends the device or the devices of the picks of one hardware.
func (s *selection) appendDevices(found []candidate, picks []pick) []candidate {
	c := candidate{
		hardware: picks[0].hardware,
		picks:    picks,
	}
	switch {
	case picks[0].node == nil:
		c.match = picks[0].match
		c.picks = nil
		if s.r.Each == config.EachNode {
			s.drop(&c, `each = "node", and no node of it is selected`)
			return found
		}
		return append(found, c)
	case s.isOneDevice(picks):
		if s.isHead(c.hardware) {
			c.vfio = true
			c.united = s.groups[c.hardware.IOMMUGroup()]
		}
		return append(found, c)
	}
	for i, p := range picks {
		found = append(found, candidate{
			hardware: p.hardware,
			picks:    picks[i : i+1 : i+1],
			single:   true,
		})
	}
	return found
}

// isOneDevice reports whether the selected nodes of one hardware are one device.
func (s *selection) isOneDevice(picks []pick) bool {
	if picks[0].hardware == nil || s.r.Each == config.EachNode {
		return false
	}
	// The parts of a pool are claimed. A pool of single nodes leaves the rest of their hardware
	// to other resources.
	if s.r.Each == config.EachAll {
		return slices.ContainsFunc(picks, func(p pick) bool {
			return p.match.NamesHardware()
		})
	}
	return true
}

// withNodeOf keeps the candidates whose pool, group or hardware has a node that a required
// match selects, even if the nodes are separate devices. Mounts do not belong to hardware.
func (s *selection) withNodeOf(p *predicate, found []candidate) []candidate {
	// The nil key keeps candidates without hardware, such as paths and virtual devices.
	has := map[any]bool{(*device.Hardware)(nil): true}
	for i := range found {
		c := &found[i]
		if p.selectsPartOf(c) {
			has[s.unitOf(c)] = true
		}
	}
	// Only in a pool does a path have something in common with the other candidates.
	if p.Mount && s.r.Each != config.EachAll {
		return found
	}
	return slices.DeleteFunc(found, func(c candidate) bool {
		if has[s.unitOf(&c)] {
			return false
		}
		dropped := c
		s.drop(&dropped, placeInResource(p.Match)+" with required = true selects no node of it")
		return true
	})
}

// unitOf identifies the pool, the group or the hardware that contains a candidate.
func (s *selection) unitOf(c *candidate) any {
	if s.r.Each == config.EachAll {
		return s.r
	}
	// A value that cannot be read is empty here. The part is dropped by group later.
	value, _ := s.groupValue(s.r, c)
	if value != "" {
		return value
	}
	return c.hardware
}

// selectsPartOf reports whether the match selects a node or a path of a candidate.
func (p *predicate) selectsPartOf(c *candidate) bool {
	isSelected := func(by pick) bool {
		// An earlier match may have picked the node. The required match selects it nevertheless.
		return by.match == p || !by.match.Mount && p.matches(target{by.node.Hardware, by.node})
	}
	return slices.ContainsFunc(c.picks, isSelected)
}

// placeInResource returns the place of a match within its resource: "match 2".
func placeInResource(match *config.Match) string {
	i := strings.LastIndex(match.Place, ": ")
	return match.Place[i+len(": "):]
}

// addPaths selects paths to mount. Device nodes are left out, because the device cgroup of the
// container denies access to a node that is only mounted.
func (s *selection) addPaths(p *predicate) {
	for _, path := range s.mounts(p) {
		isExcluded := slices.ContainsFunc(s.excludes, func(e *predicate) bool {
			return e.matchesPath(path)
		})
		s.addOther(candidate{
			single: true,
			name:   path,
			picks:  []pick{{target{node: &device.Node{Path: path, Interface: -1}}, p}},
		}, isExcluded)
	}
}

// mounts lists the paths that a match with a glob outside of /dev selects. Links to nodes are left out.
func (m *run) mounts(p *predicate) []string {
	return slices.DeleteFunc(m.files(p.Place, p.Glob), func(path string) bool {
		return m.at(path) != nil
	})
}

// addOther adds a path or a CDI device. If several matches select it, it has the settings of the first one.
func (s *selection) addOther(c candidate, isExcluded bool) {
	isSelected := slices.ContainsFunc(s.others, func(other candidate) bool {
		return other.name == c.name
	})
	if isExcluded {
		s.drop(&c, excluded)
	} else if !isSelected {
		s.others = append(s.others, c)
	}
}

// addCDIDevices selects CDI devices of the host.
func (s *selection) addCDIDevices(p *predicate) {
	for _, d := range s.matchingCDIDevices(p) {
		c := candidate{
			single: true,
			name:   cdiName(d),
			cdi:    d,
			// The hardware provides NUMA nodes and variables. The claim is about the CDI device
			// only.
			united: s.hardwareOfCDI(d),
			match:  p,
		}
		s.addOther(c, s.excludesCDI(&c))
	}
}

// matchingCDIDevices lists the CDI devices of the host that a match selects by qualified name. Wildcards do
// not match the device "all", which by convention consists of all devices.
func (m *run) matchingCDIDevices(p *predicate) []*device.CDIDevice {
	var found []*device.CDIDevice
	for i := range m.CDIDevices {
		d := &m.CDIDevices[i]
		if m.isLate(p.CDIDevice) || !p.CDIDevice.Match(d.Name) {
			continue
		}
		// A qualified name is "vendor.com/class=name".
		isAll := strings.HasSuffix(d.Name, "=all")
		if !isAll || isSpelledOut(p.CDIDevice, d.Name) {
			found = append(found, d)
		}
	}
	return found
}

// excludesCDI reports whether an exclude selects the hardware of a CDI device or any of its nodes, which
// can only be left out with the device.
func (s *selection) excludesCDI(c *candidate) bool {
	for _, h := range c.united {
		if s.isExcluded(target{hardware: h}) {
			return true
		}
	}
	return slices.ContainsFunc(c.cdi.Nodes, func(node device.CDINode) bool {
		n := s.at(node.Path)
		return n != nil && s.isExcluded(target{n.Hardware, n})
	})
}

// isSpelledOut reports whether patterns contain a value literally.
func isSpelledOut(v pattern.Values, value string) bool {
	return slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
		text, isLiteral := a.Literal()
		return isLiteral && text == value
	})
}

// hardwareOfCDI lists the hardware of the nodes of a CDI device, except for nodes that all devices of its
// spec share.
func (s *selection) hardwareOfCDI(d *device.CDIDevice) []*device.Hardware {
	var hardware []*device.Hardware
	for _, node := range d.Nodes {
		// A spec may name a link, or a node that does not exist now.
		n := s.at(node.Path)
		if n != nil && n.Hardware != nil && !node.Common {
			hardware = append(hardware, n.Hardware)
		}
	}
	return sortHardware(hardware)
}

// addVirtual selects the virtual devices of a match. They exist wherever the resource is active,
// because no hardware limits them.
func (s *selection) addVirtual(p *predicate) {
	for i := range p.Virtual {
		d := &p.Virtual[i]
		s.others = append(s.others, candidate{
			single:  true,
			name:    virtualName(d),
			virtual: d,
			match:   p,
		})
	}
}

// cdiName names a CDI device of the host in messages.
func cdiName(d *device.CDIDevice) string { return "CDI device " + d.Name }

// virtualName names a virtual device in messages.
func virtualName(d *config.Virtual) string { return fmt.Sprintf("virtual device %q", d.Name) }

// applyExcludes drops nodes and hardware that any exclude selects. Hardware with a selected node, even with
// an excluded one, is no device without a node.
func (s *selection) applyExcludes() {
	hasNode := make(map[*device.Hardware]bool)
	for _, p := range s.picks {
		hasNode[p.hardware] = hasNode[p.hardware] || p.node != nil
	}
	s.picks = slices.DeleteFunc(s.picks, func(p pick) bool {
		if p.node == nil && hasNode[p.hardware] {
			return true
		}
		// The attributes and the driver of a VFIO node are the owner's, which may be another function of the
		// group, so that the function itself is compared as well.
		isExcluded := s.isExcluded(p.target) || p.match.VFIO && s.isExcluded(target{hardware: p.hardware})
		if isExcluded {
			s.excludePick(p)
		}
		return isExcluded
	})
}

// isExcluded reports whether an exclude selects a target.
func (s *selection) isExcluded(t target) bool { return anyMatches(s.excludes, t) }

// anyMatches reports whether any of some matches selects a target.
func anyMatches(matches []*predicate, t target) bool {
	return slices.ContainsFunc(matches, func(p *predicate) bool {
		return p.matches(t)
	})
}

// excludePick records the device of a node, or the hardware, that an exclude selects.
func (s *selection) excludePick(p pick) {
	c := candidate{hardware: p.hardware}
	if p.node != nil {
		c.picks = []pick{p}
		c.single = !s.isOneDevice(c.picks)
	}
	s.drop(&c, excluded)
}
