package matchers

import (
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// leaveOutSideNodes removes dangerous nodes from devices that are of use without them: a network
// card also has the node that updates its firmware, and a graphics card has the buses of its
// monitors. A device keeps dangerous nodes if it has no others, or if a match names them; then it
// has a Problem, which says how to permit them. It changes the devices in place.
func (m *run) leaveOutSideNodes(r *config.Resource, devices []candidate) {
	// One note is enough, with the first node as an example.
	var left []pick
	for i := range devices {
		c := &devices[i]
		if !c.single && m.hasSideNode(c) {
			left = append(left, m.splitSideNodes(c)...)
		}
	}
	if len(left) == 0 {
		return
	}
	m.note(
		r.Place,
		"dangerous = true in the match, with --allow=dangerous, includes it",
		"left out of its device: %s is dangerous: %s",
		andMore(left[0].node.Path, len(left)),
		*left[0].danger,
	)
}

// hasSideNode judges the nodes of a device that may be left out, and reports whether one of
// them is dangerous.
func (m *run) hasSideNode(c *candidate) bool {
	hasSide := false
	for i := range c.picks {
		p := &c.picks[i]
		if p.mayBeLeftOut() {
			// The pick keeps the answer, so that addNode does not judge the node again.
			danger := m.danger(p.node)
			p.danger = &danger
		}
		hasSide = hasSide || p.isSide()
	}
	return hasSide
}

// mayBeLeftOut reports whether nobody asked for a selected node in particular. A match with
// dangerous = true, or with the path of the node, asks for it.
func (p *pick) mayBeLeftOut() bool {
	// A match without hardware is about nodes, so that each of its nodes was asked for.
	if p.isNet() || p.match.Dangerous || !p.match.NamesHardware() {
		return false
	}
	return !isSpelledOut(p.match.Glob, p.node.Path)
}

// isSide reports whether a pick is a dangerous node that may be left out.
func (p *pick) isSide() bool { return p.danger != nil && *p.danger != "" }

// splitSideNodes removes the dangerous nodes from a device, as far as its hardware is of use
// without them, and returns them.
func (m *run) splitSideNodes(c *candidate) (left []pick) {
	useful := usefulHardware(c)
	kept := make([]pick, 0, len(c.picks))
	for _, p := range c.picks {
		if !p.isSide() || !useful[p.hardware] {
			kept = append(kept, p)
			continue
		}
		left = append(left, p)
		m.drop(&candidate{
			hardware: p.hardware,
			picks:    []pick{p},
			single:   true,
		}, "its device is usable without it, and it is dangerous: "+*p.danger)
	}
	c.picks = kept
	return left
}

// usefulHardware has the hardware of a device that is of use without dangerous nodes: other
// nodes of it are selected, or it is a network function.
func usefulHardware(c *candidate) map[*device.Hardware]bool {
	useful := make(map[*device.Hardware]bool)
	for _, p := range c.picks {
		// With a glob, the match is about the node and not about the network function.
		isWhole := p.match.Glob.Empty()
		if !p.isSide() || isWhole && isNetworkFunction(p.hardware) {
			useful[p.hardware] = true
		}
	}
	return useful
}

// isNetworkFunction reports whether hardware is a network function: PCI_BASE_CLASS_NETWORK in
// include/linux/pci_ids.h. Its interfaces are of use without any node.
func isNetworkFunction(h *device.Hardware) bool {
	return h != nil && h.PCI != nil && strings.HasPrefix(h.PCI.Class, "02")
}
