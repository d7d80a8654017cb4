package matchers

import (
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// leaveOutSideNodes removes dangerous nodes from devices that are of use without them: a
// network card also has the node that updates its firmware, and a graphics card has the
// buses of its monitors. A device keeps dangerous nodes if it has no others, or if a match
// names them; then it has a Problem, which says how to permit them.
func (m *run) leaveOutSideNodes(r *config.Resource, devices []candidate) {
	var left []*device.Node
	why := ""
	for i := range devices {
		c := &devices[i]
		dangers := m.sideDangers(c)
		if dangers == nil {
			continue
		}
		useful := usefulWithout(c, dangers)
		kept := make([]pick, 0, len(c.picks))
		for _, p := range c.picks {
			reason := dangers[p.node]
			if reason == "" || !useful[p.hardware] {
				kept = append(kept, p)
				continue
			}
			if left == nil {
				why = reason
			}
			left = append(left, p.node)
		}
		c.picks = kept
	}
	if len(left) == 0 {
		return
	}
	m.note(r.Place, "dangerous = true in the match, with --allow=dangerous, includes it",
		"left out of its device: %s is dangerous: %s", andMore(left[0].Path, len(left)), why)
}

// sideDangers has the reasons of the dangerous nodes of a device that may be left out; nil
// if there are none.
func (m *run) sideDangers(c *candidate) map[*device.Node]string {
	if c.single {
		return nil
	}
	var dangers map[*device.Node]string
	for _, p := range c.picks {
		reason := m.sideDanger(p)
		if reason == "" {
			continue
		}
		if dangers == nil {
			dangers = map[*device.Node]string{}
		}
		dangers[p.node] = reason
	}
	return dangers
}

// sideDanger returns why a selected node may be left out, "" if it may not. A match with
// dangerous = true, or with the path of the node, wants the node.
func (m *run) sideDanger(p pick) string {
	if p.node.Net != nil || p.match.Dangerous || !p.match.NamesHardware() {
		return ""
	}
	if namesNode(p.match, p.node) {
		return ""
	}
	return m.danger(p.node)
}

// namesNode reports whether a glob has the path of a node without wildcards.
func namesNode(match *predicate, n *device.Node) bool {
	for _, a := range match.Glob.Alternatives() {
		if literal, whole := a.Literal(); whole && literal == n.Path {
			return true
		}
	}
	return false
}

// usefulWithout has the hardware of a device that is of use without dangerous nodes: other
// nodes of it are selected, or it is a network function.
func usefulWithout(c *candidate, dangers map[*device.Node]string) map[*device.Hardware]bool {
	found := map[*device.Hardware]bool{}
	for _, p := range c.picks {
		isNetwork := p.hardware != nil && p.hardware.PCI != nil && strings.HasPrefix(p.hardware.PCI.Class, "02")
		isWhole := p.match.Glob.Empty()
		if dangers[p.node] == "" || isNetwork && isWhole {
			found[p.hardware] = true
		}
	}
	return found
}
