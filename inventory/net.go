package inventory

import (
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
	if err != nil {
		c.problem("class/net", err)
	}
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
		if err != nil {
			c.problem(e.Path, err)
		}
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
	routes := a.defaultRoutes(a.of.nets)
	for _, n := range a.of.nets {
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
		c.leftOut(n.SysPath, bus, dir)
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
