package inventory

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// defaultRoutes returns the interfaces that a default route leads through, by
// name; nothing is said where it can't be known.
//
// /proc shows the network namespace of a process, and sysfs that in which it
// was mounted, which need not be the same: a pod with an eth0 of its own may be
// shown the host's /sys. They are taken for the same if each interface with
// hardware that sysfs has is known to the process, too, and there is one: a
// pod's network has none of them, or no others.
func (a *Attributes) defaultRoutes(nets []*device.Node) map[string]bool {
	var hardware []*device.Node
	for _, n := range nets {
		if n.Hardware != nil {
			hardware = append(hardware, n)
		}
	}
	if len(hardware) == 0 {
		return nil
	}
	// The first process of a host, or of a container; else our own.
	for _, process := range []string{"1", "self"} {
		if routes := a.defaultRoutesOf(process, hardware); routes != nil {
			return routes
		}
	}
	return nil
}

// defaultRoutesOf returns the default routes of a process, and nil if it does
// not have these interfaces. Files that it may not read say nothing.
func (a *Attributes) defaultRoutesOf(process string, nets []*device.Node) map[string]bool {
	wanted := make(map[string]bool, len(nets))
	for _, n := range nets {
		wanted[n.Path] = true
	}
	known := make(map[string]bool, len(nets))
	_ = a.proc.each(process+"/net/dev", func(line []byte) string {
		before, _, found := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		name := string(before)
		known[name] = found
		if !found || !wanted[name] {
			return ""
		}
		return name + ":"
	})
	for _, n := range nets {
		// What has gone since is no difference.
		if !known[n.Path] && a.sysfs.Exists(n.SysPath) {
			return nil
		}
	}
	routes := make(map[string]bool)
	_ = a.proc.each(process+"/net/route", func(line []byte) string {
		name := defaultIPv4(string(line))
		if name == "" {
			return ""
		}
		routes[name] = true
		return name + " 00000000 00000000 0001 0 0 0 00000000"
	})
	_ = a.proc.each(process+"/net/ipv6_route", func(line []byte) string {
		name := defaultIPv6(string(line))
		if name == "" {
			return ""
		}
		routes[name] = true
		none := strings.Repeat("0", 32)
		return strings.Join([]string{none, "00", none, "00", none, "0 0 0 0001", name}, " ")
	})
	return routes
}

// Flags of routes (include/uapi/linux/route.h).
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// defaultIPv4 returns the interface of a line of /proc/net/route if it is that
// of a default route: interface, destination, gateway, flags, references, use,
// metric, mask (fib_route_seq_show in net/ipv4/fib_trie.c).
func defaultIPv4(line string) string {
	f := strings.Fields(line)
	if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" || !leads(f[3]) {
		return ""
	}
	return f[0]
}

// defaultIPv6 does the same for /proc/net/ipv6_route: destination and its
// length, source and its length, next hop, metric, references, use, flags,
// interface (rt6_info_dump in net/ipv6/route.c).
func defaultIPv6(line string) string {
	f := strings.Fields(line)
	if len(f) < 10 || strings.Trim(f[0]+f[1], "0") != "" || !leads(f[8]) {
		return ""
	}
	return f[9]
}

// leads reports whether the flags of a route say that it leads anywhere.
func leads(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&(routeUp|routeReject) == routeUp
}
