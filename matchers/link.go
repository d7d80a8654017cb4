package matchers

import (
	"github.com/generic-dp/generic-dp/internal/device"
)

// linkChecks makes the checks of the carrier, as the prober runs them. A virtual function or a
// sub-function has no link of its own, and its interface may be in a container or bound to VFIO.
// So the interfaces of its physical function are checked. If the device has no such function,
// each of its own interfaces is checked.
func (b *builder) linkChecks() []device.LinkCheck {
	var checks []device.LinkCheck
	for _, h := range b.c.functions() {
		if pf := b.physicalFunction(h); pf != nil {
			checks = append(checks, linkCheck("physical function "+pf.Name, pf.Nets))
		}
	}
	if len(checks) == 0 {
		for _, n := range b.c.interfaces() {
			checks = append(checks, linkCheck(n.Path, []*device.Node{n}))
		}
	}
	if len(checks) == 0 {
		b.problem("health.link: the device has no network interface here")
	}
	// The physical function may be bound to a driver without interfaces.
	for _, c := range checks {
		if len(c.Dirs) == 0 {
			b.problem("health.link: %s has no network interface here", c.Of)
		}
	}
	return checks
}

// physicalFunction returns the physical function of a virtual function or a sub-function, and nil
// for other hardware.
func (b *builder) physicalFunction(h *device.Hardware) *device.Hardware {
	function := h.Function()
	if function == nil || function.PCI.PF == "" {
		return nil
	}
	return b.indexes.byAddress()[function.PCI.PF]
}

// linkCheck returns the check that one of several interfaces has a carrier. of is their name in
// reasons.
func linkCheck(of string, nets []*device.Node) device.LinkCheck {
	c := device.LinkCheck{Of: of}
	for _, n := range nets {
		c.Dirs = append(c.Dirs, "/sys/"+n.SysPath)
	}
	return c
}
