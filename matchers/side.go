package matchers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// leaveOutSideNodes removes dangerous nodes from devices that are of use without them: a network
// card also has the node that updates its firmware, and a graphics card has the buses of its
// monitors. A device keeps dangerous nodes if it has no others, or if a match names them; then it
// has a Problem, which says how to permit them. It changes the devices in place.
func (m *run) leaveOutSideNodes(r *config.Resource, devices []candidate) {
	example := "" // why the first of these nodes is dangerous
	for i := range devices {
		c := &devices[i]
		if c.single || !slices.ContainsFunc(c.picks, m.isSide) {
			continue
		}
		useful := m.usefulHardware(c)
		kept := make([]pick, 0, len(c.picks))
		for _, p := range c.picks {
			if !m.isSide(p) || !useful[p.hardware] {
				kept = append(kept, p)
				continue
			}
			why := m.danger(p.node)
			example = cmp.Or(example, why)
			const hint = "dangerous = true in the match, with dangerous in --allow (in the chart: allow), includes it"
			note := noteAt(r.Place, hint, "left out of its device: ")
			m.left = append(m.left, leftOut{
				device: &candidate{
					hardware: p.hardware,
					picks:    []pick{p},
					single:   true,
				},
				why:  "its device is usable without it, and it is dangerous: " + why,
				note: devicesNote{note, " is dangerous: " + example},
			})
		}
		c.picks = kept
	}
}

// isSide reports whether a selected node is dangerous and nobody asked for it in particular. A match with
// dangerous = true, or with the path of the node, asks for it.
func (m *run) isSide(p pick) bool {
	// A match without hardware is about nodes, so that each of its nodes was asked for.
	if p.isNet() || p.match.Dangerous || !p.match.NamesHardware() {
		return false
	}
	return m.danger(p.node) != "" && !isSpelledOut(p.match.Glob, p.node.Path)
}

// usefulHardware has the hardware of a device that is of use without its dangerous nodes: other nodes of it are
// selected, or it is a network function.
func (m *run) usefulHardware(c *candidate) map[*device.Hardware]bool {
	useful := make(map[*device.Hardware]bool)
	for _, p := range c.picks {
		// With a glob, the match is about the node and not about the network function.
		isWhole := p.match.Glob.Empty()
		if !m.isSide(p) || isWhole && isNetworkFunction(p.hardware) {
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
