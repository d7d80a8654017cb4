package inventory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// readNets returns the network interfaces of the host, by name, and assigns them to
// their hardware.
func (c *scan) readNets(numbers *netNumbers) []*device.Node {
	entries, err := c.sysfs.Nets()
	if notExist(err) {
		return nil
	}
	c.problems.add("class/net", err)
	var nets []*device.Node
	c.netInterfaces = make(map[string]sysfs.NetInterface, len(entries))
	for _, e := range entries {
		// The loopback interface has no hardware and is always in use.
		if e.Name == "lo" {
			continue
		}
		i, err := c.sysfs.NetInterface(e.Path)
		// The interface was removed after the listing.
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		n := &device.Node{
			Path:      e.Name,
			Type:      device.NetInterface,
			Kernel:    e.Name,
			SysPath:   e.Path,
			Subsystem: "net",
			Interface: -1,
			Index:     -1,
			Net:       &device.Net{Driver: i.Driver, Type: linkType(i.Type)},
		}
		if c.ownNet(n, i) {
			nets = append(nets, n)
			c.netInterfaces[e.Name] = i
		}
	}
	numbers.number(nets, entries)
	return nets
}

// netUse returns how the host itself uses a network interface, or an empty string. An interface is
// used if it is part of another interface, if it is one end of a pair whose other end is in another
// network namespace (a pod), or if it has routes or addresses. If these are unknown, an interface
// that is up counts as used. CAN is an exception, because it has neither. The caller holds a.mu.
func (a *Attributes) netUse(n *device.Node) string {
	use := partOf(a.of.netInterfaces[n.Path], a.of.netInterfaces)
	if use != "" {
		return use
	}
	pair := a.netPair(n)
	// An interface that is not one end of a pair has its own number as the other end.
	isPair := pair.Other > 0 && pair.Other != pair.Index
	if isPair && !a.hasOtherEnd(pair) {
		return "one end of a pair, whose other end is in another network namespace"
	}
	if a.traffic == nil {
		a.traffic = a.readTraffic()
	}
	if a.traffic.routes[n.Path] {
		return "the interface of a route"
	}
	if a.hasAddress(n.Path, pair.Index) {
		return "an interface with an address"
	}
	mayHaveAddress := pair.Up && n.Net.Type != "can"
	if mayHaveAddress && !a.traffic.isKnown {
		return "up, and its addresses can't be read in the network namespace of this program"
	}
	return ""
}

// hasOtherEnd reports whether the host has the other end of a pair. The numbers of interfaces are
// only unique in one network namespace, so both ends must refer to each other.
func (a *Attributes) hasOtherEnd(pair sysfs.NetPair) bool {
	return slices.ContainsFunc(a.of.Nets, func(n *device.Node) bool {
		other := a.netPair(n)
		return other.Index == pair.Other && other.Other == pair.Index
	})
}

// netPair returns the numbers of an interface, and reads them only once. The caller holds a.mu.
func (a *Attributes) netPair(n *device.Node) sysfs.NetPair {
	p, known := a.pairs[n.Path]
	if !known {
		p = a.sysfs.NetPair(n.SysPath)
		a.pairs[n.Path] = p
	}
	return p
}

// traffic are the interfaces with routes and addresses.
type traffic struct {
	routes    map[string]bool // by name
	addresses map[string]bool // by name
	indexes   map[int]bool    // with addresses, by number
	// isKnown is set if the addresses could be read.
	isKnown bool
}

// ownNet assigns an interface to its hardware, like own for nodes. It returns false if the
// interface must be left out, because its hardware was removed or is unknown.
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
		// Some drivers of CAN cards with several channels still set this instead of dev_port.
		n.Index = i.DevID
	}
	return true
}

// partOf describes an interface that is part of another interface, or that has other interfaces as
// its parts. all are the interfaces of the host by name.
func partOf(i sysfs.NetInterface, all map[string]sysfs.NetInterface) string {
	if i.Master != "" {
		master := all[i.Master]
		if master.Bridge {
			return "a port of bridge " + i.Master
		}
		if master.Bond {
			return "a member of " + i.Master
		}
		return "a part of " + i.Master
	}
	switch {
	case len(i.Uppers) > 0:
		return "the link below " + strings.Join(i.Uppers, ", ")
	case i.Bridge:
		return "a bridge"
	case i.Bond:
		return "a bond"
	}
	return ""
}

// linkTypes are the names of kinds of links: the names of the constants ARPHRD_* in lower case
// (include/uapi/linux/if_arp.h). The three kinds of IEEE 802.11 have one name.
var linkTypes = map[int]string{
	1:     "ether",
	24:    "ieee1394",
	32:    "infiniband",
	280:   "can",
	512:   "ppp",
	519:   "rawip",
	768:   "tunnel",
	769:   "tunnel6",
	772:   "loopback",
	776:   "sit",
	778:   "ipgre",
	801:   "ieee80211",
	802:   "ieee80211",
	803:   "ieee80211",
	804:   "ieee802154",
	65534: "none",
}

// linkType is the name of a kind of link. Kinds without a name here have their number.
func linkType(n int) string { return cmp.Or(linkTypes[n], strconv.Itoa(n)) }

// readTraffic reads the routes and addresses of the host.
//
// /proc shows the network namespace of a process, and sysfs the namespace of its mount. They may
// differ, because a pod with its own eth0 may have the host's /sys. They count as the same
// namespace if sysfs has interfaces with hardware and the process has all of them.
func (a *Attributes) readTraffic() *traffic {
	var hardware []*device.Node
	for _, n := range a.of.Nets {
		if n.Hardware != nil {
			hardware = append(hardware, n)
		}
	}
	t := &traffic{
		routes:    make(map[string]bool),
		addresses: make(map[string]bool),
		indexes:   make(map[int]bool),
	}
	if len(hardware) == 0 {
		return t
	}
	// Process 1 is the first process of the host, or of a container.
	for _, process := range []string{"1", "self"} {
		if a.hasNets(process, hardware) {
			a.readRoutes(process, t.routes)
			break
		}
	}
	if a.hasNets("self", hardware) {
		err := a.readAddresses(t)
		t.isKnown = err == nil
	}
	return t
}

// hasNets reports whether a process has these interfaces.
func (a *Attributes) hasNets(process string, nets []*device.Node) bool {
	isWanted := make(map[string]bool, len(nets))
	for _, n := range nets {
		isWanted[n.Path] = true
	}
	isFound := make(map[string]bool, len(nets))
	_ = a.proc.each(process+"/net/dev", func(line []byte) string {
		before, _, isInterface := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		name := string(before)
		isFound[name] = isInterface
		if !isInterface || !isWanted[name] {
			return ""
		}
		return name + ":"
	})
	for _, n := range nets {
		// An interface may have been removed meanwhile.
		if !isFound[n.Path] && a.sysfs.Exists(n.SysPath) {
			return false
		}
	}
	return true
}

// readRoutes adds the interfaces of the routes of a process. Recordings only contain their names. A
// file that cannot be read has no routes: addresses are read as well.
func (a *Attributes) readRoutes(process string, routes map[string]bool) {
	const (
		noIPv6       = "00000000000000000000000000000000"
		recordedIPv4 = "%s 00000000 00000000 0001 0 0 0 00000000"
		recordedIPv6 = noIPv6 + " 00 " + noIPv6 + " 00 " + noIPv6 + " 0 0 0 0001 %s"
	)
	read := func(file string, interfaceOf func(fields []string) string, recorded string) {
		_ = a.proc.each(process+file, func(line []byte) string {
			name := interfaceOf(strings.Fields(string(line)))
			if name == "" || routes[name] {
				return ""
			}
			routes[name] = true
			return fmt.Sprintf(recorded, name)
		})
	}
	read("/net/route", routeIPv4, recordedIPv4)
	read("/net/ipv6_route", routeIPv6, recordedIPv6)
}

// addressFile contains the names of interfaces with an address in a recording. On a host they are
// read by netlink, because /proc has no IPv4 addresses by interface.
const addressFile = "self/net/addresses"

// readAddresses reads the interfaces with an address. One dump contains all of them.
func (a *Attributes) readAddresses(t *traffic) error {
	if a.proc.root != hostProc {
		return a.proc.each(addressFile, func(line []byte) string {
			t.addresses[string(line)] = true
			return string(line)
		})
	}
	dump, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	for _, m := range messages {
		isAddress := m.Header.Type == syscall.RTM_NEWADDR && len(m.Data) >= syscall.SizeofIfAddrmsg
		if !isAddress {
			continue
		}
		// struct ifaddrmsg: family, length of the prefix, flags, scope, index. Addresses that
		// the kernel assigns automatically have the scope of the link.
		scope := m.Data[3]
		index := binary.NativeEndian.Uint32(m.Data[4:])
		// The values of scopes rise as the scopes become narrower.
		if scope < syscall.RT_SCOPE_LINK {
			t.indexes[int(index)] = true
		}
	}
	return err
}

// hasAddress reports whether an interface with a number has an address. A recording has names,
// because numbers differ on each host.
func (a *Attributes) hasAddress(name string, index int) bool {
	if a.traffic.indexes[index] && !a.traffic.addresses[name] {
		a.traffic.addresses[name] = true
		if a.proc.recorded != nil {
			a.proc.recorded[addressFile] += name + "\n"
		}
	}
	return a.traffic.addresses[name]
}

// Flags of routes (include/uapi/linux/route.h).
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// routeIPv4 returns the interface of a line of /proc/net/route if it is a usable route:
// interface, destination, gateway, flags, references, use, metric, mask
// (fib_route_seq_show in net/ipv4/fib_trie.c).
func routeIPv4(fields []string) string {
	if len(fields) < 8 || !isUsable(fields[3]) {
		return ""
	}
	return fields[0]
}

// routeIPv6 is like routeIPv4 for a line of /proc/net/ipv6_route: destination and its length,
// source and its length, next hop, metric, references, use, flags, interface
// (ipv6_route_native_seq_show in net/ipv6/ip6_fib.c). It ignores routes to fe80::/10 and ff00::/8,
// which every interface has that is up.
func routeIPv6(fields []string) string {
	if len(fields) < 10 || !isUsable(fields[8]) {
		return ""
	}
	destination := fields[0]
	isLinkLocal := strings.HasPrefix(destination, "fe8")
	isMulticast := strings.HasPrefix(destination, "ff")
	if isLinkLocal || isMulticast {
		return ""
	}
	return fields[9]
}

// isUsable reports whether a route has the flags of a usable route.
func isUsable(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&(routeUp|routeReject) == routeUp
}

// ForeignNets reports whether a snapshot has network interfaces of a network namespace other than
// the namespace of this process, as in a pod with the host's /sys. Changes of these interfaces
// cause no events, because the kernel announces an interface only in its own namespace
// (net_namespace in net/core/net-sysfs.c, kobject_uevent_net_broadcast in lib/kobject_uevent.c).
func ForeignNets(s *device.Snapshot) bool {
	if len(s.Nets) == 0 {
		return false
	}
	// These are the interfaces of the network namespace of this process.
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
