// Package device is the plain data that all other packages share: the hardware and
// nodes of a host (Snapshot, Hardware, Node), their names (IDs), what is offered
// (Offer), listed (Listed) and injected into a container (Response). It imports only
// the standard library and does not read the host.
package device

import "strings"

// OwnDomain is the domain of the names that this program makes itself: of the DRA driver, its
// attributes, and the CDI kinds of claims. No resource has it.
const OwnDomain = "generic-dp.github.io"

// Bus is the kind of a Hardware.
type Bus string

// The buses whose devices own nodes. The owner of a node is the nearest USB device above it,
// otherwise the nearest PCI function, otherwise its platform device.
const (
	USBBus      Bus = "usb"
	PCIBus      Bus = "pci"
	PlatformBus Bus = "platform"
	// MDevBus is the bus of mediated devices: parts of a PCI function, their Parent.
	MDevBus Bus = "mdev"
)

// Snapshot is the result of one scan of a host. It is immutable: a scan makes a new snapshot,
// and readers keep the one they have. All slices are sorted, so that two scans of an unchanged
// host are equal.
type Snapshot struct {
	// Hardware by sysfs path: every USB device, PCI function and mediated
	// device, and each platform device that owns a node or a network interface.
	Hardware []*Hardware
	// Nodes by path: every character and block device node below /dev.
	Nodes []*Node
	// Nets by path: every network interface in sysfs except for lo. It is empty unless interfaces
	// were requested. The sysfs of a pod only has the interfaces of the pod.
	Nets []*Node
	// Links by path: every symbolic link below /dev that points to a node.
	Links []Link
	// Dirs by path: every directory below /dev, "/dev" itself first.
	Dirs []string
	// Problems are failed reads of the scan. Each affects only its own subject.
	Problems []Problem
	// UnreadHardware by path: PCI functions and USB devices that exist and could not be read yet.
	// They are left out with all their nodes, but must not be treated as removed.
	UnreadHardware []UnreadHardware
}

// UnreadHardware is a device that could not be read yet.
type UnreadHardware struct {
	Path string // in sysfs, relative to the root
	// New is set if another device was read at this path before.
	New bool
}

// Problem is a failed read of a scan.
type Problem struct {
	// Subject is the path that could not be read: a path in sysfs relative to the root, possibly
	// of an attribute, or a path of the host below /dev or /proc.
	Subject string
	// Reason is the cause, for an administrator.
	Reason string
}

// Hardware is one USB device, PCI function or sub-function, mediated device or platform
// device.
type Hardware struct {
	Bus Bus
	// Path is the directory of the device in sysfs relative to the root, such as
	// "devices/pci0000:00/0000:00:14.0/usb1/1-2". It identifies the location, not the device,
	// and is unique in a snapshot.
	Path string
	// Name is the kernel's name: "1-2", "0000:00:14.0", "fe201000.serial".
	Name string
	// NUMA is the numa_node of this device, or of the nearest ancestor if it is negative. It is -1
	// if all of them are negative.
	NUMA int
	// Parent is the nearest Hardware above: a hub, the PCI function of the controller, or a
	// bridge. It is nil at the top. The parent of a partition of an AMD GPU, which is a platform
	// device, is the PCI function of the GPU if the partition is in use.
	Parent *Hardware
	// Nodes are the device nodes that this hardware owns, by path, without the nodes of other
	// Hardware below it.
	Nodes []*Node
	// Nets are the network interfaces that it owns, by path.
	Nets []*Node
	// USB is set if Bus is USBBus.
	USB *USB
	// PCI is set if Bus is PCIBus.
	PCI *PCI
	// MDev is set if Bus is MDevBus.
	MDev *MDev
}

// IOMMUGroup returns the number of the IOMMU group of a PCI function or a mediated device. It is empty
// if there is none.
func (h *Hardware) IOMMUGroup() string {
	if h.PCI != nil {
		return h.PCI.IOMMUGroup
	}
	if h.MDev != nil {
		return h.MDev.IOMMUGroup
	}
	return ""
}

// Function returns h if it is a PCI function, otherwise the nearest PCI function above it, or nil.
func (h *Hardware) Function() *Hardware {
	for ; h != nil; h = h.Parent {
		if h.PCI != nil {
			return h
		}
	}
	return nil
}

// IsPartition reports whether h is a partition of an AMD GPU that is in use: a platform device that is a part of a
// PCI function. All other nodes below a function belong to the function itself.
func (h *Hardware) IsPartition() bool {
	return h.Bus == PlatformBus && h.Function() != nil
}

// IsRootHub reports whether h is the root hub of a USB controller, see IsRootHubName.
func (h *Hardware) IsRootHub() bool {
	return h.Bus == USBBus && strings.HasPrefix(h.Name, "usb")
}

// KnownNet is the number of a network interface within its hardware, for interfaces that the kernel
// does not number.
type KnownNet struct {
	Name string `json:"name"`
	// Inode identifies the interface within a boot. It is 0 if it is not known.
	Inode  uint64 `json:"inode,omitempty"`
	Number int    `json:"number"`
}

// PCI is the identity of a PCI function, from ghw and from
// /sys/bus/pci/devices (kernel: Documentation/ABI/testing/sysfs-bus-pci).
type PCI struct {
	Address    string // "0000:3b:00.0"; of a sub-function its name, "mlx5_core.sf.4"
	Vendor     string // four lower-case hexadecimal digits, like the next three fields
	Device     string
	SubVendor  string
	SubDevice  string
	Class      string // six digits: class, subclass, programming interface: "030000"
	Revision   string // two digits: "a1"
	Driver     string
	IOMMUGroup string // "12"; empty without an IOMMU
	// VFIO is set if the function is bound to a VFIO driver: vfio-pci, or one for
	// certain hardware.
	VFIO bool
	// SRIOV is "pf", "vf" or "none", or "sf" for a sub-function: a part of a function, with the
	// identifiers of the function.
	SRIOV string
	// PF is the address of the physical function of a virtual function or a sub-function. It is
	// empty for other functions.
	PF string
	// VF is the number of a virtual function or a sub-function at its physical function. It is -1
	// if there is none.
	VF int
}

// MDev is a mediated device (kernel: Documentation/driver-api/vfio-mediated-device.rst).
type MDev struct {
	UUID       string
	Type       string // the directory of its type, "nvidia-222"
	Name       string // name of the type, "GRID T4-1Q"; often empty
	IOMMUGroup string
}

// IsBridge reports whether the function is a bridge to PCI or CardBus (include/linux/pci_ids.h). VFIO
// does not require that bridges are bound to it.
func (p *PCI) IsBridge() bool {
	for _, class := range []string{"0604", "0607", "0609"} {
		if strings.HasPrefix(p.Class, class) {
			return true
		}
	}
	return false
}

// NodeType is the type of a device node, like in mknod(1).
type NodeType byte

// The types of device nodes and of network interfaces. Interfaces are selected and owned like nodes.
const (
	CharNode     NodeType = 'c'
	BlockNode    NodeType = 'b'
	NetInterface NodeType = 'n'
)

// Node is one device node below /dev, or one network interface.
type Node struct {
	// Path is the path on the host, "/dev/ttyUSB0". It is not a link, and does not depend on where
	// the /dev of the host is mounted. For an interface it is the name.
	Path         string
	Type         NodeType
	Major, Minor uint32
	// Kernel is the kernel's name, "ttyUSB0", "event3". It is the last element of Path if sysfs
	// does not have the node.
	Kernel string
	// SysPath is its directory in sysfs relative to the root. It is empty if sysfs does not have
	// the node.
	SysPath string
	// Subsystem is its subsystem, "tty". It is empty if sysfs does not have the node.
	Subsystem string
	// Hardware owns the node. It is nil for nodes such as /dev/fuse. The node of an IOMMU group
	// ("/dev/vfio/12") is owned by the function with the lowest address, among the functions of
	// the group that are bound to VFIO.
	Hardware *Hardware
	// Interface is the number of the node's USB interface, or -1.
	Interface int
	// Index is the number that the kernel gives the node within its interface or hardware:
	// port_number of a serial adapter, index of a video4linux node, the position of a SCSI device
	// at its controller, or dev_port of a network interface. It is -1 if there is none.
	Index int
	// Part distinguishes the node from others of its class below its hardware, for
	// classes that the kernel numbers in probing order: "SMO9210-00.lsm6dsm",
	// "mux-70.i2c-0". It is empty if the node needs none or has none.
	Part string
	// Namespace is the identifier of the NVMe namespace of the node (wwid), if no
	// single controller identifies the node. It takes precedence in the ID.
	Namespace string
	// NUMA is the NUMA node of a device node without hardware, such as a memory device. It is
	// empty if the NUMA node is unknown.
	NUMA []int
	// Net is set if Type is NetInterface.
	Net *Net
}

// Net are the attributes of a network interface (kernel:
// Documentation/ABI/testing/sysfs-class-net).
type Net struct {
	Driver string // of its device, or empty
	// Type is the kind of link: "ether", "can", "infiniband", ..., or the number of
	// ARPHRD_* (include/uapi/linux/if_arp.h) if it has no name here.
	Type string
}

// CDIDevice is a device of a CDI spec on the host.
type CDIDevice struct {
	Name  string // qualified, "nvidia.com/gpu=0"
	Nodes []CDINode
}

// CDINode is a device node of a CDI spec.
type CDINode struct {
	Path string // on the host
	// Type, Major and Minor are from the spec, and take precedence over the node at Path. Type is
	// zero if the spec does not have them.
	Type         NodeType
	Major, Minor uint32
	// Common is set if the spec injects the node with each of its devices.
	Common bool
}

// Link is a symbolic link below /dev, and the node to which it points.
type Link struct {
	Path string
	Node *Node
}
