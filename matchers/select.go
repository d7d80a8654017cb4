package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// selection collects the candidates of a resource. It exists only during candidates.
type selection struct {
	*run
	r                 *config.Resource
	matches, excludes []*predicate
	// picks are the selected nodes and network interfaces, until exclude drops some of them.
	picks []pick
	// whole is the hardware that is a device even without a node.
	whole map[*device.Hardware]whole
	// groups are selected with vfio = true, by number. A group exists only if a node of it is
	// selected.
	groups map[string]*group
	// others are paths, CDI devices and virtual devices.
	others []candidate
}

// whole is how matches select hardware as a whole. Its zero value is hardware that no match has
// selected yet.
type whole struct {
	// dangerous is set if any of the matches has dangerous = true.
	dangerous bool
	// count is the count of the first one.
	count int
}

// candidates finds the devices of a resource in the order of the snapshot, including devices
// that other resources claim.
//
// A node is selected if any match selects it and no exclude does. Hardware is a device if
// one of its nodes is left, or if it never had a selected node and a match without a glob
// matches it. The candidates of a pool or a group are its parts, which other resources may claim:
// hardware if a match names it, otherwise single nodes.
func (m *run) candidates(r *config.Resource) []candidate {
	// Another resource may select the same nodes. The claims decide which resource gets them.
	clear(m.picked)
	s := &selection{
		run:    m,
		r:      r,
		whole:  make(map[*device.Hardware]whole),
		groups: make(map[string]*group),
	}
	s.matches, s.excludes = m.predicates(r)
	for _, p := range s.matches {
		p.trace = m.recorder.match(p)
		s.add(p)
	}
	// Excludes apply to the result of all matches, wherever they are in the resource.
	s.exclude()
	// Only the nodes that are left become part of the device of an IOMMU group.
	s.unite()
	found := make([]candidate, 0, len(s.picks)+len(s.whole)+len(s.others))
	found = s.appendPicked(found)
	found = s.appendWhole(found)
	// The single nodes of one hardware, and nodes without hardware, are already sorted by path.
	slices.SortStableFunc(found, compareHardware)
	// The others have no place in the hierarchy of hardware, and stay in the order of the
	// matches.
	found = append(found, s.others...)
	// A match with required = true drops some of them. The explanation counts those as dropped.
	m.recorder.find(found)
	for _, p := range s.matches {
		p.trace = nil // the following comparisons are about devices that are already selected
		if p.Required {
			found = s.withNodeOf(p, found)
		}
	}
	return found
}

// add selects for a match. The cases exclude each other, but a match with vfio = true may also
// have tables of hardware.
func (s *selection) add(p *predicate) {
	switch {
	case p.VFIO:
		s.addVFIO(p)
	case p.Mount:
		s.addPaths(p)
	case !p.CDIDevice.Empty():
		s.addCDIDevices(p)
	case len(p.Virtual) > 0:
		s.addVirtual(p)
	case p.NamesHardware() && p.Glob.Empty():
		s.addHardware(p)
	default:
		s.addNodes(p)
	}
}

// appendPicked appends the devices that have selected nodes.
func (s *selection) appendPicked(found []candidate) []candidate {
	// The nodes of one hardware are adjacent then. Nodes without hardware come first.
	order.Sort(s.picks, comparePicks)
	rest := s.picks
	for len(rest) > 0 {
		h := rest[0].hardware
		n := 1
		// Nodes without hardware have nothing in common: each is a candidate.
		for n < len(rest) && h != nil && rest[n].hardware == h {
			n++
		}
		// The capacity ends here, so that appending to picks cannot overwrite the picks that
		// follow.
		picks := rest[:n:n]
		rest = rest[n:]
		if s.isOneDevice(picks) {
			found = append(found, candidate{
				hardware:  h,
				picks:     picks,
				groups:    s.groupOf(h),
				dangerous: slices.ContainsFunc(picks, pick.isDangerous),
			})
			continue
		}
		for i, p := range picks {
			found = append(found, candidate{
				hardware:  h,
				picks:     picks[i : i+1 : i+1],
				single:    true,
				dangerous: p.isDangerous(),
			})
		}
	}
	return found
}

// appendWhole appends the hardware that is a device without a selected node.
func (s *selection) appendWhole(found []candidate) []candidate {
	if s.r.Each == config.EachNode {
		s.recordWhole()
		return found
	}
	// The order is random. The caller sorts the candidates by hardware.
	for h, how := range s.whole {
		found = append(found, candidate{
			hardware:  h,
			dangerous: how.dangerous,
			count:     how.count,
		})
	}
	return found
}

// recordWhole records hardware that is not a device, because it has each = "node" and no selected node.
func (s *selection) recordWhole() {
	if s.recorder == nil {
		return
	}
	for _, h := range sortHardware(slices.Collect(maps.Keys(s.whole))) {
		s.recorder.drop(&candidate{hardware: h}, `each = "node", and no node of it is selected`)
	}
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
		s.recorder.drop(&c, "%s with required = true selects no node of it", placeInResource(p.Match))
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
		return by.match == p || p.matches(by.node, by.node.Hardware)
	}
	isMounted := func(by pathPick) bool {
		return by.match == p.Match
	}
	return slices.ContainsFunc(c.picks, isSelected) || slices.ContainsFunc(c.paths, isMounted)
}

// placeInResource returns the place of a match within its resource: "match 2".
func placeInResource(match *config.Match) string {
	i := strings.LastIndex(match.Place, ": ")
	return match.Place[i+len(": "):]
}

// pick adds a node or a network interface to the selection. If two matches select it, the first
// one decides its path in the container, its permissions and its count.
func (s *selection) pick(n *device.Node, p *predicate) {
	if s.picked[n] {
		return
	}
	s.picked[n] = true
	s.picks = append(s.picks, pick{
		node:     n,
		match:    p,
		hardware: n.Hardware,
	})
}

// skips reports whether a match does not need to judge a node, because an earlier match has selected
// it. A trace needs the judgement of every match.
func (s *selection) skips(p *predicate, n *device.Node) bool {
	return p.trace == nil && s.picked[n]
}

// addNodes selects nodes for a match with a glob, or without hardware.
func (s *selection) addNodes(p *predicate) {
	if p.trace != nil {
		s.addTracedNodes(p)
		return
	}
	// With a glob, a binary search for its prefix avoids comparing every node of the host.
	nodes := slices.Values(s.snap.Nodes)
	if !p.Glob.Empty() {
		nodes = s.globbed(p.Glob)
	}
	for n := range nodes {
		// A node with several matching names occurs several times, and is picked once.
		if !s.skips(p, n) && p.matchesExceptGlob(n, n.Hardware) {
			s.pick(n, p)
		}
	}
}

// addTracedNodes is addNodes without the search for the prefix of the glob, so that the trace
// also has the other nodes.
func (s *selection) addTracedNodes(p *predicate) {
	for _, n := range s.snap.Nodes {
		p.trace.beginTarget(n.Hardware, n, true)
		if p.matches(n, n.Hardware) {
			p.trace.selects(n.Hardware, n)
			s.pick(n, p)
		}
	}
}

// addHardware selects hardware with all its nodes and network interfaces, for a match without
// a glob.
func (s *selection) addHardware(p *predicate) {
	for _, h := range s.snap.Hardware {
		// With net, the interfaces are the devices, and hardware is no device for its own sake.
		if p.SelectsNets() {
			s.addNodesBesideNets(p, h)
		} else {
			s.addWhole(p, h)
		}
	}
	if !p.SelectsNets() {
		return
	}
	// An interface may have no hardware, such as a bridge, so that this is not a loop over
	// hardware.
	for _, n := range s.snap.Nets {
		p.trace.beginTarget(n.Hardware, n, true)
		if p.matches(n, n.Hardware) {
			p.trace.selects(n.Hardware, n)
			s.pick(n, p)
		}
	}
}

// addWhole selects hardware as a whole, and those of its nodes that match.
func (s *selection) addWhole(p *predicate, h *device.Hardware) {
	p.trace.beginTarget(h, nil, true)
	matches := p.matchesHardware(h)
	if p.stops(matches) {
		return
	}
	// Hardware without a selected node is a device, too. exclude deletes it from whole if a node
	// of it is selected.
	if p.matchesNode(h, nil) && matches {
		p.trace.selects(h, nil)
		how := s.whole[h]
		s.whole[h] = whole{
			dangerous: how.dangerous || p.Dangerous,
			// The count of the first match applies, as for a node.
			count: cmp.Or(how.count, p.Count),
		}
	}
	for _, n := range h.Nodes {
		// Only vfio = true, or a match about nodes, selects the node of a whole IOMMU group.
		if isNodeOfWholeGroup(n, h) || s.skips(p, n) {
			continue
		}
		p.trace.beginPart(h, n, matches)
		if p.matchesNode(h, n) && matches {
			p.trace.selects(h, nil)
			s.pick(n, p)
		}
	}
}

// addNodesBesideNets selects the nodes of hardware for a match that also selects its network
// interfaces. A match that is only about interfaces selects no nodes.
func (s *selection) addNodesBesideNets(p *predicate, h *device.Hardware) {
	if p.onlyNets() {
		return
	}
	// The hardware is not a target of the match, but a trace records its conditions for the
	// nodes.
	p.trace.beginHardware()
	matches := p.matchesHardware(h)
	if p.stops(matches) {
		return
	}
	for _, n := range h.Nodes {
		if isNodeOfWholeGroup(n, h) || s.skips(p, n) {
			continue
		}
		p.trace.beginTarget(h, n, matches)
		if p.matchesNode(h, n) && matches {
			p.trace.selects(h, n)
			s.pick(n, p)
		}
	}
}

// isNodeOfWholeGroup reports whether n is the node of an IOMMU group, which also belongs to the
// other functions of the group. A mediated device has its own group.
func isNodeOfWholeGroup(n *device.Node, h *device.Hardware) bool {
	return isGroupNode(n) && h.MDev == nil
}

// addPaths selects paths to mount. Device nodes are left out, because the device cgroup of the
// container denies access to a node that is only mounted.
func (s *selection) addPaths(p *predicate) {
	for _, path := range s.files(p.Place, p.Glob) {
		// A link below /dev to a node is left out as well.
		if s.at(path) != nil {
			continue
		}
		p.trace.selectsOther(path)
		c := candidate{
			single:    true,
			name:      path,
			paths:     []pathPick{{path, p.Match}},
			dangerous: p.Dangerous,
		}
		isExcluded := slices.ContainsFunc(s.excludes, func(e *predicate) bool {
			return e.matchesPath(path)
		})
		if isExcluded {
			s.recorder.exclude(&c)
		} else if !s.hasOther(path) {
			// The first match with the path decides how it is mounted.
			s.others = append(s.others, c)
		}
	}
}

// hasOther reports whether a path, a CDI device or a virtual device is selected already.
func (s *selection) hasOther(name string) bool {
	return slices.ContainsFunc(s.others, func(c candidate) bool {
		return c.name == name
	})
}

// addCDIDevices selects CDI devices of the host by qualified name. Wildcards do not match the device
// "all", which by convention consists of all devices.
func (s *selection) addCDIDevices(p *predicate) {
	for i := range s.CDIDevices {
		d := &s.CDIDevices[i]
		if s.isLate(p.CDIDevice) || !p.CDIDevice.Match(d.Name) {
			continue
		}
		// A qualified name is "vendor.com/class=name".
		isAll := strings.HasSuffix(d.Name, "=all")
		if isAll && !isSpelledOut(p.CDIDevice, d.Name) {
			continue
		}
		p.trace.selectsOther("CDI device " + d.Name)
		c := candidate{
			single: true,
			name:   "CDI device " + d.Name,
			cdi:    d,
			// The hardware provides NUMA nodes and variables. The claim is about the CDI device
			// only.
			united:    s.hardwareOfCDI(d),
			dangerous: p.Dangerous,
			count:     p.Count,
		}
		if s.excludesCDI(&c) {
			s.recorder.exclude(&c)
		} else if !s.hasOther(c.name) {
			// Two matches may select one device. It is selected once, with the settings of the
			// first match.
			s.others = append(s.others, c)
		}
	}
}

// excludesCDI reports whether an exclude selects the hardware of a CDI device or any of its nodes, which
// can only be left out with the device.
func (s *selection) excludesCDI(c *candidate) bool {
	if slices.ContainsFunc(c.united, s.excludesWhole) {
		return true
	}
	return slices.ContainsFunc(c.cdi.Nodes, func(node device.CDINode) bool {
		n := s.at(node.Path)
		return n != nil && s.isExcluded(n, n.Hardware)
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
		name := fmt.Sprintf("virtual device %q", d.Name)
		p.trace.selectsOther(name)
		s.others = append(s.others, candidate{
			single:    true,
			name:      name,
			virtual:   d,
			dangerous: p.Dangerous,
			count:     p.Count,
		})
	}
}

// exclude drops nodes and hardware that any exclude selects. Hardware with a selected node is from here
// on only a device if one of its nodes is left.
func (s *selection) exclude() {
	s.picks = slices.DeleteFunc(s.picks, func(p pick) bool {
		// This is done for excluded nodes, too: hardware whose only node is excluded is no
		// device.
		delete(s.whole, p.node.Hardware)
		// addVFIO has already applied the excludes, because the node of a group belongs to each
		// function.
		isExcluded := !p.match.VFIO && s.isExcluded(p.node, p.node.Hardware)
		if isExcluded {
			s.recordExclude(p)
		}
		return isExcluded
	})
	// What is left has no selected node, so that only excludes of whole hardware apply.
	maps.DeleteFunc(s.whole, func(h *device.Hardware, _ whole) bool {
		isExcluded := s.excludesWhole(h)
		if isExcluded {
			s.recorder.exclude(&candidate{hardware: h})
		}
		return isExcluded
	})
}

// excludesWhole reports whether an exclude selects hardware, regardless of its nodes.
func (s *selection) excludesWhole(h *device.Hardware) bool {
	return slices.ContainsFunc(s.excludes, func(e *predicate) bool {
		return e.matchesWhole(h)
	})
}

// isExcluded reports whether an exclude selects a node, as a node of h. h may be another function
// of the IOMMU group than the owner of the node.
func (s *selection) isExcluded(n *device.Node, h *device.Hardware) bool {
	return slices.ContainsFunc(s.excludes, func(e *predicate) bool {
		return e.matches(n, h)
	})
}

// recordExclude records the device of a node that an exclude drops.
func (s *selection) recordExclude(p pick) {
	// The candidate would be built for each excluded node, only for the recorder to ignore it.
	if s.recorder == nil {
		return
	}
	picks := []pick{p}
	s.recorder.exclude(&candidate{
		hardware: p.hardware,
		picks:    picks,
		single:   !s.isOneDevice(picks),
	})
}
