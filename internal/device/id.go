package device

import (
	"strconv"
	"strings"
)

// IDs name devices to the kubelet, in its checkpoint, in CDI specs and in the paths of
// links. They are an API: testdata/ids.golden lists them.
//
//	0000:3b:00.0                        a PCI function: its address
//	usb:10c4:ea60:A1B2C3                a USB device by its serial number
//	usb:10c4:ea60:port:0000:00:14.0:1.2 a USB device by its location
//	platform:fe201000.serial            a platform device: its name
//	mdev:<UUID>                         a mediated device
//	sf:0000:3b:00.0:88                  a sub-function of a PCI function: its number there
//	nvme:<wwid>:nvme                    a namespace that several NVMe controllers share
//	<hardware>:<key>                    a node or network interface of hardware, see NodeKeys
//	net:tun                             a node without hardware: its path below /dev
//	netif:vcan0                         a network interface without hardware: its name
//	<ID>::3                             slot 3; slot 0 is the ID itself
//
// Devices that are neither a node nor hardware have IDs with the prefixes all, group,
// cdi, virtual, shared and path, see PoolID and the functions below it.
//
// All IDs are valid CDI device names: the first and last character is a letter
// or digit, the others may also be "_", "-", "." and ":". Fields are separated by ":" and
// never empty. A field that is not valid or not unique is replaced by its
// readable part and a hash of the whole. A long ID is cut and gets a hash of the whole.
// Different devices therefore have different IDs, unless 50 bits of SHA-256 collide.
const (
	// MaxID is the maximum length of the ID of a device.
	MaxID = 57
	// MaxSlotID is the maximum length of the ID of a slot, as documented by the
	// kubelet's API.
	MaxSlotID = 63
	// MaxSlots is the maximum number of slots of a device within MaxSlotID.
	MaxSlots = 10000
)

// Form selects one of the two IDs of a USB device. Other hardware has one ID for both forms.
type Form string

// The forms: a serial ID follows the device, a port ID names the location.
const (
	SerialForm Form = "serial"
	PortForm   Form = "port"
)

// Forms are the forms of the USB devices of a snapshot. A device without an entry has its serial
// form if its serial number is usable, otherwise its port form.
type Forms map[*Hardware]Form

// Of returns the form of h.
func (f Forms) Of(h *Hardware) Form {
	if form, ok := f[h]; ok {
		return form
	}
	if h != nil && h.HasSerial() {
		return SerialForm
	}
	return PortForm
}

// HasSerial reports whether h has a serial number that identifies it. The serial number of a root
// hub is the name of its controller. It identifies the hub, unless the kernel numbers such controllers
// in the order of probing.
func (h *Hardware) HasSerial() bool {
	if h.USB == nil || PlaceholderSerial(h.USB.Serial) {
		return false
	}
	return !h.IsRootHub() || h.USB.Serial == h.USB.Controller
}

// HardwareID returns the ID of hardware. It has at most MaxID characters. A USB device without
// a serial number has its port form in any case. White space around a serial number is ignored,
// because some devices pad their descriptor with it.
func HardwareID(h *Hardware, f Form) string {
	return fit(hardwareName(h, f), MaxID)
}

// hardwareName is HardwareID before it is cut.
func hardwareName(h *Hardware, f Form) string {
	switch h.Bus {
	case USBBus:
		return usbName(h, f)
	case PCIBus:
		return pciName(h)
	case MDevBus:
		if h.MDev != nil && h.MDev.UUID != "" {
			return "mdev:" + field(h.MDev.UUID)
		}
		return "mdev:" + field(h.Name)
	default:
		return "platform:" + acpiField(h.Name)
	}
}

func usbName(h *Hardware, f Form) string {
	var u USB
	if h.USB != nil {
		u = *h.USB
	}
	model := "usb:" + field(u.Vendor) + ":" + field(u.Product) + ":"
	serial := strings.TrimSpace(u.Serial)
	if f != PortForm && serial != "" {
		if serial == "port" {
			return model + replaced(serial, serial)
		}
		return model + field(serial)
	}
	place := Place(h)
	if place == "" {
		// An ID for this boot is better than the ID of another device.
		place = replaced("unknown", h.Path)
	}
	return model + "port:" + place
}

func pciName(h *Hardware) string {
	if h.PCI != nil && h.PCI.SRIOV == "sf" {
		number := strconv.Itoa(h.PCI.VF)
		if h.PCI.VF < 0 {
			// An ID for this boot is better than the ID of another sub-function.
			number = field(h.Name)
		}
		return "sf:" + h.PCI.PF + ":" + number
	}
	address := h.Name
	if h.PCI != nil && h.PCI.Address != "" {
		address = h.PCI.Address
	}
	if IsPCIAddress(address) {
		return address
	}
	return "pci:" + field(address)
}

// Place names the location of a USB device, the same in every boot: its host controller
// and the chain of ports below it, "0000:00:14.0:1.2". The ports of an xHCI controller
// are numbered twice, by the root hubs for USB 2 and for SuperSpeed. Equal numbers may be
// different sockets, so that the chain is "ss1.2" for SuperSpeed. Place returns an empty string if
// the controller or the chain is unknown, and for all other hardware.
func Place(h *Hardware) string {
	if h.Bus != USBBus || h.USB == nil || h.USB.Controller == "" {
		return ""
	}
	u := h.USB
	controller := u.Controller
	if !IsPCIAddress(controller) {
		controller = acpiField(controller)
	}
	chain := u.Chain
	if chain == "" || chain == "0" {
		if !h.IsRootHub() {
			return ""
		}
		// Ports are numbered from 1, so that 0 is free for the root hub.
		chain = "0"
	}
	if !isChain(chain) {
		return ""
	}
	if isSuperSpeed(u.Speed) {
		chain = "ss" + chain
	}
	return controller + ":" + chain
}

// isSuperSpeed reports whether a speed in Mbit/s is a speed of USB 3. Only such devices are
// below the root hub for SuperSpeed.
func isSuperSpeed(speed string) bool {
	v, err := strconv.ParseFloat(speed, 64)
	return err == nil && v >= 5000
}

// NodeID returns the ID of a single node or network interface: the ID of its hardware and its key.
// Without hardware it is the node's path below /dev, or the interface's name. It has at most MaxID
// characters.
func NodeID(n *Node, f Form) string {
	if n.Hardware == nil || n.Namespace != "" {
		return KeyedNodeID(n, f, "")
	}
	return KeyedNodeID(n, f, NodeKeys(n.Hardware)[n])
}

// KeyedNodeID is NodeID for a caller that knows the key of the node. NodeID finds the keys of all nodes
// of the hardware, which would take minutes for each of 30,000 nodes of one function.
func KeyedNodeID(n *Node, f Form, key string) string {
	if n.Namespace != "" {
		return namespaceID(n)
	}
	if n.Hardware == nil {
		if n.Type == NetInterface {
			return fit("netif:"+field(n.Path), MaxID)
		}
		return fit(pathName(n.Path), MaxID)
	}
	if key == "" {
		key = fit(replaced(n.Kernel, n.Path), maxKey)
	}
	// The part of the hardware is cut and the key stays, so that the nodes of one hardware
	// remain readable.
	return fit(hardwareName(n.Hardware, f), MaxID-1-len(key)) + ":" + key
}

// namespaceID returns the ID of a node of an NVMe namespace that several controllers share.
func namespaceID(n *Node) string {
	k := splitKernelName(n)
	// The number of a namespace ("n1") depends on the other namespaces.
	partition := strings.TrimLeft(strings.TrimPrefix(k.suffix, "n"), decimal)
	stem := k.prefix + partition
	return fit("nvme:"+field(n.Namespace), MaxID-1-len(stem)) + ":" + stem
}

// SameNode reports whether two IDs belong to the same node. The IDs are the current and an earlier ID of
// a node at one path. They may differ, because the ID of an I2C bus contains the name of its adapter only
// while the bus has siblings.
func SameNode(now, before string) bool {
	if now == before {
		return true
	}
	if now == "" {
		return false
	}
	return strings.HasPrefix(before, now+":") || strings.HasPrefix(now, before+":")
}

// SlotID returns the ID of a slot of the device id. The ID of slot 0 is id itself, for any
// number of slots.
func SlotID(id string, slot int) string {
	if slot <= 0 {
		return id
	}
	return id + "::" + strconv.Itoa(slot)
}

// SplitSlot splits the ID of a slot. An ID without a slot is slot 0.
func SplitSlot(id string) (base string, slot int) {
	i := strings.LastIndex(id, "::")
	if i <= 0 {
		return id, 0
	}
	number := id[i+len("::"):]
	slot, err := strconv.Atoi(number)
	if err != nil || slot <= 0 || strconv.Itoa(slot) != number {
		return id, 0
	}
	return id[:i], slot
}

// pathName is the ID of a node without hardware, before it is cut.
func pathName(path string) string {
	name, isBelowDev := strings.CutPrefix(path, "/dev/")
	parts := strings.Split(name, "/")
	if isBelowDev && areClean(parts) && !isReserved(parts) {
		return strings.Join(parts, ":")
	}
	var readable []string
	for _, p := range parts {
		p = sanitize(p)
		if p != "" {
			readable = append(readable, p)
		}
	}
	if len(readable) == 0 {
		return replaced("", path)
	}
	return strings.Join(readable, ":") + HashPart(path)
}

// isReserved reports whether the path of a node would look like another kind of ID. Most
// prefixes are always followed by a field, so that /dev/shared, for example, is not reserved.
func isReserved(parts []string) bool {
	switch parts[0] {
	case "usb", "pci", "platform":
		return true
	case "all", "group", "cdi", "virtual", "shared", "path", "netif", "mdev", "nvme", "sf":
		return len(parts) > 1
	}
	return len(parts) >= 3 && IsPCIAddress(strings.Join(parts[:3], ":"))
}
