package inventory

import (
	"bytes"
	"net"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// readNets returns the network interfaces of the host, by name, and assigns them to
// their hardware.
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

// netUse determines what the host itself uses network interfaces for: a port of another
// one, the interface of a default route.
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

// ownNet assigns an interface to its hardware, like own for nodes, and reports false if
// it is to be left out, since its hardware has gone or is unknown.
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
		// Some drivers still set this instead of dev_port: those of CAN cards with
		// several channels.
		n.Index = i.DevID
	}
	return true
}

// partOf returns the interface that the host made an interface a port of, or the kind
// of one with ports. all are the interfaces of the host by name.
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

// linkType is the name of a kind of link: that of the constant ARPHRD_* in lower case,
// one for the three of IEEE 802.11, and the number for others
// (include/uapi/linux/if_arp.h).
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

// defaultRoutes returns the interfaces of default routes, by name; none if unknown.
//
// /proc shows the network namespace of a process, and sysfs that in which it was
// mounted, which may differ: a pod with its own eth0 may have the host's /sys. They
// count as the same if the process also has each interface with hardware in sysfs, and
// there is one: a pod's network has none of them, or no others.
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
	// The first process of a host, or of a container; otherwise this one.
	for _, process := range []string{"1", "self"} {
		if routes := a.defaultRoutesOf(process, hardware); routes != nil {
			return routes
		}
	}
	return nil
}

// defaultRoutesOf returns the default routes of a process, and nil if it does not have
// these interfaces or the files are unreadable.
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
		// One that has gone since is no difference.
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

// defaultIPv4 returns the interface of a line of /proc/net/route if it is a default
// route: interface, destination, gateway, flags, references, use, metric, mask
// (fib_route_seq_show in net/ipv4/fib_trie.c).
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

// leads reports whether the flags are those of a usable route.
func leads(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&(routeUp|routeReject) == routeUp
}

// ForeignNets reports whether a snapshot has network interfaces of another network
// namespace than that of this process, as in a pod with the host's /sys. The kernel
// announces an interface in its own namespace only (net_namespace in
// net/core/net-sysfs.c, kobject_uevent_net_broadcast in lib/kobject_uevent.c), so that
// their changes cause no events.
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
