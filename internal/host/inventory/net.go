package inventory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// readNets returns the network interfaces of the host, by name, and assigns them to
// their hardware.
func (c *scan) readNets(numbers *netNumbers) []*device.Node {
	// They belong to the network namespace in which this sysfs was mounted.
	entries, err := c.sysfs.Entries("class/net")
	if notExist(err) {
		return nil // a kernel without networking
	}
	c.problems.add("class/net", err)
	if entries == nil {
		c.addUnlisted(err)
		return nil
	}
	sort.Slice(entries, func(i, j int) bool {
		return entries[i].Name < entries[j].Name
	})
	var nets []*device.Node
	inodes := make(map[string]uint64, len(entries))
	c.netInterfaces = make(map[string]netInterface, len(entries))
	for _, e := range entries {
		// The loopback interface has no hardware and is always in use.
		if e.Name == "lo" {
			continue
		}
		inodes[e.Name] = c.sysfs.Inode("class/net", e.Name)
		i, err := readNet(c.sysfs, e.Path)
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
			Net:       &device.Net{Driver: i.driver, Type: linkType(i.kind)},
		}
		if c.ownNet(n, i) {
			nets = append(nets, n)
			c.netInterfaces[e.Name] = i
		}
	}
	numbers.number(nets, inodes)
	return nets
}

// netInterface are the attributes of a network interface
// (Documentation/ABI/testing/sysfs-class-net).
type netInterface struct {
	// kind is the kind of link, a number of ARPHRD_* (include/uapi/linux/if_arp.h).
	kind int
	// devPort and devID number the interfaces of one device. Drivers set one of them,
	// and both default to 0. They are -1 if they are unknown.
	devPort, devID int
	// driver is the driver of the interface's device, or an empty string.
	driver string
	// master is the interface that has this interface as a port, such as a bridge.
	master string
	// uppers are other interfaces on top of this interface, such as its VLANs, by name. They are
	// only read for an interface with a device.
	uppers []string
	// bridge and bond are set for bridges and bonds, which are virtual interfaces.
	bridge, bond bool
}

// readNet reads one interface. It returns the readable attributes and the errors
// of the others. Gone reports whether the error means that the interface was removed.
//
// It does not read attributes that take the lock of the network configuration, such as
// phys_port_name and speed (net/core/net-sysfs.c).
func readNet(fs sysfs.FS, dir string) (n netInterface, err error) {
	d := fs.Dir(dir)
	n.kind = d.Number("type")
	// The type of an interface that is being removed is missing or invalid (netdev_show).
	if n.kind < 0 && (d.Err() == nil || errors.Is(d.Err(), unix.EINVAL)) {
		return n, fmt.Errorf("type: %w", sysfs.ErrGone)
	}
	n.master = d.LinkBase("master")
	above := netDevice(dir)
	if above == "" {
		n.devPort = -1
		n.devID = -1
		n.bridge = fs.Exists(dir + "/bridge")
		n.bond = fs.Exists(dir + "/bonding")
		return n, d.Err()
	}
	n.devPort = d.Number("dev_port")
	n.devID = d.HexNumber("dev_id")
	hardware := fs.Dir(above)
	n.driver = hardware.LinkBase("driver")
	var uppersErr error
	n.uppers, uppersErr = netUppers(fs, dir, n.master)
	return n, errors.Join(d.Err(), hardware.Err(), uppersErr)
}

// netUppers returns the targets of the links upper_* of an interface, except for its
// master, which has such a link too (__netdev_adjacent_dev_insert in net/core/dev.c). A node
// has hundreds of virtual interfaces and few interfaces with a device, so that only the directories
// of interfaces with a device are listed.
func netUppers(fs sysfs.FS, dir, master string) ([]string, error) {
	targets, err := fs.LinksWith(dir, "upper_")
	var uppers []string
	for _, target := range targets {
		upper := base(target)
		if upper != master {
			uppers = append(uppers, upper)
		}
	}
	slices.Sort(uppers)
	return uppers, err
}

// netDevice returns the device of an interface, or an empty string for a virtual interface. A
// directory of the class is between the two, "…/0000:3b:00.0/net/eth0" (get_device_parent in
// drivers/base/core.c).
func netDevice(dir string) string {
	i := strings.LastIndex(dir, "/net/")
	if i < 0 || dir[:i] == "devices/virtual" {
		return ""
	}
	return dir[:i]
}

// netPair is a pair of virtual interfaces. The ends of a pair have different numbers.
type netPair struct {
	// index is the number of this interface in its network namespace, or -1 if it is unknown.
	index int
	// other is the number of the other end in its own namespace, or -1 if it is unknown.
	other int
	// up is set if this interface is up.
	up bool
}

// readPair reads attributes of one interface. None of them takes a lock. An interface on top of another
// interface in this namespace, such as a VLAN, is not a pair.
func readPair(fs sysfs.FS, dir string) netPair {
	d := fs.Dir(dir)
	flags := d.HexNumber("flags")
	p := netPair{
		index: d.Number("ifindex"),
		other: -1,
		up:    flags > 0 && flags&unix.IFF_UP != 0,
	}
	if netDevice(dir) != "" {
		return p
	}
	names, _ := fs.Names(dir)
	hasLower := slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "lower_")
	})
	if !hasLower {
		p.other = d.Number("iflink")
	}
	return p
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
	isPair := pair.other > 0 && pair.other != pair.index
	if isPair && !a.hasOtherEnd(pair) {
		return "one end of a pair, whose other end is in another network namespace"
	}
	if a.traffic == nil {
		a.traffic = a.readTraffic()
	}
	if a.traffic.routes[n.Path] {
		return "the interface of a route"
	}
	if a.hasAddress(n.Path, pair.index) {
		return "an interface with an address"
	}
	mayHaveAddress := pair.up && n.Net.Type != "can"
	if mayHaveAddress && !a.traffic.isKnown {
		return "up, and its addresses can't be read in the network namespace of this program"
	}
	return ""
}

// hasOtherEnd reports whether the host has the other end of a pair. The numbers of interfaces are
// only unique in one network namespace, so both ends must refer to each other.
func (a *Attributes) hasOtherEnd(pair netPair) bool {
	return slices.ContainsFunc(a.of.Nets, func(n *device.Node) bool {
		other := a.netPair(n)
		return other.index == pair.other && other.other == pair.index
	})
}

// netPair returns the numbers of an interface, and reads them only once. The caller holds a.mu.
func (a *Attributes) netPair(n *device.Node) netPair {
	p, known := a.pairs[n.Path]
	if !known {
		p = readPair(a.sysfs, n.SysPath)
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
func (c *scan) ownNet(n *device.Node, i netInterface) bool {
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
	n.Index = i.devPort
	if i.devPort <= 0 && i.devID > 0 {
		// Some drivers of CAN cards with several channels still set this instead of dev_port.
		n.Index = i.devID
	}
	return true
}

// partOf describes an interface that is part of another interface, or that has other interfaces as
// its parts. all are the interfaces of the host by name.
func partOf(i netInterface, all map[string]netInterface) string {
	if i.master != "" {
		master := all[i.master]
		if master.bridge {
			return "a port of bridge " + i.master
		}
		if master.bond {
			return "a member of " + i.master
		}
		return "a part of " + i.master
	}
	switch {
	case len(i.uppers) > 0:
		return "the link below " + strings.Join(i.uppers, ", ")
	case i.bridge:
		return "a bridge"
	case i.bond:
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
