// Package device holds the plain data that every other package shares: what
// a host has (Snapshot, Hardware, Node), how it is named (IDs), what is
// offered of it (Offer), what the kubelet is shown (Listed) and what a
// container gets (Response). It imports the standard library only and reads
// nothing from the host.
package device

import "strings"

// Bus says what kind of hardware a Hardware is.
type Bus string

// The buses whose devices own nodes: the nearest USB device above a node
// owns it, else the nearest PCI function, else its platform device.
const (
	USBBus      Bus = "usb"
	PCIBus      Bus = "pci"
	PlatformBus Bus = "platform"
	// MDevBus is that of mediated devices: parts of a PCI function that is
	// their Parent.
	MDevBus Bus = "mdev"
)

// Snapshot is one reading of a host. It is immutable once published: a scan
// makes a new one and readers keep the one they have. All slices are sorted,
// so that two scans of an unchanged host are equal.
type Snapshot struct {
	// Hardware by sysfs path: every USB device, PCI function and mediated
	// device, and each platform device that owns a node or a network interface.
	Hardware []*Hardware
	// Nodes by path: every character and block device node below /dev.
	Nodes []*Node
	// Nets by path: every network interface that sysfs shows, but for lo; none
	// where nobody asks for them. A pod's own sysfs shows those of the pod alone.
	Nets []*Node
	// Links by path: every symbolic link below /dev that leads to a node.
	Links []Link
	// Dirs by path: every directory below /dev, "/dev" itself first.
	Dirs []string
	// Problems that the scan met: what could not be read, and why. They
	// degrade what they name and nothing else.
	Problems []Problem
	// Unread by path: USB devices that are there and could not be read yet. They are
	// left out with all their nodes, and are not gone.
	Unread []Unread
}

// Unread is hardware that could not be read yet.
type Unread struct {
	Path string // in sysfs, relative to the root
	// New says that it is not the device that was read there before.
	New bool
}

// Problem is something that a scan could not read.
type Problem struct {
	// Subject is what is degraded: a sysfs path relative to the root, which may
	// be that of an attribute, or a path of the host below /dev or /proc.
	Subject string
	// Reason is what went wrong, in words for an administrator.
	Reason string
}

// Hardware is one USB device, PCI function, mediated device or platform device.
type Hardware struct {
	Bus Bus
	// Path is the device's directory in sysfs relative to the root, such as
	// "devices/pci0000:00/0000:00:14.0/usb1/1-2". It names the place, not
	// the thing, and is unique in a snapshot.
	Path string
	// Name is the kernel's name: "1-2", "0000:00:14.0", "fe201000.serial".
	Name string
	// NUMA is the numa_node of this device or of the nearest device above
	// that has one which is not negative, and -1 where there is none.
	NUMA int
	// Parent is the nearest Hardware above: a hub, the controller's PCI
	// function, a bridge; nil at the top.
	Parent *Hardware
	// Nodes that this hardware owns, by path; those of other Hardware below
	// it are not among them.
	Nodes []*Node
	// Nets are its network interfaces, likewise.
	Nets []*Node
	// USB is set where Bus is USBBus, PCI where it is PCIBus, MDev where it is
	// MDevBus.
	USB  *USB
	PCI  *PCI
	MDev *MDev
}

// IOMMUGroup is the number of the IOMMU group that a PCI function or a mediated
// device is in; empty is none.
func (h *Hardware) IOMMUGroup() string {
	switch {
	case h.PCI != nil:
		return h.PCI.IOMMUGroup
	case h.MDev != nil:
		return h.MDev.IOMMUGroup
	}
	return ""
}

// Function is the PCI function that h is, or the nearest one above it; nil for
// none.
func (h *Hardware) Function() *Hardware {
	for ; h != nil; h = h.Parent {
		if h.PCI != nil {
			return h
		}
	}
	return nil
}

// IsRootHub reports whether h is a USB controller's own hub: the kernel names it
// "usb1" (usb_alloc_dev in drivers/usb/core/usb.c), and all others after their
// ports.
func (h *Hardware) IsRootHub() bool {
	return h.Bus == USBBus && strings.HasPrefix(h.Name, "usb")
}

// InterfacesOf lists the USB interface of a node, or all of h where the node is
// nil or belongs to the device as a whole, as its bus node does.
func (h *Hardware) InterfacesOf(n *Node) []USBInterface {
	if h.USB == nil {
		return nil
	}
	if n == nil || n.Interface < 0 {
		return h.USB.Interfaces
	}
	for i, found := range h.USB.Interfaces {
		if found.Number == n.Interface {
			return h.USB.Interfaces[i : i+1]
		}
	}
	return []USBInterface{{Number: n.Interface}}
}

// USB is the identity of a USB device, from the attributes of
// /sys/bus/usb/devices (kernel: Documentation/ABI/testing/sysfs-bus-usb).
// Absent attributes are empty.
type USB struct {
	Vendor       string // idVendor, four lower-case hexadecimal digits
	Product      string // idProduct, likewise
	Serial       string // as the device says it, untrimmed, control characters removed
	Manufacturer string
	ProductName  string // the attribute "product"
	Class        string // bDeviceClass, two lower-case hexadecimal digits
	Port         string // the kernel's name in this boot, "1-1.4"
	// Controller is the PCI address or platform device name of the host
	// controller, "0000:00:14.0"; Chain the ports below it, "1.4". Together
	// they name the place from boot to boot, which bus numbers do not.
	Controller string
	Chain      string
	Speed      string // Mbit/s, "480"
	Interfaces []USBInterface
}

// USBInterface is one interface of the active configuration.
type USBInterface struct {
	Number int    // bInterfaceNumber
	Class  string // bInterfaceClass, two lower-case hexadecimal digits
	Driver string
}

// PCI is the identity of a PCI function, from ghw and from
// /sys/bus/pci/devices (kernel: Documentation/ABI/testing/sysfs-bus-pci).
type PCI struct {
	Address    string // "0000:3b:00.0"
	Vendor     string // four lower-case hexadecimal digits, as are the next three
	Device     string
	SubVendor  string
	SubDevice  string
	Class      string // six digits: class, subclass, programming interface: "030000"
	Revision   string // two digits: "a1"
	Driver     string
	IOMMUGroup string // "12"; empty where there is no IOMMU
	// VFIO says that the function is bound to a driver of VFIO, which hands it
	// to programs: vfio-pci, or one for certain hardware.
	VFIO  bool
	SRIOV string // "pf", "vf" or "none"
	// PF is the address of the physical function of a VF and VF its number
	// there; PF is empty and VF is -1 for everything else.
	PF string
	VF int
}

// MDev is a mediated device (kernel: Documentation/driver-api/vfio-mediated-device.rst).
type MDev struct {
	UUID       string
	Type       string // the directory of its type, "nvidia-222"
	Name       string // what the type is called, "GRID T4-1Q"; often empty
	IOMMUGroup string
}

// IsBridge reports whether the function is a bridge between buses, which VFIO
// does not need: a bridge to PCI or CardBus (include/linux/pci_ids.h).
func (p *PCI) IsBridge() bool {
	for _, class := range []string{"0604", "0607", "0609"} {
		if strings.HasPrefix(p.Class, class) {
			return true
		}
	}
	return false
}

// NodeType is the type of a device node as mknod(1) says it.
type NodeType byte

// The two types of device nodes, and that of network interfaces, which are
// selected and owned as nodes are.
const (
	CharNode     NodeType = 'c'
	BlockNode    NodeType = 'b'
	NetInterface NodeType = 'n'
)

// Node is one device node below /dev, or one network interface.
type Node struct {
	// Path on the host, "/dev/ttyUSB0": never a link, and never the place
	// where the host's /dev is mounted here. Of an interface it is the name.
	Path         string
	Type         NodeType
	Major, Minor uint32
	// Kernel is the kernel's name, "ttyUSB0", "event3"; the last element of
	// Path where sysfs does not know the node.
	Kernel string
	// SysPath is its directory in sysfs relative to the root, and Subsystem
	// its subsystem ("tty"); both empty where sysfs does not know the node.
	SysPath   string
	Subsystem string
	// Hardware that owns the node; nil for what has none, such as /dev/fuse.
	// The node of an IOMMU group ("/dev/vfio/12") is that of the function with
	// the lowest address among those of the group that are bound to VFIO.
	Hardware *Hardware
	// Interface is the number of the USB interface the node belongs to, or -1.
	Interface int
	// Index is the kernel's own number of the node within its interface or
	// hardware where it has one (port_number of a serial adapter, index of a
	// video4linux node, the place of a SCSI device at its controller, dev_port
	// of a network interface), or -1.
	Index int
	// Net is set where Type is NetInterface.
	Net *Net
}

// Net is what sysfs says of a network interface (kernel:
// Documentation/ABI/testing/sysfs-class-net).
type Net struct {
	Driver string // of the device behind it; empty where there is none
	// Type is the kind of link: "ether", "can", "infiniband", ..., or the
	// number of ARPHRD_* (include/uapi/linux/if_arp.h) where it has no name here.
	Type string
}

// CDIDevice is a device that a CDI spec on the host describes.
type CDIDevice struct {
	Name  string // qualified, "nvidia.com/gpu=0"
	Nodes []CDINode
}

// CDINode is a device node that a CDI spec gives a container.
type CDINode struct {
	Path string // on the host
	// Type, Major and Minor are those of the spec, which count for more than the
	// node at Path; Type is zero where it does not say them.
	Type         NodeType
	Major, Minor uint32
	// Common says that the spec gives it with each of its devices.
	Common bool
}

// Link is a symbolic link below /dev and the node it leads to.
type Link struct {
	Path string
	Node *Node
}
