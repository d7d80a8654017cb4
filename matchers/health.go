package matchers

import (
	"fmt"
	"maps"
	"path"
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
func (o *offering) check() health.Check {
	want := o.r.Health
	if want == nil {
		return health.Check{}
	}
	c := health.Check{Interval: want.Interval}
	if want.Open {
		c.Open = o.openable()
	}
	dirs := o.attrDirs()
	for _, name := range slices.Sorted(maps.Keys(want.Attr)) {
		c.Attrs = append(c.Attrs, health.Attr{Name: name, Dirs: dirs, Want: want.Attr[name]})
	}
	if len(want.TCP) > 0 {
		address, err := o.address(want.TCP)
		if err != nil {
			o.problem("health.tcp: %v", err)
		}
		c.TCP = address
	}
	return c
}

// openable lists the device's own nodes, but for watchdogs.
func (o *offering) openable() []string {
	var nodes []string
	for _, p := range o.s.picks {
		if watchdog(p.node) {
			o.problem("health.open would arm the watchdog %s, and the host resets if nobody feeds it", p.node.Path)
			continue
		}
		nodes = append(nodes, p.node.Path)
	}
	if len(o.s.picks) == 0 {
		o.problem("health.open: the device has no node")
	}
	return nodes
}

// watchdog reports whether opening a node starts the timer of a watchdog
// (Documentation/watchdog/watchdog-api.rst).
func watchdog(n *device.Node) bool {
	return n.Subsystem == "watchdog" || strings.HasPrefix(n.Kernel, "watchdog") ||
		n.Type == device.CharNode && n.Major == watchdogMajor && n.Minor == watchdogMinor
}

// attrDirs lists for each node of the device where its attributes may be: its
// own directory first, that of its hardware last. A device without nodes has
// that of its hardware.
func (o *offering) attrDirs() [][]string {
	var all [][]string
	for _, p := range o.s.picks {
		if dirs := sysDirs(p.node); dirs != nil {
			all = append(all, dirs)
		}
	}
	if h := o.s.hardware; all == nil && h != nil {
		all = [][]string{{hostSys + h.Path}}
	}
	return all
}

// sysDirs lists the directories of sysfs from a node up to its hardware. A
// node without hardware has its own alone.
func sysDirs(n *device.Node) []string {
	var dirs []string
	top := hardwarePath(n.Hardware)
	dir := n.SysPath
	if dir != "" && !strings.HasPrefix(dir, top+"/") {
		dirs, dir = []string{hostSys + dir}, top
	}
	for ; len(dir) > len(top); dir = path.Dir(dir) {
		dirs = append(dirs, hostSys+dir)
	}
	if top != "" {
		dirs = append(dirs, hostSys+top)
	}
	return dirs
}

// address fills in HOST:PORT. Each variable must have one value.
func (o *offering) address(t device.Text) (string, error) {
	text, err := o.expand(t, func(name string) (device.Text, error) {
		values, err := o.values(name, o.s.picks)
		if err != nil {
			return nil, err
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("${%s} has several values: %q and %q", name, values[0], values[1])
		}
		return values[0], nil
	})
	if err != nil {
		return "", err
	}
	address := text.String()
	if err := config.CheckAddress(address); err != nil {
		return "", fmt.Errorf("%q %w", address, err)
	}
	return address, nil
}
