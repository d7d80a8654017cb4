package matchers

import (
	"cmp"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// pick is a selected node and the first match that selected it, which says
// where the node goes in the container.
type pick struct {
	node  *device.Node
	match *config.Match
}

// selected is what a resource makes one device of: hardware, which is nil for
// a node that has none, and nodes by path. With each = "node" single is set
// and there is one node.
type selected struct {
	hardware *device.Hardware
	single   bool
	picks    []pick
}

// selection gathers what the matches of a resource select.
type selection struct {
	ix    *index
	r     *config.Resource
	nodes map[*device.Node]*config.Match
	// hardware that is a device even without a node: it is matched without a
	// glob.
	whole map[*device.Hardware]bool
}

// selectDevices finds the devices of a resource, whoever else selects them.
//
// A node is in if any match selects it, and out if any exclude does. Hardware
// is a device if one of its nodes is left, or if it never had one selected
// and a match without a glob matches it. Hardware that lacks a node of a
// required match is no device, and neither is any of its nodes.
func (ix *index) selectDevices(r *config.Resource) []selected {
	s := &selection{ix: ix, r: r, nodes: map[*device.Node]*config.Match{}, whole: map[*device.Hardware]bool{}}
	for i := range r.Match {
		s.add(&r.Match[i])
	}
	s.exclude()

	byHardware := map[*device.Hardware][]pick{}
	var alone []pick
	for n, m := range s.nodes {
		if n.Hardware == nil {
			alone = append(alone, pick{n, m})
		} else {
			byHardware[n.Hardware] = append(byHardware[n.Hardware], pick{n, m})
		}
	}
	for h := range s.whole {
		byHardware[h] = nil
	}
	var found []selected
	for h, picks := range byHardware {
		if !s.complete(picks) {
			continue
		}
		slices.SortFunc(picks, byPath)
		if r.Each != config.EachNode {
			found = append(found, selected{hardware: h, picks: picks})
			continue
		}
		for _, p := range picks {
			found = append(found, selected{hardware: h, single: true, picks: []pick{p}})
		}
	}
	for _, p := range alone {
		found = append(found, selected{single: true, picks: []pick{p}})
	}
	slices.SortFunc(found, byPlace)
	return found
}

// add selects what one match does.
func (s *selection) add(m *config.Match) {
	if !m.NamesHardware() {
		for _, n := range s.ix.glob(m.Glob) {
			s.pick(n, m)
		}
		return
	}
	for _, h := range s.ix.hardware(m) {
		if !hardwareHolds(m, h) {
			continue
		}
		if m.Glob.Empty() && interfaceHolds(m.USB, h, nil) {
			s.whole[h] = true
		}
		for _, n := range h.Nodes {
			if interfaceHolds(m.USB, h, n) && s.ix.globHolds(m.Glob, n) {
				s.pick(n, m)
			}
		}
	}
}

func (s *selection) pick(n *device.Node, m *config.Match) {
	if s.nodes[n] == nil {
		s.nodes[n] = m
	}
}

// exclude takes out what any exclude selects. Hardware that had a node
// selected is a device by its nodes alone from here on.
func (s *selection) exclude() {
	for n := range s.nodes {
		delete(s.whole, n.Hardware)
		for i := range s.r.Exclude {
			if s.ix.holds(&s.r.Exclude[i], n) {
				delete(s.nodes, n)
				break
			}
		}
	}
	for h := range s.whole {
		for i := range s.r.Exclude {
			if m := &s.r.Exclude[i]; m.NamesHardware() && m.Glob.Empty() && hardwareHolds(m, h) && interfaceHolds(m.USB, h, nil) {
				delete(s.whole, h)
				break
			}
		}
	}
}

// complete reports whether each required match has one of a device's nodes.
func (s *selection) complete(picks []pick) bool {
	for i := range s.r.Match {
		m := &s.r.Match[i]
		if m.Required && !slices.ContainsFunc(picks, func(p pick) bool { return p.match == m || s.ix.holds(m, p.node) }) {
			return false
		}
	}
	return true
}

// holds reports whether a match selects a node.
func (ix *index) holds(m *config.Match, n *device.Node) bool {
	if m.NamesHardware() {
		h := n.Hardware
		if h == nil || !hardwareHolds(m, h) || !interfaceHolds(m.USB, h, n) {
			return false
		}
	}
	return ix.globHolds(m.Glob, n)
}

// hardwareHolds reports whether hardware fulfils the usb and pci tables of a
// match that has one.
func hardwareHolds(m *config.Match, h *device.Hardware) bool {
	return (m.USB == nil || usbHolds(m.USB, h)) && (m.PCI == nil || pciHolds(m.PCI, h, m.USB != nil))
}

func byPath(a, b pick) int { return cmp.Compare(a.node.Path, b.node.Path) }

// byPlace orders devices so that what is decided in their order is the same
// every time.
func byPlace(a, b selected) int {
	return cmp.Or(cmp.Compare(hardwarePath(a.hardware), hardwarePath(b.hardware)), slices.CompareFunc(a.picks, b.picks, byPath))
}

func hardwarePath(h *device.Hardware) string {
	if h == nil {
		return ""
	}
	return h.Path
}
