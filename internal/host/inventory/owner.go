package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// number is a device number.
type number struct {
	kind         device.NodeType
	major, minor uint32
}

// number returns the device number of a node.
func (n *node) number() number { return number{n.Type, n.Major, n.Minor} }

// locate finds the directory of each node in sysfs by its device number. It returns the nodes that
// were not removed meanwhile.
//
// If several nodes have the same number, the node with the kernel's path (DEVNAME) belongs to the
// hardware, and the others are nodes without hardware: a copy made by hand does not follow the
// device. If no node has that path, all of them belong to the hardware.
func (c *scan) locate(nodes []*node) []*node {
	byNumber := make(map[number][]*node, len(nodes))
	for _, n := range nodes {
		byNumber[n.number()] = append(byNumber[n.number()], n)
	}
	c.problems = append(c.problems, inHalves(nodes, c.locateEach)...)
	for _, same := range byNumber {
		// Nodes with one number have one directory, so the first one stands for all.
		if len(same) > 1 && same[0].SysPath != "" {
			c.dropCopies(same)
		}
	}
	return slices.DeleteFunc(nodes, func(n *node) bool {
		return n.removed
	})
}

// locateEach locates nodes and marks the removed nodes. It is called concurrently, and only changes
// its own nodes.
func (c *scan) locateEach(nodes []*node) (failed problems) {
	for _, n := range nodes {
		n.removed = !c.locateNode(n, &failed)
	}
	return failed
}

// locateNode is locate for one node. It returns false if the node was removed.
//
// A node without an entry in sysfs may have just been removed, because the kernel removes the
// node before its number (device_del in drivers/base/core.c). If the node still exists, its
// number is looked up again, because the next device may have reused both meanwhile.
func (c *scan) locateNode(n *node, failed *problems) bool {
	dir, err := c.nodeDir(n)
	if dir == "" && err == nil {
		if !c.tree.stillHas(n) {
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
		d := c.sysfs.Dir(dir)
		subsystem = d.LinkBase("subsystem")
		failed.add(dir, d.Err())
	}
	if subsystem == "" && !c.sysfs.Exists(dir) {
		return false
	}
	n.Kernel = base(dir)
	n.SysPath = dir
	n.Subsystem = subsystem
	return true
}

// nodeDir returns the device directory of the number of a node, or an empty string if the kernel has no
// such device. Every device with a number has a link below dev, whatever its class
// (device_create_sys_dev_entry in drivers/base/core.c).
func (c *scan) nodeDir(n *node) (string, error) {
	links := "dev/char"
	if n.Type == device.BlockNode {
		links = "dev/block"
	}
	dir, err := c.sysfs.Device(links, fmt.Sprintf("%d:%d", n.Major, n.Minor))
	if sysfs.Gone(err) {
		return "", nil
	}
	return dir, err
}

// virtualSubsystem returns the subsystem of a device without a parent, or an empty string for other
// devices. The kernel creates a device without a parent below a directory with the name of its
// subsystem, "devices/virtual/tty/tty1" (virtual_device_parent in drivers/base/core.c).
func virtualSubsystem(dir string) string {
	rest, isVirtual := strings.CutPrefix(dir, "devices/virtual/")
	subsystem, name, _ := strings.Cut(rest, "/")
	if !isVirtual || strings.Contains(name, "/") {
		return ""
	}
	return subsystem
}

// dropCopies separates nodes from sysfs that have the number of the kernel's node, at another path.
func (c *scan) dropCopies(same []*node) {
	dir := same[0].SysPath
	// Some kernels take the device's lock for this read, so that a scan must not do it for every device.
	uevent, err := c.sysfs.Text(dir, "uevent")
	c.problems.add(dir, err)
	kernelPath := hostDev + "/" + devName(uevent)
	hasKernelNode := slices.ContainsFunc(same, func(n *node) bool {
		return n.Path == kernelPath
	})
	if err != nil || !hasKernelNode {
		return
	}
	for _, n := range same {
		if n.Path != kernelPath {
			n.Kernel = base(n.Path)
			n.SysPath = ""
			n.Subsystem = ""
		}
	}
}

// devName returns the path below /dev that the kernel chose for the node of a device,
// "bus/usb/001/004".
func devName(uevent string) string {
	for line := range strings.Lines(uevent) {
		name, isDevName := strings.CutPrefix(line, "DEVNAME=")
		if isDevName {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// own assigns each node to its hardware, once all hardware of the buses is known. It returns the
// nodes whose hardware still exists and could be read.
func (c *scan) own(nodes []*node) []*device.Node {
	groups := c.vfioGroups(nodes)
	kept := make([]*device.Node, 0, len(nodes))
	for _, n := range nodes {
		if c.ownNode(n, groups) {
			kept = append(kept, &n.Node)
		}
	}
	return kept
}

// ownNode assigns a node to its hardware. It returns false if the node must be left out. groups has
// the owners of the nodes of IOMMU groups.
func (c *scan) ownNode(found *node, groups map[string]*device.Hardware) bool {
	n := &found.Node
	if n.SysPath == "" {
		return true
	}
	bus, owner := c.busDevice(n.SysPath)
	h := c.hardware[owner]
	if owner != "" && h == nil {
		// No ancestor owns the node instead: the node of a stick does not belong to the hub.
		c.leaveOut(n.Path, bus, owner)
		return false
	}
	if h != nil && c.isInterfaceRemoved(n, h) {
		return false
	}
	if h == nil {
		// Nodes of virtual devices belong to hardware that is not above them.
		h = groups[vfioGroup(n.SysPath)]
	}
	if h == nil {
		h = c.namespace(n)
	}
	if h == nil {
		h = c.platform(n.SysPath)
	}
	if h == nil {
		return true
	}
	// Hardware that could not be read stays out of the snapshot with all its nodes.
	_, isUnread := c.unread[h.Path]
	if isUnread {
		return false
	}
	n.Hardware = h
	h.Nodes = append(h.Nodes, n)
	c.place(n)
	return true
}

// leaveOut reports that a node or an interface is left out because its hardware is unknown. It does
// not report hardware that was removed, that could not be read yet, or that has appeared since
// the last scan of the buses.
func (c *scan) leaveOut(subject string, bus device.Bus, hardware string) {
	_, isUnread := c.unread[hardware]
	if isUnread || c.isOld || !c.sysfs.Exists(hardware) {
		return
	}
	err := fmt.Errorf("left out, because its %s device %q could not be read", bus, base(hardware))
	c.problems.add(subject, err)
}

// isInterfaceRemoved reports whether a node belongs to a USB interface that was removed after the
// node was read. An unplugged device loses its interfaces first (usb_disconnect in
// drivers/usb/core/hub.c), and the ID of a node depends on its interface.
func (c *scan) isInterfaceRemoved(n *device.Node, h *device.Hardware) bool {
	if h.USB == nil || len(n.SysPath) <= len(h.Path) {
		return false
	}
	// The interface is the element after the path of the device.
	start := len(h.Path) + 1
	name, _, _ := strings.Cut(n.SysPath[start:], "/")
	_, isKnown := c.interfaces[n.SysPath[:start+len(name)]]
	isInterface := strings.Contains(name, ":")
	return isInterface && !isKnown
}

// place determines the position of a node below its hardware. Nodes of IOMMU groups and
// of NVMe subsystems are elsewhere.
func (c *scan) place(n *device.Node) {
	if !strings.HasPrefix(n.SysPath, n.Hardware.Path) {
		return
	}
	for dir := n.SysPath; dir != "" && dir != n.Hardware.Path; dir = up(dir) {
		number, isInterface := c.interfaces[dir]
		if isInterface {
			n.Interface = number
			break
		}
	}
	switch n.Subsystem {
	case "tty":
		// …/ttyUSB0/tty/ttyUSB0: the port is the parent of the class device. Its number at its adapter is from
		// 0 (port_number_show in drivers/usb/serial/bus.c).
		n.Index = c.number(up(up(n.SysPath)), "port_number")
	case "video4linux":
		// From 0 at its device (index_show in drivers/media/v4l2-core/v4l2-dev.c).
		n.Index = c.number(n.SysPath, "index")
	case "block", "bsg", "scsi_generic", "scsi_tape", "scsi_changer":
		n.Index = c.scsiIndex(n)
	}
}

// scsiIndex returns the position of a SCSI device at its controller, or -1 for other devices. The
// name of a disk does not contain it, because letters are assigned in the order in which the disks
// respond. The address in the path, ".../target6:0:1/6:0:1:2", consists of the number of the host,
// which the kernel counts over the machine, and of channel, target and LUN. Each port of an ATA
// controller is a separate host and knows its number.
//
// The index of target 1, LUN 2 is 1002. The number of the port of an ATA controller is added,
// counted from 0. The index is therefore the LUN for USB sticks and the port for ATA disks.
func (c *scan) scsiIndex(n *device.Node) int {
	ataPort := "" // its directory
	for rest := n.SysPath[len(n.Hardware.Path):]; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		number, hasPrefix := strings.CutPrefix(name, "ata")
		if hasPrefix && device.IsDigits(number) {
			ataPort = n.SysPath[:len(n.SysPath)-len(rest)-1]
		}
		target, lun, isAddress := scsiAddress(name)
		if !isAddress {
			continue
		}
		index := 1000*target + lun
		if ataPort == "" {
			return index
		}
		// From 1 at the controller (drivers/ata/libata-transport.c).
		port := c.number(ataPort+"/ata_port/"+base(ataPort), "port_no")
		if port < 1 {
			return -1
		}
		return index + port - 1
	}
	return -1
}

// scsiAddress parses target and LUN in the name of a SCSI device, "6:0:1:2". It rejects numbers
// that do not fit into an index, as for disks of large arrays.
func scsiAddress(name string) (target, lun int, ok bool) {
	var host, channel int
	_, err := fmt.Sscanf(name, "%d:%d:%d:%d", &host, &channel, &target, &lun)
	isExact := err == nil && name == fmt.Sprintf("%d:%d:%d:%d", host, channel, target, lun)
	return target, lun, isExact && target < 1000 && lun < 1000
}

// busDevice returns the device of a bus that owns dir: the nearest mediated device,
// otherwise the result of the function busDevice. The name of a mediated device does not
// identify it as such, so that removed mediated devices are not found.
func (c *scan) busDevice(dir string) (bus device.Bus, found string) {
	if c.hasMDevs {
		for d := dir; d != ""; d = up(d) {
			h := c.hardware[d]
			if h != nil && h.MDev != nil {
				return device.MDevBus, d
			}
		}
	}
	return busDevice(dir)
}

// busDevice returns the directory of the nearest USB device at or above dir, otherwise
// of the nearest PCI function or sub-function. It recognizes them by their names: USB devices are
// nested below the root hub (usb1/1-2/1-2.4), PCI functions below the host bridge
// (pci0000:00/0000:00:1c.0/0000:02:00.0). It only needs the path, so that it also finds
// removed devices.
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
		isUSB := device.IsRootHubName(name) || inUSB && isUSBChild(prev, name)
		isPCI := inPCI && (device.IsPCIAddress(name) || isSubFunction(name))
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

// isUSBChild reports whether name is a USB device in a port of the hub parent: "1-2"
// below "usb1", "1-2.4" below "1-2".
func isUSBChild(parent, name string) bool {
	prefix := parent + "."
	bus, isBelowRootHub := strings.CutPrefix(parent, "usb")
	if isBelowRootHub {
		prefix = bus + "-"
	}
	port, isChild := strings.CutPrefix(name, prefix)
	return isChild && device.IsDigits(port)
}

// isPCIBridge reports whether name is the name of a PCI host bridge, "pci0000:00".
func isPCIBridge(name string) bool {
	bus, hasPrefix := strings.CutPrefix(name, "pci")
	return hasPrefix && device.IsPCIAddress(bus+":00.0")
}
