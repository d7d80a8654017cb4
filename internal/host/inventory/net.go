package inventory

import (
	"bytes"
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
	return nets
}

// netUse returns what the host itself uses a network interface for, "" for nothing: it is
// part of another one, one end of a pair whose other end is in another network namespace (a
// pod), or has routes or addresses. Where these are unknown, an interface that is up counts
// as used, except for CAN, which has none.
func (a *Attributes) netUse(n *device.Node) string {
	if why := partOf(a.of.netInterfaces[n.Path], a.of.netInterfaces); why != "" {
		return why
	}
	pair := a.netPair(n)
	if pair.Other > 0 && pair.Other != pair.Index && !slices.ContainsFunc(a.of.Nets, func(o *device.Node) bool {
		other := a.netPair(o)
		return other.Index == pair.Other && other.Other == pair.Index
	}) {
		return "one end of a pair, whose other end is in another network namespace"
	}
	if a.traffic == nil {
		t := a.readTraffic()
		a.traffic = &t
	}
	switch {
	case a.traffic.routes[n.Path]:
		return "the way of a route"
	case a.hasAddress(n.Path, pair.Index):
		return "an interface with an address"
	case !a.traffic.known && pair.Up && n.Net.Type != "can":
		return "up, and its addresses can't be read in the network namespace of this program"
	}
	return ""
}

func (a *Attributes) netPair(n *device.Node) sysfs.NetPair {
	p, known := a.pairs[n.Path]
	if !known {
		p = a.sysfs.NetPair(n.SysPath)
		a.pairs[n.Path] = p
	}
	return p
}

// traffic are the interfaces with routes and addresses, by name, or by number.
type traffic struct {
	routes, addresses map[string]bool
	indexes           map[int]bool
	known             bool
}

// ownNet assigns an interface to its hardware, like own for nodes, and reports false for
// one to leave out: its hardware has gone or is unknown.
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

// readTraffic reads the routes and addresses of the host.
//
// /proc shows the network namespace of a process, and sysfs the namespace of its mount.
// They may differ: a pod with its own eth0 may have the host's /sys. They count as the same
// if the process has each interface with hardware in sysfs, and there is one: a pod's
// network has none of them, or no others.
func (a *Attributes) readTraffic() traffic {
	var hardware []*device.Node
	for _, n := range a.of.Nets {
		if n.Hardware != nil {
			hardware = append(hardware, n)
		}
	}
	t := traffic{routes: make(map[string]bool), addresses: make(map[string]bool), indexes: make(map[int]bool)}
	if len(hardware) == 0 {
		return t
	}
	// The first process of a host, or of a container; otherwise this one.
	for _, process := range []string{"1", "self"} {
		if a.hasNets(process, hardware) {
			a.readRoutes(process, t.routes)
			break
		}
	}
	t.known = a.hasNets("self", hardware) && a.readAddresses(&t) == nil
	return t
}

// hasNets reports whether a process has these interfaces.
func (a *Attributes) hasNets(process string, nets []*device.Node) bool {
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
	// An interface gone since is no difference.
	return !slices.ContainsFunc(nets, func(n *device.Node) bool {
		return !known[n.Path] && a.sysfs.Exists(n.SysPath)
	})
}

// readRoutes adds the interfaces of the routes of a process. A recording has the names.
func (a *Attributes) readRoutes(process string, routes map[string]bool) {
	read := func(file string, iface func(fields []string) string, line string) {
		_ = a.proc.each(process+file, func(text []byte) string {
			name := iface(strings.Fields(string(text)))
			if name == "" || routes[name] {
				return ""
			}
			routes[name] = true
			return fmt.Sprintf(line, name)
		})
	}
	none := strings.Repeat("0", 32)
	read("/net/route", routeIPv4, "%s 00000000 00000000 0001 0 0 0 00000000")
	read("/net/ipv6_route", routeIPv6, none+" 00 "+none+" 00 "+none+" 0 0 0 0001 %s")
}

// addressFile has the names of interfaces with an address in a recording: netlink has
// them on a host, since /proc has no IPv4 addresses by interface.
const addressFile = "self/net/addresses"

// readAddresses reads the interfaces with an address, in one dump for all.
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
		// ifaddrmsg: family, length of the prefix, flags, scope, index. The scope of the
		// addresses that interfaces get by themselves is the link.
		if m.Header.Type == syscall.RTM_NEWADDR && len(m.Data) >= syscall.SizeofIfAddrmsg && m.Data[3] < syscall.RT_SCOPE_LINK {
			t.indexes[int(binary.NativeEndian.Uint32(m.Data[4:]))] = true
		}
	}
	return err
}

// hasAddress reports whether an interface with a number has an address.
func (a *Attributes) hasAddress(name string, index int) bool {
	if a.traffic.indexes[index] && !a.traffic.addresses[name] {
		a.traffic.addresses[name] = true
		if a.proc.kept != nil {
			a.proc.kept[addressFile] += name + "\n"
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
func routeIPv4(f []string) string {
	if len(f) < 8 || !leads(f[3]) {
		return ""
	}
	return f[0]
}

// routeIPv6 does the same for /proc/net/ipv6_route: destination and its length, source and
// its length, next hop, metric, references, use, flags, interface (rt6_info_dump in
// net/ipv6/route.c). Every interface that is up has those of fe80::/10 and ff00::/8.
func routeIPv6(f []string) string {
	if len(f) < 10 || strings.HasPrefix(f[0], "fe8") || strings.HasPrefix(f[0], "ff") || !leads(f[8]) {
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
