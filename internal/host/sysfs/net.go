package sysfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nets lists the network interfaces by name. They belong to the network namespace in which this sysfs
// was mounted. The error wraps fs.ErrNotExist on a kernel without networking.
func (fs FS) Nets() ([]Entry, error) {
	list, err := fs.entries("class/net", nil)
	sort.Slice(list, func(i, j int) bool {
		return list[i].Name < list[j].Name
	})
	return list, err
}

// NetInterface are the attributes of a network interface
// (Documentation/ABI/testing/sysfs-class-net).
type NetInterface struct {
	// Type is the kind of link, a number of ARPHRD_* (include/uapi/linux/if_arp.h).
	Type int
	// DevPort and DevID number the interfaces of one device. Drivers set one of them,
	// and both default to 0. They are -1 if they are unknown.
	DevPort, DevID int
	// Driver is the driver of the interface's device, or an empty string.
	Driver string
	// Master is the interface that has this interface as a port, such as a bridge.
	Master string
	// Uppers are other interfaces on top of this interface, such as its VLANs, by name. They are
	// only read for an interface with a device.
	Uppers []string
	// Bridge and Bond are set for bridges and bonds, which are virtual interfaces.
	Bridge, Bond bool
}

// NetPair is a pair of virtual interfaces. The ends of a pair have different numbers.
type NetPair struct {
	// Index is the number of this interface in its network namespace, or -1 if it is unknown.
	Index int
	// Other is the number of the other end in its own namespace, or -1 if it is unknown.
	Other int
	// Up is set if this interface is up.
	Up bool
}

// NetPair reads attributes of one interface. None of them takes a lock. An interface on top of another
// interface in this namespace, such as a VLAN, is not a pair.
func (fs FS) NetPair(dir string) NetPair {
	p := NetPair{Other: -1}
	p.Index, _ = fs.number(dir, "ifindex")
	flags, _ := fs.hexNumber(dir, "flags")
	p.Up = flags > 0 && flags&unix.IFF_UP != 0
	if netDevice(dir) != "" {
		return p
	}
	names, _ := fs.names(dir)
	hasLower := slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "lower_")
	})
	if !hasLower {
		p.Other, _ = fs.number(dir, "iflink")
	}
	return p
}

// NetInterface reads one interface. It returns the readable attributes and the errors
// of the others. Gone reports whether the error means that the interface was removed.
//
// It does not read attributes that take the lock of the network configuration, such as
// phys_port_name and speed (net/core/net-sysfs.c).
func (fs FS) NetInterface(dir string) (NetInterface, error) {
	n := NetInterface{DevPort: -1, DevID: -1}
	var masterErr, deviceErr error
	kind, typeErr := fs.number(dir, "type")
	n.Type = kind
	n.Master, masterErr = fs.linkBase(dir, "master")
	if netDevice(dir) != "" {
		deviceErr = fs.readPhysical(dir, &n)
	} else {
		n.Bridge = fs.Exists(dir + "/bridge")
		n.Bond = fs.Exists(dir + "/bonding")
	}
	// The type of an interface that is being removed is invalid (netdev_show).
	isMissing := typeErr == nil && kind < 0
	if isMissing || errors.Is(typeErr, unix.EINVAL) {
		typeErr = fmt.Errorf("type: %w", errGone)
	}
	return n, errors.Join(typeErr, masterErr, deviceErr)
}

// readPhysical reads the attributes of an interface that has a device.
func (fs FS) readPhysical(dir string, n *NetInterface) error {
	var portErr, idErr, driverErr, uppersErr error
	n.DevPort, portErr = fs.number(dir, "dev_port")
	n.DevID, idErr = fs.hexNumber(dir, "dev_id")
	n.Driver, driverErr = fs.Driver(netDevice(dir))
	n.Uppers, uppersErr = fs.netUppers(dir, n.Master)
	return errors.Join(portErr, idErr, driverErr, uppersErr)
}

// netUppers returns the targets of the links upper_* of an interface, except for its
// master, which has such a link too (__netdev_adjacent_dev_insert in net/core/dev.c). A node
// has hundreds of virtual interfaces and few interfaces with a device, so that only the directories
// of interfaces with a device are listed.
func (fs FS) netUppers(dir, master string) ([]string, error) {
	targets, err := fs.linksWith(dir, "upper_")
	var uppers []string
	for _, target := range targets {
		upper := path.Base(target)
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

// hexNumber reads a number such as "0x1f" from an attribute. A missing attribute is -1.
func (fs FS) hexNumber(dir, name string) (int, error) {
	s, err := fs.attr(dir, name)
	if s == "" {
		return -1, err
	}
	digits := strings.TrimPrefix(strings.TrimSpace(s), "0x")
	n, err := strconv.ParseUint(digits, 16, 31)
	if err != nil {
		return -1, fmt.Errorf("%s: %q is not a hexadecimal number", name, s)
	}
	return int(n), nil
}
