package matchers

import (
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// checkParts is what the health check of a device takes of the budget, so that a node has at most 1,000 of them.
// With the shortest interval, 5 s, these are 200 connections a second from every node, possibly to one host.
const checkParts = 20

// healthCheck makes the health check of the device. It is zero if the resource has no health. A
// check that the device cannot have is a problem.
func (b *builder) healthCheck() device.Check {
	want := b.r.Health
	if want == nil {
		return device.Check{}
	}
	check := device.Check{Interval: want.Interval}
	if want.Open {
		check.Open = b.openable()
	}
	if len(want.Attr) > 0 {
		check.Attrs = b.attrChecks(want)
	}
	if want.Link {
		check.Links = b.linkChecks()
	}
	if len(want.TCP) == 0 {
		return check
	}
	address, ok := b.text("health.tcp", want.TCP, b.c)
	if !ok {
		return check
	}
	// The address may have variables, so that the configuration alone cannot be checked.
	if err := config.CheckAddress(address); err != nil {
		b.problem("health.tcp: %q %v", address, err)
		return check
	}
	check.TCP = address
	return check
}

// attrChecks makes the checks of attributes, by name.
func (b *builder) attrChecks(want *config.Health) []device.AttrCheck {
	dirs := b.c.attrDirs()
	for _, list := range dirs {
		for i := range list {
			// A check uses paths of the host. attrDirs returns new lists, which may be changed.
			list[i] = "/sys/" + list[i]
		}
	}
	var checks []device.AttrCheck
	// The prober compares a check with the previous one, so that the order must not change.
	for _, name := range slices.Sorted(maps.Keys(want.Attr)) {
		checks = append(checks, device.AttrCheck{
			Name: name,
			Dirs: dirs,
			Want: want.Attr[name],
		})
	}
	return checks
}

// openable lists the nodes to open: the device's own nodes, except for watchdogs.
func (b *builder) openable() []string {
	own := b.c.nodes()
	if len(own) == 0 {
		b.problem("health.open: the device has no node")
	}
	var nodes []string
	for _, p := range own {
		if isWatchdog(p.node) {
			b.problem("health.open would arm the watchdog %s, and the host resets if nobody feeds it: use health.attr, which does not open it", p.node.Path)
			continue
		}
		nodes = append(nodes, p.node.Path)
	}
	return nodes
}

// isWatchdog reports whether opening a node starts the timer of a watchdog
// (Documentation/watchdog/watchdog-api.rst). /dev/watchdog belongs to the subsystem
// misc (Documentation/admin-guide/devices.txt).
func isWatchdog(n *device.Node) bool {
	const watchdogMinor = 130
	isMisc := n.Type == device.CharNode && n.Major == miscMajor
	if isMisc && n.Minor == watchdogMinor {
		return true
	}
	return n.Subsystem == "watchdog" || strings.HasPrefix(n.Kernel, "watchdog")
}

// linkChecks makes the checks of the carrier, as the prober runs them. A virtual function or a
// sub-function has no link of its own, and its interface may be in a container or bound to VFIO.
// So the interfaces of its physical function are checked. If the device has no such function,
// each of its own interfaces is checked.
func (b *builder) linkChecks() []device.LinkCheck {
	var checks []device.LinkCheck
	for _, h := range b.c.members() {
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
	return b.function(function.PCI.PF)
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
