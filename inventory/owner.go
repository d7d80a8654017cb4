package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// number is what the kernel knows a node by.
type number struct {
	kind         device.NodeType
	major, minor uint32
}

// locate finds the directory of each node in sysfs, by its device number, and
// returns the nodes without those that have gone.
//
// Where several nodes have one number, the one whose path the kernel itself
// gave out (DEVNAME) is the node of the hardware, and the others are nodes
// without hardware: a copy made by hand does not follow the device. Where
// none of them has that path, all are nodes of the hardware.
//
// A node that sysfs does not know may be one that has just gone: the kernel
// takes the node away before its number (device_del in drivers/base/core.c).
// Where it has not, its number is asked for once more, since the next device may
// have got both meanwhile.
func (c *scan) locate(nodes []*device.Node, tree *devTree) []*device.Node {
	first := make(map[number]*device.Node, len(nodes))
	copies := make(map[number][]*device.Node) // first and all others of its number
	for _, n := range nodes {
		k := number{n.Type, n.Major, n.Minor}
		switch f := first[k]; {
		case f == nil:
			first[k] = n
		case copies[k] == nil:
			copies[k] = []*device.Node{f, n}
		default:
			copies[k] = append(copies[k], n)
		}
	}
	kept := nodes[:0]
	for _, n := range nodes {
		id := tree.ids[n.Path]
		if known, ok := c.mem.places[n.Path]; ok && known.id == id {
			n.Kernel, n.SysPath, n.Subsystem = base(known.sysPath), known.sysPath, known.subsystem
			kept = append(kept, n)
			continue
		}
		delete(c.mem.places, n.Path)
		dir, err := c.nodeDir(n)
		if dir == "" && err == nil {
			if !tree.still(n) {
				continue
			}
			dir, err = c.nodeDir(n)
		}
		if err != nil {
			c.problem(n.Path, err)
		}
		if dir == "" {
			kept = append(kept, n)
			continue
		}
		subsystem, err := c.sysfs.Subsystem(dir)
		if err != nil && !sysfs.Gone(err) {
			c.problem(dir, err)
		}
		if subsystem == "" && !c.sysfs.Exists(dir) {
			continue
		}
		n.Kernel, n.SysPath, n.Subsystem = base(dir), dir, subsystem
		kept = append(kept, n)
		// A node made in its place within the same tick could have its inode.
		if err == nil && subsystem != "" && unix.TimespecToNsec(id.changed) < unix.TimespecToNsec(tree.clock) {
			c.mem.places[n.Path] = place{id: id, sysPath: dir, subsystem: subsystem}
		}
	}
	if len(c.mem.places) > len(kept) {
		maps.DeleteFunc(c.mem.places, func(p string, _ place) bool { _, ok := tree.ids[p]; return !ok })
	}
	for _, same := range copies {
		if same[0].SysPath != "" {
			c.dropCopies(same)
		}
	}
	return kept
}

func (c *scan) nodeDir(n *device.Node) (string, error) {
	if n.Type == device.BlockNode {
		return c.sysfs.BlockDev(n.Major, n.Minor)
	}
	return c.sysfs.CharDev(n.Major, n.Minor)
}

// dropCopies takes from sysfs the nodes that are not the kernel's own.
func (c *scan) dropCopies(same []*device.Node) {
	name, err := recall(c.mem.devNames, same[0].SysPath, func(dir string) (string, error) {
		u, err := c.sysfs.Uevent(dir)
		return u.DevName, err
	})
	if err != nil {
		if !sysfs.Gone(err) {
			c.problem(same[0].SysPath, err)
		}
		return
	}
	own := hostDev + "/" + name
	found := false
	for _, n := range same {
		found = found || n.Path == own
	}
	for _, n := range same {
		if found && n.Path != own {
			n.Kernel, n.SysPath, n.Subsystem = base(n.Path), "", ""
		}
	}
}

// own gives each node its hardware, once all hardware of the buses is known,
// and returns the nodes without those whose hardware has gone.
func (c *scan) own(nodes []*device.Node) []*device.Node {
	groups := c.vfioGroups(nodes)
	kept := nodes[:0]
	for _, n := range nodes {
		if n.SysPath == "" {
			kept = append(kept, n)
			continue
		}
		bus, dir := c.busDevice(n.SysPath)
		if dir != "" && c.hardware[dir] == nil {
			// Whatever is above it does not own the node: a stick's node is
			// not the hub's.
			c.doubt = c.doubt || !c.whole && c.moved(n)
			c.leftOut(n.Path, bus, dir)
			continue
		}
		h := c.hardware[dir]
		if h != nil && c.interfaceGone(n, h) {
			continue
		}
		if h == nil {
			h = groups[vfioGroup(n)]
		}
		if h == nil {
			h = c.platform(n.SysPath)
		}
		if h != nil {
			n.Hardware = h
			h.Nodes = append(h.Nodes, n)
			c.place(n)
		}
		kept = append(kept, n)
	}
	return kept
}

// leftOut notes that something is left out since its hardware is not known,
// unless that has gone, or is known to be missing.
func (c *scan) leftOut(subject string, bus device.Bus, hardware string) {
	if !slices.Contains(c.noBus, bus) && !c.slow[hardware] && c.sysfs.Exists(hardware) {
		c.problem(subject, fmt.Errorf("left out, since its %s device %q could not be read", bus, base(hardware)))
	}
}

// interfaceGone reports whether a node is one of a USB interface that has gone
// since the node was read: a device that is pulled loses its interfaces first
// (usb_disconnect in drivers/usb/core/hub.c). Without its interface it would
// look like another node.
func (c *scan) interfaceGone(n *device.Node, h *device.Hardware) bool {
	below, ok := strings.CutPrefix(n.SysPath, h.Path+"/")
	if !ok || h.USB == nil {
		return false
	}
	name, _, _ := strings.Cut(below, "/")
	if !strings.Contains(name, ":") {
		return false
	}
	_, known := c.interfaces[h.Path+"/"+name]
	return !known
}

// moved reports whether the place of a node, which may be remembered, is
// another one now.
func (c *scan) moved(n *device.Node) bool {
	dir, err := c.nodeDir(n)
	return err == nil && dir != n.SysPath
}

// place says where below its hardware a node is.
func (c *scan) place(n *device.Node) {
	for dir := n.SysPath; dir != "" && dir != n.Hardware.Path; dir = up(dir) {
		if number, ok := c.interfaces[dir]; ok {
			n.Interface = number
			break
		}
	}
	var err error
	switch n.Subsystem {
	case "tty":
		// …/ttyUSB0/tty/ttyUSB0: the port is the device above the class.
		n.Index, err = recall(c.mem.indexes, up(up(n.SysPath)), c.sysfs.PortNumber)
	case "video4linux":
		n.Index, err = recall(c.mem.indexes, n.SysPath, c.sysfs.VideoIndex)
	case "block", "bsg", "scsi_generic", "scsi_tape", "scsi_changer":
		n.Index, err = c.scsiIndex(n)
	}
	if err != nil && !sysfs.Gone(err) {
		c.problem(n.SysPath, err)
	}
}

// platform returns the nearest platform device above a node that belongs to
// no bus with hardware of its own, nil where there is none, as for virtual
// devices. Devices of the AMBA bus count as platform devices: the firmware's
// table describes both alike, and it is the driver that decides which of them
// the UART of a Raspberry Pi is. A device that only counts those that drivers
// make (isCounted) is a part of the one above it.
func (c *scan) platform(node string) *device.Hardware {
	if strings.HasPrefix(node, "devices/virtual/") {
		return nil
	}
	counted := ""
	for dir := up(node); dir != ""; dir = up(dir) {
		if h := c.hardware[dir]; h != nil && !isCounted(dir) {
			return h
		}
		subsystem, err := recall(c.mem.subsystems, dir, c.sysfs.Subsystem)
		if err != nil && !sysfs.Gone(err) {
			c.problem(dir, err)
		}
		switch {
		case subsystem != "platform" && subsystem != "amba":
		case !isCounted(dir):
			return c.addPlatform(dir)
		case counted == "":
			counted = dir
		}
	}
	if counted == "" {
		return nil
	}
	return c.addPlatform(counted)
}

func (c *scan) addPlatform(dir string) *device.Hardware {
	h := c.hardware[dir]
	if h == nil {
		h = &device.Hardware{Bus: device.PlatformBus, Path: dir, Name: base(dir), NUMA: -1}
		c.hardware[dir] = h
	}
	return h
}

// isCounted reports whether a platform device has its number from the order in
// which drivers made such devices, "xhci-hcd.1.auto" (PLATFORM_DEVID_AUTO in
// drivers/base/platform.c): the next boot may count otherwise.
func isCounted(dir string) bool { return strings.HasSuffix(dir, ".auto") }

// busDevice returns the directory of the nearest USB device at or above dir,
// else that of the nearest PCI function, as their names say it: USB devices
// lie in each other's directories from the root hub on (usb1/1-2/1-2.4), PCI
// functions from the host bridge on (pci0000:00/0000:00:1c.0/0000:02:00.0).
// It needs nothing but the path, so it also finds what has gone meanwhile.
func busDevice(dir string) (bus device.Bus, found string) {
	prev := ""     // the directory name before the one at hand
	inPCI := false // prev is a PCI host bridge or function
	inUSB := false // prev is a USB device
	for start := 0; start < len(dir); {
		end := strings.IndexByte(dir[start:], '/') + start
		if end < start {
			end = len(dir)
		}
		name := dir[start:end]
		isUSB := isRootHub(name) || inUSB && isUSBChild(prev, name)
		isPCI := inPCI && device.IsPCIAddress(name)
		switch {
		case isUSB:
			bus, found = device.USBBus, dir[:end]
		case isPCI && bus != device.USBBus:
			bus, found = device.PCIBus, dir[:end]
		}
		inPCI = isPCI || isPCIBridge(name)
		inUSB = isUSB
		prev = name
		start = end + 1
	}
	return bus, found
}

// isRootHub reports whether name is that of a root hub: "usb1"
// (usb_alloc_dev in drivers/usb/core/usb.c names them all).
func isRootHub(name string) bool {
	n, ok := strings.CutPrefix(name, "usb")
	return ok && isDigits(n)
}

// isUSBChild reports whether name is a USB device in a port of the hub that
// parent names: "1-2" below "usb1", "1-2.4" below "1-2".
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

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }
