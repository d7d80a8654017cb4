package matchers

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// netHolds reports whether a network interface fulfils the net table.
func (p *predicate) netHolds(n *device.Node) bool {
	return n.Net != nil && !slices.ContainsFunc(p.nets, func(c condition) bool { return !c.values.Match(c.attribute.Net(n)) })
}

// interfaceSelected reports whether the match selects a network interface. One
// without hardware fulfils no table but net.
func (p *predicate) interfaceSelected(ix *index, n *device.Node) bool {
	m, h := p.match, n.Hardware
	switch {
	case !m.Glob.Empty() || m.VFIO:
		return false
	case m.Net != nil && !p.netHolds(n):
		return false
	case (m.USB != nil || m.PCI != nil || m.MDev != nil) && (h == nil || !p.tablesHold(h)):
		return false
	case h != nil && !p.interfaceHolds(h, n):
		return false
	}
	return (m.Subsystem.Empty() || m.Subsystem.Match(n.Subsystem)) && (p.asksNothing() || p.sysHolds(ix, ix.sysDirs(n)))
}

// candidates lists the hardware that may fulfil the tables of a match.
func (ix *index) candidates(m *config.Match) []*device.Hardware {
	switch {
	case m.USB != nil:
		return ix.bus[device.USBBus]
	case m.MDev != nil:
		return ix.bus[device.MDevBus]
	case m.PCI != nil:
		return ix.bus[device.PCIBus]
	}
	var found []*device.Hardware
	for _, h := range ix.snap.Hardware {
		if len(h.Nets) > 0 {
			found = append(found, h)
		}
	}
	return found
}

// interfaces are the network interfaces that ${net.KEY} is about: those of the
// device, else those of its hardware that its matches want.
func (s *subject) interfaces() []*device.Node {
	var found []*device.Node
	for _, p := range s.picks {
		if p.node.Net != nil {
			found = append(found, p.node)
		}
	}
	if found != nil {
		return found
	}
	wanted := func(n *device.Node) bool {
		if len(s.picks) == 0 {
			return true
		}
		return slices.ContainsFunc(s.picks, func(p pick) bool {
			own := predicate{nets: conditions("net", p.match.Net)}
			return own.netHolds(n)
		})
	}
	for _, h := range s.hardware {
		for _, n := range h.Nets {
			if wanted(n) {
				found = append(found, n)
			}
		}
	}
	return found
}

// UsesNets reports whether a configuration looks at network interfaces. A
// physical function that is not named by its address is named by an interface,
// whose name has no colon (dev_valid_name in net/core/dev.c).
func UsesNets(cfg *config.Config) bool {
	named := func(pf string) bool { return !strings.Contains(pf, ":") }
	return slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool {
		net := func(m config.Match) bool {
			return m.Net != nil || slices.ContainsFunc(m.PCI["pf"].Patterns(), named)
		}
		return slices.ContainsFunc(r.Match, net) || slices.ContainsFunc(r.Exclude, net) || usesVariable(&r, "net.")
	})
}
