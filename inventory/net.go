package inventory

import (
	"bytes"
	"net"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// readNets returns the network interfaces of the host, by name, and gives each
// piece of hardware its own.
func (c *scan) readNets() []*device.Node {
	entries, err := c.sysfs.Nets()
	if notExist(err) {
		return nil
	}
	c.problems.add("class/net", err)
	var nets []*device.Node
	c.netInterfaces = make(map[string]sysfs.NetInterface, len(entries))
	for _, e := range entries {
		if e.Name == "lo" {
			continue
		}
		i, err := c.sysfs.NetInterface(e.Path)
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		n := &device.Node{
			Path: e.Name, Type: device.NetInterface, Kernel: e.Name, SysPath: e.Path, Subsystem: "net", Interface: -1, Index: -1,
			Net: &device.Net{Driver: i.Driver, Type: linkType(i.Type)},
		}
		if c.ownNet(n, i) {
			nets = append(nets, n)
			c.netInterfaces[e.Name] = i
		}
	}
	return nets
}

// netUse says of network interfaces what the host itself uses them for: a part
// of another one, the way of a default route.
func (a *Attributes) netUse() map[string]string {
	used := make(map[string]string)
	routes := a.defaultRoutes(a.of.Nets)
	for _, n := range a.of.Nets {
		if why := partOf(a.of.netInterfaces[n.Path], a.of.netInterfaces); why != "" {
			used[n.Path] = why
		} else if routes[n.Path] {
			used[n.Path] = "the way of the default route"
		}
	}
	return used
}

// ownNet gives an interface its hardware, as own does with nodes, and reports
// false if it is to be left out, since its hardware has gone or is not known.
func (c *scan) ownNet(n *device.Node, i sysfs.NetInterface) bool {
	bus, dir := c.busDevice(n.SysPath)
	h := c.hardware[dir]
	if dir != "" && h == nil {
		c.leaveOut(n.SysPath, bus, dir)
		return false
	}
	if h == nil {
		h = c.platform(n.SysPath)
	}
	if h == nil {
		return true
	}
	n.Hardware = h
	h.Nets = append(h.Nets, n)
	c.place(n)
	n.Index = i.DevPort
	if i.DevPort <= 0 && i.DevID > 0 {
		// What drivers set before there was dev_port, some to this day: those
		// of CAN cards with several channels.
		n.Index = i.DevID
	}
	return true
}

// partOf says what the host has made an interface a part of, or what it is
// that has others as parts. all are the interfaces of the host by name.
func partOf(i sysfs.NetInterface, all map[string]sysfs.NetInterface) string {
	switch {
	case i.Master != "" && all[i.Master].Bridge:
		return "a port of bridge " + i.Master
	case i.Master != "" && all[i.Master].Bond:
		return "a member of " + i.Master
	case i.Master != "":
		return "a part of " + i.Master
	case len(i.Uppers) > 0:
		return "the link below " + strings.Join(i.Uppers, ", ")
	case i.Bridge:
		return "a bridge"
	case i.Bond:
		return "a bond"
	}
	return ""
}

// linkType is the name of a kind of link: that of the constant ARPHRD_* in
// lower case, one for the three of IEEE 802.11, and the number for those that
// are not here (include/uapi/linux/if_arp.h).
func linkType(n int) string {
	switch n {
	case 1:
		return "ether"
	case 24:
		return "ieee1394"
	case 32:
		return "infiniband"
	case 280:
		return "can"
	case 512:
		return "ppp"
	case 519:
		return "rawip"
	case 768:
		return "tunnel"
	case 769:
		return "tunnel6"
	case 772:
		return "loopback"
	case 776:
		return "sit"
	case 778:
		return "ipgre"
	case 801, 802, 803:
		return "ieee80211"
	case 804:
		return "ieee802154"
	case 65534:
		return "none"
	}
	return strconv.Itoa(n)
}

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

// ForeignNets reports whether a snapshot has network interfaces that are not
// those of this process: its sysfs shows another network namespace, as in a pod
// that is given the host's /sys. The kernel tells of an interface in its own
// namespace only (net_namespace in net/core/net-sysfs.c, kobject_uevent_net_broadcast
// in lib/kobject_uevent.c), so that nothing tells of those.
func ForeignNets(s *device.Snapshot) bool {
	if len(s.Nets) == 0 {
		return false
	}
	list, err := net.Interfaces()
	if err != nil {
		return true
	}
	own := make(map[string]bool, len(list))
	for _, i := range list {
		own[i.Name] = true
	}
	for _, n := range s.Nets {
		if !own[n.Path] {
			return true
		}
	}
	return false
}
