package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// number is a device number.
type number struct {
	kind         device.NodeType
	major, minor uint32
}

// locate finds the directory of each node in sysfs, by its device number, and returns
// the nodes without removed ones.
//
// If several nodes have one number, the one with the kernel's path (DEVNAME) is the
// node of the hardware, and the others are nodes without hardware: a copy made by hand
// does not follow the device. If none has that path, all are nodes of the hardware.
func (c *scan) locate(nodes []*node) []*node {
	first := make(map[number]*node, len(nodes))
	copies := make(map[number][]*node) // the first and all others with its number
	for _, n := range nodes {
		k := number{n.Type, n.Major, n.Minor}
		if f := first[k]; f == nil {
			first[k] = n
		} else if copies[k] == nil {
			copies[k] = []*node{f, n}
		} else {
			copies[k] = append(copies[k], n)
		}
	}
	// By two, since a first scan asks the kernel for each of some hundred nodes.
	half := len(nodes) / 2
	var failed problems
	var beside sync.WaitGroup
	beside.Go(func() {
		c.locateEach(nodes[half:], &failed)
	})
	c.locateEach(nodes[:half], &c.problems)
	beside.Wait()
	c.problems = append(c.problems, failed...)
	for _, same := range copies {
		if same[0].SysPath != "" {
			c.dropCopies(same)
		}
	}
	return slices.DeleteFunc(nodes, func(n *node) bool { return n.removed })
}

// locateEach marks the removed ones of nodes. It is called concurrently.
func (c *scan) locateEach(nodes []*node, failed *problems) {
	for _, n := range nodes {
		n.removed = !c.locateNode(n, failed)
	}
}

// locateNode is locate for one node, and reports false for a removed one.
//
// A node without an entry in sysfs may have just been removed: the kernel removes the
// node before its number (device_del in drivers/base/core.c). If it still exists, its
// number is looked up again, since the next device may have reused both meanwhile.
func (c *scan) locateNode(n *node, failed *problems) bool {
	if known := &n.read.place; known.sysPath != "" {
		n.Kernel = base(known.sysPath)
		n.SysPath = known.sysPath
		n.Subsystem = known.subsystem
		return true
	}
	dir, err := c.nodeDir(n)
	if dir == "" && err == nil {
		if !c.tree.still(n) {
			return false
		}
		dir, err = c.nodeDir(n)
	}
	failed.add(n.Path, err)
	if dir == "" {
		return true
	}
	subsystem := virtualSubsystem(dir)
	if subsystem == "" {
		subsystem, err = c.sysfs.Subsystem(dir)
		failed.add(dir, err)
	}
	if subsystem == "" && !c.sysfs.Exists(dir) {
		return false
	}
	n.Kernel = base(dir)
	n.SysPath = dir
	n.Subsystem = subsystem
	if err == nil && subsystem != "" {
		bus, owner := busDevice(dir)
		n.read.place = place{
			sysPath:   dir,
			subsystem: subsystem,
			bus:       bus,
			owner:     owner,
		}
	}
	return true
}

// virtualSubsystem returns the subsystem of a device without a parent: the kernel places
// it below a directory of that name (virtual_device_parent in drivers/base/core.c), such as
// "devices/virtual/tty/tty1". It is "" for other devices.
func virtualSubsystem(dir string) string {
	rest, _ := strings.CutPrefix(dir, "devices/virtual/")
	subsystem, name, _ := strings.Cut(rest, "/")
	if rest == dir || strings.Contains(name, "/") {
		return ""
	}
	return subsystem
}

func (c *scan) nodeDir(n *node) (string, error) {
	if n.Type == device.BlockNode {
		return c.sysfs.BlockDev(n.Major, n.Minor)
	}
	return c.sysfs.CharDev(n.Major, n.Minor)
}

// dropCopies removes from sysfs the nodes that are not the kernel's own.
func (c *scan) dropCopies(same []*node) {
	name, err := cached(&c.cache.of(same[0].SysPath).devName, same[0].SysPath, c.sysfs.DevName)
	c.problems.add(same[0].SysPath, err)
	isOwn := func(n *node) bool { return n.Path == hostDev+"/"+name }
	if err != nil || !slices.ContainsFunc(same, isOwn) {
		return
	}
	for _, n := range same {
		if !isOwn(n) {
			n.Kernel = base(n.Path)
			n.SysPath = ""
			n.Subsystem = ""
		}
	}
}

// own assigns each node to its hardware, once all hardware of the buses is known, and
// returns the nodes without those whose hardware has gone.
func (c *scan) own(nodes []*node) []*device.Node {
	groups := c.vfioGroups(nodes)
	kept := make([]*device.Node, 0, len(nodes))
	for _, found := range nodes {
		n := &found.Node
		at := found.read.place
		if n.SysPath == "" {
			kept = append(kept, n)
			continue
		}
		if at.sysPath == "" || c.hasMDevs {
			at.bus, at.owner = c.busDevice(n.SysPath)
		}
		bus := at.bus
		dir := at.owner
		h := c.hardware[dir]
		switch {
		case dir != "" && h == nil:
			// No ancestor owns the node instead: a stick's node is not the hub's.
			c.leaveOut(n.Path, bus, dir)
			continue
		case h != nil && c.interfaceGone(n, h):
			continue
		case h == nil:
			h = groups[vfioGroup(n.SysPath)]
		}
		if h == nil {
			h = c.namespace(n)
		}
		if h == nil {
			h = c.platform(n.SysPath)
		}
		if h != nil {
			if _, unread := c.unread[h.Path]; unread {
				continue
			}
			n.Hardware = h
			h.Nodes = append(h.Nodes, n)
			c.place(n)
		}
		kept = append(kept, n)
	}
	return kept
}

// leaveOut reports that something is left out since its hardware is unknown, unless
// that has gone, is unread, or is reported as missing.
func (c *scan) leaveOut(subject string, bus device.Bus, hardware string) {
	_, unread := c.unread[hardware]
	if !unread && !slices.Contains(c.noBus, bus) && c.sysfs.Exists(hardware) {
		c.problems.add(subject, fmt.Errorf("left out, since its %s device %q could not be read", bus, base(hardware)))
	}
}

// interfaceGone reports whether a node belongs to a USB interface that was removed
// since the node was read: an unplugged device loses its interfaces first
// (usb_disconnect in drivers/usb/core/hub.c). Without its interface it would be a
// different node.
func (c *scan) interfaceGone(n *device.Node, h *device.Hardware) bool {
	if h.USB == nil || len(n.SysPath) <= len(h.Path) {
		return false
	}
	name, _, _ := strings.Cut(n.SysPath[len(h.Path)+1:], "/")
	_, known := c.interfaces[n.SysPath[:len(h.Path)+1+len(name)]]
	return !known && strings.Contains(name, ":")
}

// place determines the position of a node below its hardware. Nodes of IOMMU groups and
// of NVMe subsystems are elsewhere.
func (c *scan) place(n *device.Node) {
	if !strings.HasPrefix(n.SysPath, n.Hardware.Path) {
		return
	}
	for dir := n.SysPath; dir != "" && dir != n.Hardware.Path; dir = up(dir) {
		if number, ok := c.interfaces[dir]; ok {
			n.Interface = number
			break
		}
	}
	switch n.Subsystem {
	case "tty":
		// …/ttyUSB0/tty/ttyUSB0: the port is the parent of the class device.
		port := up(up(n.SysPath))
		n.Index = fact(c, &c.cache.of(port).index, port, c.sysfs.PortNumber)
	case "video4linux":
		n.Index = fact(c, &c.cache.of(n.SysPath).index, n.SysPath, c.sysfs.VideoIndex)
	case "block", "bsg", "scsi_generic", "scsi_tape", "scsi_changer":
		n.Index = c.scsiIndex(n)
	}
}

// scsiIndex returns the position of a SCSI device at its controller, -1 for other
// devices. Names do not contain it: the letters of disks are assigned in the order in
// which the disks respond. The address in the path, ".../target6:0:1/6:0:1:2", has the
// number of the host, which the kernel counts over the machine, channel, target and
// LUN. Each port of an ATA controller is a separate host, and knows its number.
//
// The index of target 1, LUN 2 is 1002; the port of an ATA controller is added, from 0.
// So it is the LUN for USB sticks and the port for ATA disks.
func (c *scan) scsiIndex(n *device.Node) int {
	ata := ""
	for rest := n.SysPath[len(n.Hardware.Path):]; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		if number, ok := strings.CutPrefix(name, "ata"); ok && isDigits(number) {
			ata = n.SysPath[:len(n.SysPath)-len(rest)-1]
		}
		target, lun, ok := scsiAddress(name)
		if !ok {
			continue
		}
		port := 0
		if ata != "" {
			if port = fact(c, &c.cache.of(ata).index, ata, c.sysfs.ATAPort); port < 1 {
				return -1
			}
			port--
		}
		return 1000*target + lun + port
	}
	return -1
}

// scsiAddress parses target and LUN in the name of a SCSI device, "6:0:1:2". Numbers
// that do not fit into an index are rejected: disks of large arrays.
func scsiAddress(name string) (target, lun int, ok bool) {
	parts := strings.Split(name, ":")
	if len(parts) != 4 {
		return 0, 0, false
	}
	for _, p := range parts {
		if !isDigits(p) {
			return 0, 0, false
		}
	}
	target, err := strconv.Atoi(parts[2])
	lun, lunErr := strconv.Atoi(parts[3])
	return target, lun, err == nil && lunErr == nil && target < 1000 && lun < 1000
}

// busDevice returns the device of a bus that owns dir: the nearest mediated device,
// otherwise the result of the function busDevice. The names of mediated devices do not
// identify them as such, so that removed ones are unknown.
func (c *scan) busDevice(dir string) (bus device.Bus, found string) {
	if c.hasMDevs {
		for d := dir; d != ""; d = up(d) {
			if h := c.hardware[d]; h != nil && h.MDev != nil {
				return device.MDevBus, d
			}
		}
	}
	return busDevice(dir)
}

// busDevice returns the directory of the nearest USB device at or above dir, otherwise
// that of the nearest PCI function or sub-function, by their names: USB devices are nested from the
// root hub on (usb1/1-2/1-2.4), PCI functions from the host bridge on
// (pci0000:00/0000:00:1c.0/0000:02:00.0). It needs only the path, so that it also finds
// removed ones.
func busDevice(dir string) (bus device.Bus, found string) {
	prev := ""     // the previous element
	inPCI := false // prev is a PCI host bridge or function
	inUSB := false // prev is a USB device
	for start := 0; start < len(dir); {
		end := strings.IndexByte(dir[start:], '/') + start
		if end < start {
			end = len(dir)
		}
		name := dir[start:end]
		isUSB := isRootHub(name) || inUSB && isUSBChild(prev, name)
		isPCI := inPCI && (device.IsPCIAddress(name) || sysfs.IsSubFunction(name))
		switch {
		case prev == "net":
			// The name of a network interface is arbitrary, and usb0 by default for some
			// drivers (usbnet_probe in drivers/net/usb/usbnet.c).
			return bus, found
		case isUSB:
			bus = device.USBBus
			found = dir[:end]
		case isPCI && bus != device.USBBus:
			bus = device.PCIBus
			found = dir[:end]
		}
		inPCI = isPCI || isPCIBridge(name)
		inUSB = isUSB
		prev = name
		start = end + 1
	}
	return bus, found
}

// isRootHub reports whether name is that of a root hub: "usb1" (named by usb_alloc_dev
// in drivers/usb/core/usb.c).
func isRootHub(name string) bool {
	n, ok := strings.CutPrefix(name, "usb")
	return ok && isDigits(n)
}

// isUSBChild reports whether name is a USB device in a port of the hub parent: "1-2"
// below "usb1", "1-2.4" below "1-2".
func isUSBChild(parent, name string) bool {
	prefix := parent + "."
	if n, ok := strings.CutPrefix(parent, "usb"); ok {
		prefix = n + "-"
	}
	port, ok := strings.CutPrefix(name, prefix)
	return ok && isDigits(port)
}

// isPCIBridge reports whether name is that of a PCI host bridge: "pci0000:00".
func isPCIBridge(name string) bool {
	n, ok := strings.CutPrefix(name, "pci")
	domain, bus, colon := strings.Cut(n, ":")
	return ok && colon && len(domain) >= 4 && len(bus) == 2 && isHex(domain) && isHex(bus)
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }
