package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
)

// watchdogMajor and watchdogMinor are those of /dev/watchdog, which is of the
// subsystem misc (Documentation/admin-guide/devices.txt).
const (
	watchdogMajor = 10
	watchdogMinor = 130
)

const hostSys = "/sys/"

// check is what the resource wants to have looked at of the device. What can't
// be looked at is a problem of the offer.
func (b *builder) check() health.Check {
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
			list[i] = hostSys + list[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Attr)) {
		c.Attrs = append(c.Attrs, health.Attr{Name: name, Dirs: dirs, Want: want.Attr[name]})
	}
	if len(want.TCP) > 0 {
		address, err := b.address(want.TCP)
		if err != nil {
			b.problem("health.tcp: %v", err)
		}
		c.TCP = address
	}
	return c
}

// openable lists the device's own nodes, but for watchdogs.
func (b *builder) openable() []string {
	var nodes []string
	for _, p := range b.c.nodes() {
		if watchdog(p.node) {
			b.problem("health.open would arm the watchdog %s, and the host resets if nobody feeds it", p.node.Path)
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
// (Documentation/watchdog/watchdog-api.rst).
func watchdog(n *device.Node) bool {
	return n.Subsystem == "watchdog" || strings.HasPrefix(n.Kernel, "watchdog") ||
		n.Type == device.CharNode && n.Major == watchdogMajor && n.Minor == watchdogMinor
}

// address fills in HOST:PORT. Each variable must have one value.
func (b *builder) address(t device.Text) (string, error) {
	text, err := b.single(t, b.c)
	if err != nil {
		return "", err
	}
	address := text.String()
	if err := config.CheckAddress(address); err != nil {
		return "", fmt.Errorf("%q %w", address, err)
	}
	return address, nil
}
