package matchers

import "github.com/generic-dp/generic-dp/device"

// pciHolds reports whether hardware fulfils conditions of a pci table: a PCI
// function by what it is, and a USB or mediated device, where the table of
// those stands beside it, by the function above it.
func (p *predicate) pciHolds(conditions []condition, h *device.Hardware) bool {
	below := p.match.USB != nil || p.match.MDev != nil
	if h.PCI == nil && !below || h.Function() == nil {
		return false
	}
	return hold(conditions, h) &&
		(p.pf.Empty() || p.pf.Match(p.ix.physical(h)...))
}

// physical names the physical function of a virtual one: by its address, and by
// its network interfaces.
func (ix *index) physical(h *device.Hardware) []string {
	address := h.Function().PCI.PF
	if address == "" {
		return nil
	}
	names := []string{address}
	if ix.functions == nil {
		ix.functions = map[string]*device.Hardware{}
		for _, f := range ix.bus[device.PCIBus] {
			ix.functions[f.Name] = f
		}
	}
	if pf := ix.functions[address]; pf != nil {
		for _, n := range pf.Nets {
			names = append(names, n.Path)
		}
	}
	return names
}
