package matchers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// pick is a selected node and the first match that selected it, which says
// where the node goes in the container.
type pick struct {
	node  *device.Node
	match *config.Match
	// hardware whose device the node is part of: its own, but for nodes of an
	// IOMMU group.
	hardware *device.Hardware
	rank     int // of the hardware
}

// selected is what a resource makes one device of: hardware, which is nil for
// a node that has none, and nodes by path. With each = "node" single is set
// and there is one node.
type selected struct {
	hardware *device.Hardware
	group    *group // nil but for vfio = true
	single   bool
	picks    []pick
	rank     int // of the hardware
}

// selection gathers what the matches of a resource select.
type selection struct {
	ix                *index
	matches, excludes []predicate
	picks             []pick
	seen              map[*device.Node]bool
	// whole is the hardware that is a device even without a node.
	whole map[*device.Hardware]bool
	// groups that matches with vfio = true select, by number.
	groups map[string]*group
}

// selectDevices finds the devices of a resource, whoever else selects them,
// in the order of the snapshot.
//
// A node is in if any match selects it, and out if any exclude does. Hardware
// is a device if one of its nodes is left, or if it never had one selected
// and a match without a glob matches it. Hardware that lacks a node of a
// required match is no device, and neither is any of its nodes.
func (ix *index) selectDevices(r *config.Resource) []selected {
	s := &selection{
		ix:      ix,
		matches: predicates(r.Match), excludes: predicates(r.Exclude),
		seen: map[*device.Node]bool{}, whole: map[*device.Hardware]bool{}, groups: map[string]*group{},
	}
	for i := range s.matches {
		s.add(&s.matches[i])
	}
	s.exclude()
	s.unite()

	slices.SortFunc(s.picks, byPlace)
	var found []selected
	for rest := s.picks; len(rest) > 0; {
		first, n := rest[0], 1
		for n < len(rest) && first.hardware != nil && rest[n].hardware == first.hardware {
			n++
		}
		picks := rest[:n:n]
		rest = rest[n:]
		switch h := first.hardware; {
		case h != nil && !s.complete(picks):
		case h != nil && r.Each != config.EachNode:
			found = append(found, selected{hardware: h, group: s.groupOf(h), picks: picks, rank: first.rank})
		default:
			for i := range picks {
				found = append(found, selected{hardware: h, single: true, picks: picks[i : i+1 : i+1], rank: first.rank})
			}
		}
	}
	for h := range s.whole {
		if r.Each != config.EachNode && s.complete(nil) {
			found = append(found, selected{hardware: h, rank: ix.rank[h]})
		}
	}
	slices.SortStableFunc(found, func(a, b selected) int { return cmp.Compare(a.rank, b.rank) })
	return found
}

// add selects what one match does.
func (s *selection) add(p *predicate) {
	if p.match.VFIO {
		s.addVFIO(p)
		return
	}
	if !p.match.NamesHardware() {
		for _, n := range s.ix.glob(p.match.Glob) {
			s.pick(n, p.match)
		}
		return
	}
	for _, h := range s.ix.hardware(p.match) {
		if !p.hardwareHolds(h) {
			continue
		}
		if p.match.Glob.Empty() && p.interfaceHolds(h, nil) {
			s.whole[h] = true
		}
		for _, n := range h.Nodes {
			// The node of an IOMMU group is that of its other functions too.
			if isGroupNode(n) && p.match.Glob.Empty() {
				continue
			}
			if p.nodeHolds(s.ix, n) {
				s.pick(n, p.match)
			}
		}
	}
}

func (s *selection) pick(n *device.Node, m *config.Match) {
	if !s.seen[n] {
		s.seen[n] = true
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
		return slices.ContainsFunc(s.excludes, func(e predicate) bool { return e.holds(s.ix, p.node) })
	})
	maps.DeleteFunc(s.whole, func(h *device.Hardware, _ bool) bool {
		return slices.ContainsFunc(s.excludes, func(e predicate) bool { return e.wholeHolds(h) })
	})
}

// complete reports whether each required match has one of a device's nodes.
func (s *selection) complete(picks []pick) bool {
	for i := range s.matches {
		m := &s.matches[i]
		if m.match.Required && !slices.ContainsFunc(picks, func(p pick) bool { return p.match == m.match || m.holds(s.ix, p.node) }) {
			return false
		}
	}
	return true
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
