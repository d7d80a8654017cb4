package matchers

import (
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
)

// check makes the health check of the device.
func (b *builder) healthCheck() health.Check {
	want := b.r.Health
	if want == nil {
		return health.Check{}
	}
	c := health.Check{Interval: want.Interval}
	if want.Open {
		c.Open = b.openable()
	}
	dirs := b.c.attrDirs()
	for _, list := range dirs {
		for i := range list {
			list[i] = "/sys/" + list[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Attr)) {
		c.Attrs = append(c.Attrs, health.Attr{Name: name, Dirs: dirs, Want: want.Attr[name]})
	}
	if len(want.TCP) > 0 {
		address, ok := b.text("health.tcp", want.TCP, b.c)
		if err := config.CheckAddress(address); ok && err != nil {
			b.problem("health.tcp: %q %v", address, err)
		} else {
			c.TCP = address
		}
	}
	return c
}

// openable lists the nodes to open: the device's own, except for watchdogs.
func (b *builder) openable() []string {
	var nodes []string
	for _, p := range b.c.nodes() {
		if watchdog(p.node) {
			b.problem("health.open would arm the watchdog %s, and the host resets if nobody feeds it: want health.attr, which does not open it", p.node.Path)
			continue
		}
		nodes = append(nodes, p.node.Path)
	}
	if len(b.c.nodes()) == 0 {
		b.problem("health.open: the device has no node")
	}
	return nodes
}

// watchdog reports whether opening a node starts the timer of a watchdog
// (Documentation/watchdog/watchdog-api.rst). /dev/watchdog is of the subsystem
// misc (Documentation/admin-guide/devices.txt).
func watchdog(n *device.Node) bool {
	return n.Subsystem == "watchdog" || strings.HasPrefix(n.Kernel, "watchdog") ||
		n.Type == device.CharNode && n.Major == 10 && n.Minor == 130
}
