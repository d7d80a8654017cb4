package matchers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// pick is a selected node or network interface and the first match that
// selected it, which says where the node goes in the container.
type pick struct {
	node  *device.Node
	match *config.Match
	// hardware whose device the node is part of: its own, but for nodes of an
	// IOMMU group.
	hardware *device.Hardware
	rank     int // of the hardware
}

// selected is what a resource makes one device of: hardware, which is nil for
// what has none, and nodes by path; or one of the paths, CDI devices and
// virtual devices that stand for themselves. With each = "node" single is set
// and there is one node.
type selected struct {
	hardware *device.Hardware
	// united are all hardware of a device that is made of several things, in
	// the order of the snapshot.
	united []*device.Hardware
	groups []*group // none but for vfio = true
	single bool
	picks  []pick
	rank   int // of the hardware

	paths   []pathPick
	cdi     *device.CDIDevice
	virtual *config.Virtual
	// dangerous says that a match that selected none of the picks and paths allows it.
	dangerous bool

	// pool says that this is everything that the resource selects, value that
	// it is all hardware that has that value for the variable of group_by.
	pool  bool
	value string
}

// selection gathers what the matches of a resource select.
type selection struct {
	ix                *index
	each              config.Each
	matches, excludes []*predicate
	picks             []pick
	turn              int // of index.picked
	// whole is the hardware that is a device even without a node, and whether a match
	// of it says dangerous.
	whole map[*device.Hardware]bool
	// groups that matches with vfio = true select, by number.
	groups map[string]*group
	// others are devices that are no nodes.
	others []selected
}

// selectDevices finds the devices of a resource, whoever else selects them,
// in the order of the snapshot.
//
// A node is in if any match selects it, and out if any exclude does. Hardware
// is a device if one of its nodes is left, or if it never had one selected
// and a match without a glob matches it. Hardware that lacks a node of a
// required match is no device, and neither is any of its nodes. What becomes
// of a pool or of a group is found as the parts that other resources may
// take: hardware where a match names it, single nodes otherwise.
func (ix *index) selectDevices(r *config.Resource) []selected {
	s := &selection{
		ix: ix, each: r.Each,
		matches: ix.predicates(r.Match), excludes: ix.predicates(r.Exclude),
		turn: ix.nextTurn(), whole: map[*device.Hardware]bool{}, groups: map[string]*group{},
	}
	for i := range s.matches {
		s.add(s.matches[i])
	}
	s.exclude()
	s.unite()

	if !slices.IsSortedFunc(s.picks, byPlace) {
		slices.SortFunc(s.picks, byPlace)
	}
	found := make([]selected, 0, len(s.picks)+len(s.whole)+len(s.others))
	for rest := s.picks; len(rest) > 0; {
		first, n := rest[0], 1
		for n < len(rest) && first.hardware != nil && rest[n].hardware == first.hardware {
			n++
		}
		picks := rest[:n:n]
		rest = rest[n:]
		switch h := first.hardware; {
		case h != nil && !s.complete(picks):
		case h != nil && s.together(picks):
			found = append(found, selected{hardware: h, groups: s.groupOf(h), picks: picks, rank: first.rank})
		default:
			for i := range picks {
				found = append(found, selected{hardware: h, single: true, picks: picks[i : i+1 : i+1], rank: first.rank})
			}
		}
	}
	for h, dangerous := range s.whole {
		if r.Each != config.EachNode && s.complete(nil) {
			found = append(found, selected{hardware: h, rank: ix.rank[h], dangerous: dangerous})
		}
	}
	if byRank := func(a, b selected) int { return cmp.Compare(a.rank, b.rank) }; !slices.IsSortedFunc(found, byRank) {
		slices.SortStableFunc(found, byRank)
	}
	found = append(found, s.others...)
	if r.Each == config.EachAll && s.lacksRequired(found) {
		return nil
	}
	return found
}

// together reports whether nodes of one hardware are handed over as one.
func (s *selection) together(picks []pick) bool {
	switch s.each {
	case config.EachNode:
		return false
	case config.EachAll:
		return slices.ContainsFunc(picks, func(p pick) bool { return p.match.NamesHardware() })
	}
	return true
}

// members are all hardware of a device.
func (s *selected) members() []*device.Hardware {
	if s.united == nil && s.hardware != nil {
		return []*device.Hardware{s.hardware}
	}
	return s.united
}

// add selects what one match does.
func (s *selection) add(p *predicate) {
	switch m := p.match; {
	case m.VFIO:
		s.addVFIO(p)
	case m.Mount:
		s.addPaths(m)
	case !m.CDIDevice.Empty():
		s.addCDI(m)
	case len(m.Virtual) > 0:
		s.addVirtual(m)
	case m.NamesHardware() && m.Glob.Empty():
		s.addHardware(p)
	default:
		s.addNodes(p)
	}
}

// addNodes selects nodes, of whatever hardware where the match names none.
func (s *selection) addNodes(p *predicate) {
	nodes := slices.Values(s.ix.snap.Nodes)
	if !p.match.Glob.Empty() {
		nodes = s.ix.globbed(p.match.Glob)
	}
	for n := range nodes {
		if s.ix.picked[n] != s.turn && p.holdsBesideGlob(s.ix, n, n.Hardware) {
			s.pick(n, p.match)
		}
	}
}

// addHardware selects hardware with all its nodes and network interfaces.
func (s *selection) addHardware(p *predicate) {
	for _, h := range s.ix.candidates(p.match) {
		if !p.hardwareHolds(h) {
			continue
		}
		if !p.selectsNets() && p.withoutNode(s.ix, h) {
			s.whole[h] = s.whole[h] || p.match.Dangerous
		}
		for _, n := range h.Nodes {
			// The node of an IOMMU group is that of its other functions too.
			if isGroupNode(n) && h.MDev == nil || !p.selectsNodes() {
				continue
			}
			if s.ix.picked[n] != s.turn && p.nodeHolds(s.ix, n) {
				s.pick(n, p.match)
			}
		}
	}
	if !p.selectsNets() {
		return
	}
	for _, n := range s.ix.snap.Nets {
		if p.interfaceSelected(s.ix, n) {
			s.pick(n, p.match)
		}
	}
}

func (s *selection) pick(n *device.Node, m *config.Match) {
	if s.ix.picked[n] != s.turn {
		s.ix.picked[n] = s.turn
		s.picks = append(s.picks, pick{node: n, match: m, hardware: n.Hardware, rank: s.ix.rank[n.Hardware]})
	}
}

// exclude takes out what any exclude selects. Hardware that had a node
// selected is a device by its nodes alone from here on.
func (s *selection) exclude() {
	s.picks = slices.DeleteFunc(s.picks, func(p pick) bool {
		delete(s.whole, p.node.Hardware)
		if p.match.VFIO {
			return false
		}
		return slices.ContainsFunc(s.excludes, func(e *predicate) bool { return e.holds(s.ix, p.node) })
	})
	maps.DeleteFunc(s.whole, func(h *device.Hardware, _ bool) bool {
		return slices.ContainsFunc(s.excludes, func(e *predicate) bool { return e.wholeHolds(s.ix, h) })
	})
}

// complete reports whether each required match has one of a device's nodes.
// What is mounted belongs to no hardware.
func (s *selection) complete(picks []pick) bool {
	for i := range s.matches {
		m := s.matches[i]
		if s.each == config.EachAll && !m.match.NamesHardware() {
			continue
		}
		if m.match.Required && !m.match.Mount && !slices.ContainsFunc(picks, func(p pick) bool { return p.match == m.match || m.holds(s.ix, p.node) }) {
			return false
		}
	}
	return true
}

// lacksRequired reports whether a required match that names no hardware has
// nothing of a pool.
func (s *selection) lacksRequired(found []selected) bool {
	for i := range s.matches {
		m := s.matches[i]
		if !m.match.Required || m.match.NamesHardware() {
			continue
		}
		if !slices.ContainsFunc(found, func(f selected) bool {
			return slices.ContainsFunc(f.picks, func(p pick) bool { return p.match == m.match || m.holds(s.ix, p.node) }) ||
				slices.ContainsFunc(f.paths, func(p pathPick) bool { return p.match == m.match })
		}) {
			return true
		}
	}
	return false
}

// byPlace orders nodes by hardware as a snapshot does, and then by path.
func byPlace(a, b pick) int {
	if c := cmp.Compare(a.rank, b.rank); c != 0 {
		return c
	}
	return cmp.Compare(a.node.Path, b.node.Path)
}

func hardwarePath(h *device.Hardware) string {
	if h == nil {
		return ""
	}
	return h.Path
}
