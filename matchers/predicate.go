package matchers

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// predicate is a match made ready to be asked many times.
type predicate struct {
	match    *config.Match
	usb, pci []condition
	// number and class are what the usb table says of interfaces.
	number, class config.Values
}

// condition is what a table says of one key.
type condition struct {
	key    string
	values config.Values
}

func predicates(matches []config.Match) []predicate {
	out := make([]predicate, len(matches))
	for i := range matches {
		p := &out[i]
		p.match = &matches[i]
		for key, v := range p.match.USB {
			switch key {
			case interfaceKey:
				p.number = v
			case interfaceClassKey:
				p.class = v
			default:
				p.usb = append(p.usb, condition{key, v})
			}
		}
		for key, v := range p.match.PCI {
			p.pci = append(p.pci, condition{key, v})
		}
	}
	return out
}

// hardwareHolds reports whether hardware fulfils the usb and pci tables of a
// match that has one, but for what they say of interfaces.
func (p *predicate) hardwareHolds(h *device.Hardware) bool {
	return (p.match.USB == nil || usbHolds(p.usb, h)) && (p.match.PCI == nil || pciHolds(p.pci, h, p.match.USB != nil))
}

// wholeHolds reports whether the match selects hardware as such, whatever
// nodes it has.
func (p *predicate) wholeHolds(h *device.Hardware) bool {
	return p.match.NamesHardware() && p.match.Glob.Empty() && p.hardwareHolds(h) && p.interfaceHolds(h, nil)
}

// holds reports whether the match selects a node.
func (p *predicate) holds(ix *index, n *device.Node) bool { return p.holdsOf(ix, n, n.Hardware) }

// holdsOf does so for a node that is taken as one of h.
func (p *predicate) holdsOf(ix *index, n *device.Node, h *device.Hardware) bool {
	if p.match.NamesHardware() && (h == nil || !p.hardwareHolds(h)) {
		return false
	}
	return p.nodeHolds(ix, n)
}

// nodeHolds is the part of holds that looks at the node, not its hardware.
func (p *predicate) nodeHolds(ix *index, n *device.Node) bool {
	if n.Hardware != nil && !p.interfaceHolds(n.Hardware, n) {
		return false
	}
	if p.match.VFIO && !isGroupNode(n) && !isFunctionNode(n) {
		return false
	}
	return p.match.Glob.Empty() || ix.globHolds(p.match.Glob, n)
}
