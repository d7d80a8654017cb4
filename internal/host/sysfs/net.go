package sysfs

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nets lists the network interfaces by name: those of the network namespace
// in which this sysfs was mounted. The error wraps fs.ErrNotExist on a kernel
// without networking.
func (fs FS) Nets() ([]Entry, error) {
	list, err := fs.entries("class/net", nil, nil)
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, err
}

// NetInterface are the attributes of a network interface
// (Documentation/ABI/testing/sysfs-class-net).
type NetInterface struct {
	// Type is the kind of link, a number of ARPHRD_* (include/uapi/linux/if_arp.h).
	Type int
	// DevPort and DevID number the interfaces of one device; drivers set one of them,
	// and both default to 0. -1 is unknown.
	DevPort, DevID int
	// Driver of the interface's device; "" if it has none.
	Driver string
	// Master is the interface that this one is a port of, such as a bridge.
	Master string
	// Uppers are the other interfaces above one with a device, such as its VLANs, by
	// name.
	Uppers []string
	// Bridge and Bond are set for such virtual interfaces.
	Bridge, Bond bool
}

// NetPair is the number of an interface in its network namespace, and of the other end of a
// pair of virtual interfaces; -1 is unknown, and no pair has both equal. Up: the interface
// is up.
type NetPair struct {
	Index, Other int
	Up           bool
}

// NetPair reads the attributes of one interface, which take no lock either. An interface
// with a lower one in this namespace, such as a VLAN, is no pair.
func (fs FS) NetPair(dir string) NetPair {
	p := NetPair{Other: -1}
	p.Index, _ = fs.number(dir, "ifindex")
	flags, _ := fs.hexNumber(dir, "flags")
	p.Up = flags > 0 && flags&unix.IFF_UP != 0
	if netDevice(dir) != "" {
		return p
	}
	names, _ := fs.names(dir)
	if !slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "lower_")
	}) {
		p.Other, _ = fs.number(dir, "iflink")
	}
	return p
}

// NetInterface reads one interface. It returns the readable attributes and the errors
// of the others; Gone reports the error of a removed interface.
//
// It reads no attribute that takes the lock of the network configuration, like
// phys_port_name, speed and others (net/core/net-sysfs.c).
func (fs FS) NetInterface(dir string) (NetInterface, error) {
	n := NetInterface{DevPort: -1, DevID: -1}
	var errs [6]error
	fs.enter(dir)
	defer fs.leave()
	n.Type, errs[0] = fs.number(dir, "type")
	n.Master, errs[1] = fs.linkBase(dir, "master")
	if of := netDevice(dir); of != "" {
		n.DevPort, errs[2] = fs.number(dir, "dev_port")
		n.DevID, errs[3] = fs.hexNumber(dir, "dev_id")
		n.Driver, errs[4] = fs.Driver(of)
		n.Uppers, errs[5] = fs.netUppers(dir, n.Master)
	} else {
		n.Bridge, n.Bond = fs.Exists(dir+"/bridge"), fs.Exists(dir+"/bonding")
	}
	// The type of an interface that is being removed is invalid (netdev_show).
	if errs[0] == nil && n.Type < 0 || errors.Is(errs[0], unix.EINVAL) {
		errs[0] = fmt.Errorf("type: %w", errGone)
	}
	return n, errors.Join(errs[:]...)
}

// netUppers returns the targets of the links upper_* of an interface, except for its
// master, which has one too (__netdev_adjacent_dev_insert in net/core/dev.c). A node
// has hundreds of virtual interfaces and few with a device, so that only the
// directories of the latter are listed.
func (fs FS) netUppers(dir, master string) ([]string, error) {
	names, err := fs.names(dir)
	var uppers []string
	errs := []error{err}
	for _, name := range names {
		if !strings.HasPrefix(name, "upper_") {
			continue
		}
		upper, err := fs.linkBase(dir, name)
		if upper != "" && upper != master {
			uppers = append(uppers, upper)
		}
		errs = append(errs, err)
	}
	slices.Sort(uppers)
	return uppers, errors.Join(errs...)
}

// netDevice returns the device of an interface, "" for a virtual one. Between the two
// is a directory of the class, "…/0000:3b:00.0/net/eth0" (get_device_parent in
// drivers/base/core.c).
func netDevice(dir string) string {
	i := strings.LastIndex(dir, "/net/")
	if i < 0 || dir[:i] == "devices/virtual" {
		return ""
	}
	return dir[:i]
}

// hexNumber reads a number such as "0x1f" from an attribute; absent is -1.
func (fs FS) hexNumber(dir, name string) (int, error) {
	s, err := fs.attr(dir, name)
	if s == "" {
		return -1, err
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, 31)
	if err != nil {
		return -1, fmt.Errorf("%s: %q is not a hexadecimal number", name, s)
	}
	return int(n), nil
}
