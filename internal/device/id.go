package device

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"
	"unicode"
)

// IDs name devices to the kubelet, in its checkpoint, in CDI specs and in the paths of
// links. They are an API: testdata/ids.golden lists them.
//
//	0000:3b:00.0                        a PCI function: its address
//	usb:10c4:ea60:A1B2C3                a USB device by its serial
//	usb:10c4:ea60:port:0000:00:14.0:1.2 a USB device by its location
//	platform:fe201000.serial            a platform device: its name
//	mdev:<UUID>                         a mediated device
//	sf:0000:3b:00.0:88                  a sub-function of a PCI function: its number there
//	nvme:<wwid>:nvme                    a namespace that several NVMe controllers lead to
//	<hardware>:<key>                    a node or network interface of hardware, see NodeKeys
//	net:tun                             a node without hardware: its path below /dev
//	netif:vcan0                         a network interface without hardware: its name
//	<ID>::3                             slot 3; slot 0 is the ID itself
//
// Other devices, neither a node nor hardware, have IDs with the prefixes all, group,
// cdi, virtual, shared and path, see below.
//
// All are in the grammar of CDI device names: the first and last character is a letter
// or digit, others may also be "_", "-", "." and ":". Fields are separated by ":" and
// never empty. A field outside of the grammar, or an ambiguous one, is replaced by its
// readable part and a hash of the whole; a long ID is cut and gets a hash of the whole.
// So different devices have different IDs, unless 50 bits of SHA-256 collide.
const (
	// MaxID is the maximum length of the ID of a device.
	MaxID = 57
	// MaxSlotID is the maximum length of the ID of a slot, as documented by the
	// kubelet's API.
	MaxSlotID = 63
	// MaxSlots is the maximum number of slots of a device within MaxSlotID.
	MaxSlots = 10000
)

// Form selects one of the two IDs of a USB device. Other hardware has one ID, whatever
// the form.
type Form string

// The forms: a serial ID follows the device, a port ID names the location.
const (
	SerialForm Form = "serial"
	PortForm   Form = "port"
)

// Forms are the forms of the USB devices of a snapshot. An absent one has its serial
// form if the serial is usable, otherwise its port form.
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

// HasSerial reports whether h has a serial that identifies it. The serial of a root hub
// is the name of its controller, unless the kernel counts such names.
func (h *Hardware) HasSerial() bool {
	return h.USB != nil && !PlaceholderSerial(h.USB.Serial) && (!h.IsRootHub() || h.USB.Serial == h.USB.Controller)
}

// HardwareID returns the ID of hardware, at most MaxID characters. A USB device without
// a serial has its port form in any case. White space around a serial is ignored: some
// devices pad their descriptor with it.
func HardwareID(h *Hardware, f Form) string {
	return fit(hardwareName(h, f), MaxID)
}

// hardwareName is HardwareID before it is cut.
func hardwareName(h *Hardware, f Form) string {
	switch {
	case h.Bus == USBBus:
		var u USB
		if h.USB != nil {
			u = *h.USB
		}
		id := "usb:" + field(u.Vendor) + ":" + field(u.Product) + ":"
		if serial := strings.TrimSpace(u.Serial); f != PortForm && serial != "" {
			if serial == "port" {
				return id + replaced(serial, serial)
			}
			return id + field(serial)
		}
		place := Place(h)
		if place == "" {
			// An ID for this boot is better than the ID of another device.
			place = replaced("unknown", h.Path)
		}
		return id + "port:" + place
	case h.Bus == PCIBus && h.PCI != nil && h.PCI.SRIOV == "sf":
		number := strconv.Itoa(h.PCI.VF)
		if h.PCI.VF < 0 {
			// An ID for this boot is better than that of another one.
			number = field(h.Name)
		}
		return "sf:" + h.PCI.PF + ":" + number
	case h.Bus == PCIBus:
		address := h.Name
		if h.PCI != nil && h.PCI.Address != "" {
			address = h.PCI.Address
		}
		if IsPCIAddress(address) {
			return address
		}
		return "pci:" + field(address)
	case h.Bus == MDevBus:
		if h.MDev != nil && h.MDev.UUID != "" {
			return "mdev:" + field(h.MDev.UUID)
		}
		return "mdev:" + field(h.Name)
	}
	return "platform:" + acpiField(h.Name)
}

// Place names the location of a USB device, the same in every boot: its host controller
// and the chain of ports below it, "0000:00:14.0:1.2". The ports of an xHCI controller
// are numbered twice, by the root hubs for USB 2 and for SuperSpeed, and may be
// different sockets: for SuperSpeed the chain is "ss1.2". It is empty if the controller
// or the chain is unknown, and for all other hardware.
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
		// Ports are numbered from 1, so that 0 is free for the root hub.
		if !strings.HasPrefix(h.Name, "usb") {
			return ""
		}
		chain = "0"
	}
	if !isChain(chain) {
		return ""
	}
	if superSpeed(u.Speed) {
		chain = "ss" + chain
	}
	return controller + ":" + chain
}

// superSpeed reports whether a speed in Mbit/s is one of USB 3: only such devices are
// below the root hub for SuperSpeed.
func superSpeed(speed string) bool {
	v, err := strconv.ParseFloat(speed, 64)
	return err == nil && v >= 5000
}

// NodeID returns the ID of a single node or network interface, at most MaxID characters:
// the ID of its hardware and its key. Without hardware it is the node's path below /dev, or
// the interface's name.
func NodeID(n *Node, f Form) string {
	if n.Hardware == nil || n.Namespace != "" {
		return KeyedNodeID(n, f, "")
	}
	return KeyedNodeID(n, f, NodeKeys(n.Hardware)[n])
}

// KeyedNodeID is NodeID for a caller that knows the key of the node: to find the keys of all
// nodes anew for each of 30,000 nodes of one function takes minutes.
func KeyedNodeID(n *Node, f Form, key string) string {
	switch {
	case n.Namespace != "":
		k := splitKernel(n)
		// The number of a namespace depends on which others there are.
		stem := k.prefix + strings.TrimLeft(strings.TrimPrefix(k.suffix, "n"), decimal)
		return fit("nvme:"+field(n.Namespace), MaxID-1-len(stem)) + ":" + stem
	case n.Hardware != nil:
	case n.Type == NetInterface:
		return fit("netif:"+field(n.Path), MaxID)
	default:
		return fit(pathName(n.Path), MaxID)
	}
	if key == "" {
		key = fit(replaced(n.Kernel, n.Path), maxKey)
	}
	// If it is too long, the hardware's part is cut, so that nodes of one hardware stay
	// readable.
	return fit(hardwareName(n.Hardware, f), MaxID-1-len(key)) + ":" + key
}

// SameNode reports whether two IDs that the node at one path has had are of the same node:
// an I2C bus has the name of its adapter in its ID only while it has siblings.
func SameNode(now, before string) bool {
	return now == before || now != "" && (strings.HasPrefix(before, now+":") || strings.HasPrefix(now, before+":"))
}

// SlotID returns the ID of a slot of the device id: id itself for slot 0, for any
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
	slot, err := strconv.Atoi(id[i+2:])
	if err != nil || slot <= 0 || strconv.Itoa(slot) != id[i+2:] {
		return id, 0
	}
	return id[:i], slot
}

// pathName is the ID of a node without hardware, before it is cut.
func pathName(path string) string {
	name, below := strings.CutPrefix(path, "/dev/")
	parts := strings.Split(name, "/")
	clean := below
	for _, p := range parts {
		clean = clean && isClean(p)
	}
	if clean && !reserved(parts) {
		return strings.Join(parts, ":")
	}
	var readable []string
	for _, p := range parts {
		if p = sanitize(p); p != "" {
			readable = append(readable, p)
		}
	}
	if len(readable) == 0 {
		return replaced("", path)
	}
	return strings.Join(readable, ":") + HashPart(path)
}

// reserved reports whether the path of a node would read as another kind of ID. The
// prefixes added later are free if nothing follows: /dev/shared had its ID before.
func reserved(parts []string) bool {
	switch parts[0] {
	case "usb", "pci", "platform":
		return true
	case "all", "group", "cdi", "virtual", "shared", "path", "netif", "mdev", "nvme", "sf":
		return len(parts) > 1
	}
	return len(parts) >= 3 && IsPCIAddress(strings.Join(parts[:3], ":"))
}

// The IDs of devices other than single nodes and hardware with its nodes. The prefix
// determines the syntax; no ID of hardware or of a node starts with one, see reserved.
//
//	all:example.com:cameras             everything that a resource selects
//	group:pci.slot:0000:3b:00           the hardware with one value of a variable
//	cdi:nvidia.com:gpu:0                a CDI device of the host
//	virtual:example.com:licence:lic-0   a device without hardware
//	shared:example.com:gpu:0000:3b:00.0 a device that other resources may offer too
//	path:var:run:docker.sock            a path that is not a device node

// PoolID is the ID of everything that a resource selects, as one device.
func PoolID(resource string) string { return fit("all:"+qualified(resource), MaxID) }

// GroupID is the ID of the hardware with one value of a variable,
// "group:pci.slot:0000:3b:00".
func GroupID(variable, value string) string {
	return fit("group:"+field(variable)+":"+listName(value, ":"), MaxID)
}

// CDIDeviceID is the ID of a CDI device of the host with the qualified name:
// "cdi:nvidia.com:gpu:0".
func CDIDeviceID(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	return fit("cdi:"+qualified(kind)+":"+listName(id, ":"), MaxID)
}

// CDIDeviceName is the ID of a CDI device by its name alone: "GPU-4cf8db2d-...".
func CDIDeviceName(name string) string {
	_, id, _ := strings.Cut(name, "=")
	return fit(listName(id, ":"), MaxID)
}

// VirtualID is the ID of a device of a resource that has no hardware.
func VirtualID(resource, name string) string {
	return fit("virtual:"+qualified(resource)+":"+field(name), MaxID)
}

// SharedID is the ID of a device that other resources may offer too; id is its ID
// otherwise.
func SharedID(resource, id string) string {
	return fit("shared:"+qualified(resource)+":"+id, MaxID)
}

// PathID is the ID of an absolute, clean path of the host that is not a device node.
func PathID(path string) string {
	return fit("path:"+listName(strings.TrimPrefix(path, "/"), "/"), MaxID)
}

// qualified is the name of a resource or a CDI kind as two fields, "example.com:gpu".
// Other texts are one field, so that it stays distinct from what follows.
func qualified(name string) string {
	if strings.Count(name, "/") != 1 {
		return replaced(name, name)
	}
	return listName(name, "/")
}

// listName joins the parts of s with colons, or hashes it into one field if a part
// cannot be in an ID.
func listName(s, separator string) string {
	parts := strings.Split(s, separator)
	for _, p := range parts {
		if !isClean(p) {
			return replaced(strings.ReplaceAll(s, separator, "-"), s)
		}
	}
	return strings.Join(parts, ":")
}

// The characters of IDs: alnum starts and ends a field, inner is allowed in between.
const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum   = decimal + lower + upper
	inner   = alnum + "_-."
)

// consists reports whether s is not empty and has only these characters.
func consists(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }

// bounded reports whether s consists of characters, and starts and ends with a letter
// or digit.
func bounded(s, characters string) bool {
	return consists(s, characters) && strings.Trim(s, "_-.:") == s
}

// ValidID reports whether id is in the grammar of IDs and no longer than
// MaxID.
func ValidID(id string) bool {
	return len(id) <= MaxID && bounded(id, inner+":") && !strings.Contains(id, "::")
}

// The hash part: a mark and hashLen characters of five bits each, HashLen together.
const (
	hashMark = "-x"
	hashLen  = 10
	HashLen  = len(hashMark) + hashLen
)

// HashPart returns the mark and the hash of a replaced text, HashLen characters.
func HashPart(exact string) string {
	sum := sha256.Sum256([]byte(exact))
	return hashMark + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:hashLen])
}

// replaced returns a field: the readable part within the grammar, and the hash of
// exact.
func replaced(readable, exact string) string {
	readable = sanitize(readable)
	if readable == "" {
		readable = "x"
	}
	return readable + HashPart(exact)
}

// field returns s if it can be a field of an ID, otherwise its replacement.
func field(s string) string {
	if isClean(s) {
		return s
	}
	return replaced(s, s)
}

// acpiField is field, but keeps the name of an ACPI device.
func acpiField(s string) string {
	if isACPIName(s) {
		return s
	}
	return field(s)
}

// fit cuts an ID to limit characters, which is more than HashLen.
func fit(id string, limit int) string {
	if len(id) <= limit {
		return id
	}
	return strings.TrimRight(id[:limit-HashLen], ":_-.") + HashPart(id)
}

// isClean reports whether s can be an unmodified field. A text like a replacement
// cannot, since it would be ambiguous.
func isClean(s string) bool { return bounded(s, inner) && !hasHash(s) }

// hasHash reports whether s ends like a hash part.
func hasHash(s string) bool {
	i := len(s) - HashLen
	if i < 0 || s[i:i+len(hashMark)] != hashMark {
		return false
	}
	return consists(s[i+len(hashMark):], decimal+"abcdefghijklmnopqrstuv")
}

// sanitize reduces s to the grammar of a field, possibly to nothing.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(inner, r) {
			return r
		}
		return '_'
	}, s)
	return strings.Trim(s, "_-.")
}

// IsPCIAddress reports whether s is domain:bus:device.function as formatted by the
// kernel. Behind some controllers a domain has more than four digits.
func IsPCIAddress(s string) bool {
	i := len(s) - len(":3b:00.0")
	return i >= 4 && s[i] == ':' && s[i+3] == ':' && s[i+6] == '.' &&
		isHex(s[:i]) && isHex(s[i+1:i+3]) && isHex(s[i+4:i+6]) && isDigits(s[i+7:])
}

// isACPIName reports whether s is the kernel's name of a device of the ACPI tables: the
// device's ID, three or four letters and four digits, and its number, "ARMH0011:00"
// (acpi_device_set_name in drivers/acpi/scan.c). It is the only kind of name with a
// colon that is unambiguous.
func isACPIName(s string) bool {
	id, number, ok := strings.Cut(s, ":")
	return ok && (len(id) == 7 || len(id) == 8) && consists(id, decimal+upper) && len(number) == 2 && number[0] <= '9' && isHex(number)
}

// isChain reports whether s is a chain of ports, "1.4".
func isChain(s string) bool {
	for port := range strings.SplitSeq(s, ".") {
		if !isDigits(port) {
			return false
		}
	}
	return true
}

func isDigits(s string) bool { return consists(s, decimal) }

func isHex(s string) bool { return consists(s, decimal+"abcdef") }

// MaxNetName is the maximum length of the name of a network interface: IFNAMSIZ without
// the terminating zero (include/uapi/linux/if.h).
const MaxNetName = 15

// ValidNetName reports whether the kernel accepts the name of a network interface
// (dev_valid_name in net/core/dev.c), and it has no control characters.
func ValidNetName(name string) bool {
	return name != "" && len(name) <= MaxNetName && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) })
}
