// Package catalog describes the hardware of a host in the terms of an administrator.
//
//   - List lists all of it, with names, kinds, and the resources that have it.
//   - Find finds a device by any of its names.
//   - Starter makes the resources of a starter configuration, and For the resource of one
//     device.
//   - ReadNames reads the names of vendors and products.
//
// Only commands use it: no rule of matching is here.
package catalog

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Host reads data of the host that is not part of a snapshot. Directories are relative to the root
// of sysfs, as in a snapshot. matchers.Host has the same methods, so that one value serves both.
type Host interface {
	// Driver returns the driver of a directory of sysfs. It is empty if there is none.
	Driver(dir string) string
	// InUse returns what the host itself uses a network interface for. It is empty if the host
	// does not use it.
	InUse(*device.Node) string
}

// Catalog describes one scan of a host. It is not safe for concurrent use, because its methods fill
// caches.
type Catalog struct {
	snap  *device.Snapshot
	host  Host
	names Names
	// paths are the paths of all nodes.
	paths map[string]bool
	// patterns are the parsed patterns by glob.
	patterns map[string]pattern.Values
	// keys caches what distinguishes the nodes of hardware in their IDs.
	keys map[*device.Hardware]map[*device.Node]string
}

// New returns the catalog of a scan. Without names, only devices that report a name
// themselves have one.
func New(snap *device.Snapshot, host Host, names Names) *Catalog {
	c := &Catalog{
		snap:     snap,
		host:     host,
		names:    names,
		paths:    make(map[string]bool, len(snap.Nodes)),
		patterns: make(map[string]pattern.Values),
		keys:     make(map[*device.Hardware]map[*device.Node]string),
	}
	for _, n := range snap.Nodes {
		c.paths[n.Path] = true
	}
	return c
}

// Read reads everything that the catalog reads of a host beyond its snapshot. The command snapshot
// calls it with a Host that records, so that a recording has the same catalog as the host.
func Read(snap *device.Snapshot, host Host) {
	c := New(snap, host, nil)
	// Starter reads drivers. Its result does not matter here.
	c.Starter()
	for _, n := range snap.Nets {
		host.InUse(n)
	}
}

// ids returns the vendor and product of hardware on a bus that has such IDs. A partition has the
// IDs of its GPU. Both are empty for mediated devices and for hardware of the platform.
func ids(h *device.Hardware) (vendor, product string) {
	switch {
	case h.IsPartition():
		return ids(h.Parent)
	case h.USB != nil:
		return h.USB.Vendor, h.USB.Product
	case h.PCI != nil:
		return h.PCI.Vendor, h.PCI.Device
	}
	return "", ""
}

// attribute returns the value of an attribute that a match can name, such as "usb.serial". It is
// empty if the hardware has no such attribute. Several values are separated by commas.
func attribute(h *device.Hardware, name string) string {
	a, _ := device.FindAttribute(name)
	return strings.Join(a.Of(h, nil), ",")
}

// usbDrivers lists the drivers of the interfaces of a USB device, each once.
func usbDrivers(u *device.USB) []string {
	var all []string
	for _, i := range u.Interfaces {
		if i.Driver != "" {
			all = union(all, i.Driver)
		}
	}
	return all
}

// usbfs is the driver of an interface that a program has claimed through the bus node
// (usbfs_driver in drivers/usb/core/devio.c).
const usbfs = "usbfs"

// kernelDriver returns the kernel driver that uses an interface of a USB device. It is empty if
// there is none. A program with the bus node of such a device can detach the driver
// (USBDEVFS_DISCONNECT in drivers/usb/core/devio.c), so that the host loses the device.
func kernelDriver(h *device.Hardware) string {
	if h.USB == nil {
		return ""
	}
	for _, driver := range usbDrivers(h.USB) {
		if driver != usbfs {
			return driver
		}
	}
	return ""
}

// paths lists the paths of nodes, and the names of network interfaces.
func paths(nodes []*device.Node) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.Path
	}
	return list
}

// union adds elements to a list unless they are already in it.
func union[T comparable](list []T, more ...T) []T {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

const digits = "0123456789"

// stem returns a path without the number at its end. The kernel numbers nodes of one driver in the
// order of probing, so that the stem is the part that stays.
func stem(path string) string {
	return strings.TrimRight(path, digits)
}
