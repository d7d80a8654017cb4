package device

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// IDs name devices to the kubelet, in its checkpoint, in CDI specs and in the
// paths of links. They are an API: testdata/ids.golden holds them.
//
//	0000:3b:00.0                        a PCI function: its address
//	usb:10c4:ea60:A1B2C3                a USB device by its serial
//	usb:10c4:ea60:port:0000:00:14.0:1.2 a USB device by its place
//	platform:fe201000.serial            a platform device: its name
//	mdev:<UUID>                         a mediated device
//	<hardware>:<key>                    a node or network interface of hardware, see NodeKeys
//	net:tun                             a node without: its path below /dev
//	netif:vcan0                         a network interface without: its name
//	<ID>::3                             slot 3; slot 0 is the ID itself
//
// What is not one node or the hardware that has it is named in owned.go: by
// the words all, group, cdi, virtual, shared and path.
//
// All are in the grammar of CDI device names: first and last a letter or
// digit, in between also "_", "-", "." and ":". Fields are separated by ":"
// and never empty. A field that the grammar can't hold, or that would read
// as something else, is replaced by what is left of it and a hash of the
// whole; an ID that is too long is cut and gets a hash of what it was. So
// different things have different IDs, as long as 50 bits of SHA-256 differ.
const (
	// MaxID is the longest ID of a device, in characters.
	MaxID = 57
	// MaxSlotID is the longest ID of a slot: what the kubelet's API promises
	// for a device.
	MaxSlotID = 63
	// MaxSlots is how many slots a device may have within MaxSlotID.
	MaxSlots = 10000
)

// Form says which of its two IDs a USB device goes by. Other hardware has
// one ID, whatever the form.
type Form string

// The forms: by serial the ID follows the thing, by port it names the place.
const (
	SerialForm Form = "serial"
	PortForm   Form = "port"
)

// Forms says which form each USB device of a snapshot goes by. What is absent
// goes by its serial where that is usable and by its port where it is not.
type Forms map[*Hardware]Form

// Of returns the form of h.
func (f Forms) Of(h *Hardware) Form {
	if form, ok := f[h]; ok {
		return form
	}
	if h != nil && h.USB != nil && !PlaceholderSerial(h.USB.Serial) {
		return SerialForm
	}
	return PortForm
}

// HardwareID returns the ID of hardware, at most MaxID characters. A USB
// device without any serial has its port form whatever f says. Space around
// a serial is no part of it: some devices fill their descriptor up with it.
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
			// Better an ID for this boot than one that another device has.
			place = replaced("unknown", h.Path)
		}
		return id + "port:" + place
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
	if isACPIName(h.Name) {
		return "platform:" + h.Name
	}
	return "platform:" + field(h.Name)
}

// Place names where a USB device is plugged in, the same in every boot: its
// host controller and the chain of ports below that, "0000:00:14.0:1.2". The
// ports of an xHCI controller are counted twice, by the root hub for USB 2
// and by the one for SuperSpeed, and may then be different sockets: there the
// chain is "ss1.2". It is empty where the controller or the chain is unknown,
// and for all other hardware.
func Place(h *Hardware) string {
	if h.Bus != USBBus || h.USB == nil || h.USB.Controller == "" {
		return ""
	}
	u := h.USB
	controller := u.Controller
	if !IsPCIAddress(controller) && !isACPIName(controller) {
		controller = field(controller)
	}
	chain := u.Chain
	if chain == "" || chain == "0" {
		// Ports are counted from 1, so that 0 is free for the root hub.
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

// superSpeed reports whether a speed in Mbit/s is one of USB 3: such devices
// are below the root hub for SuperSpeed, and no others are.
func superSpeed(speed string) bool {
	v, err := strconv.ParseFloat(speed, 64)
	return err == nil && v >= 5000
}

// NodeID returns the ID of a single node or network interface, at most MaxID
// characters: that of its hardware and its key there. Without hardware it is
// the node's path below /dev, or the interface's name.
func NodeID(n *Node, f Form) string {
	switch {
	case n.Hardware != nil:
	case n.Type == NetInterface:
		return fit("netif:"+field(n.Path), MaxID)
	default:
		return fit(pathName(n.Path), MaxID)
	}
	key, ok := NodeKeys(n.Hardware)[n]
	if !ok {
		key = fit(replaced(n.Kernel, n.Path), maxKey)
	}
	// Where that is too long it is the hardware's part that gives way, so
	// that nodes of one hardware can still be told apart by eye.
	return fit(hardwareName(n.Hardware, f), MaxID-1-len(key)) + ":" + key
}

// SlotID returns the ID of a slot of the device that id names: id itself for
// slot 0, so that it is the same whatever the number of slots is.
func SlotID(id string, slot int) string {
	if slot <= 0 {
		return id
	}
	return id + "::" + strconv.Itoa(slot)
}

// SplitSlot takes a slot's ID apart. An ID without a slot is slot 0.
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
	return strings.Join(readable, ":") + hashPart(path)
}

// reserved reports whether the path of a node would read as the ID of
// something else. The words that came later are free as long as nothing
// follows: /dev/shared had its ID before.
func reserved(parts []string) bool {
	switch parts[0] {
	case "usb", "pci", "platform":
		return true
	case "all", "group", "cdi", "virtual", "shared", "path", "netif", "mdev":
		return len(parts) > 1
	}
	return len(parts) >= 3 && IsPCIAddress(strings.Join(parts[:3], ":"))
}

// The IDs of what is no single node and no hardware with its nodes. The word
// in front says how to read the rest; no ID of hardware or of a node begins
// with one of them, see reserved.
//
//	all:example.com:cameras             everything that a resource selects
//	group:pci.slot:0000:3b:00           the hardware with one value of a variable
//	cdi:nvidia.com:gpu:0                a CDI device of the host
//	virtual:example.com:licence:lic-0   a device without hardware
//	shared:example.com:gpu:0000:3b:00.0 what other resources may offer, too
//	path:var:run:docker.sock            what is at a path and is no device node

// PoolID is the ID of everything that a resource selects as one device.
func PoolID(resource string) string { return fit("all:"+qualified(resource), MaxID) }

// GroupID is the ID of the hardware that has one value for a variable,
// "group:pci.slot:0000:3b:00".
func GroupID(variable, value string) string {
	return fit("group:"+field(variable)+":"+listName(value, ":"), MaxID)
}

// CDIDeviceID is the ID of one of the host's CDI devices, of which name is the
// qualified name: "cdi:nvidia.com:gpu:0".
func CDIDeviceID(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	return fit("cdi:"+qualified(kind)+":"+listName(id, ":"), MaxID)
}

// VirtualID is the ID of a device of a resource that has no hardware.
func VirtualID(resource, name string) string {
	return fit("virtual:"+qualified(resource)+":"+field(name), MaxID)
}

// SharedID is the ID of a device that other resources may offer, too; id is
// the one that it has otherwise.
func SharedID(resource, id string) string {
	return fit("shared:"+qualified(resource)+":"+id, MaxID)
}

// PathID is the ID of what is at a path of the host, absolute and clean, and
// is no device node.
func PathID(path string) string {
	return fit("path:"+listName(strings.TrimPrefix(path, "/"), "/"), MaxID)
}

// qualified is the name of a resource or a CDI kind as two fields,
// "example.com:gpu". Anything else that is given, which neither is, is one
// field, so that what follows can't be taken for a part of it.
func qualified(name string) string {
	if strings.Count(name, "/") != 1 {
		return replaced(name, name)
	}
	return listName(name, "/")
}

// listName joins the parts of s with colons, or says it in one field with a
// hash where one of them can't be in an ID.
func listName(s, separator string) string {
	parts := strings.Split(s, separator)
	for _, p := range parts {
		if !isClean(p) {
			return replaced(strings.ReplaceAll(s, separator, "-"), s)
		}
	}
	return strings.Join(parts, ":")
}

// PlaceholderSerial reports whether s is no serial number, but what a maker
// left in its place, so that any number of devices may have it. The rules
// look at letters and digits only, whatever their case, and not at a label in
// front ("SN0001", "0x0001"):
//
//   - fewer than three characters: "", "0", "1.0"
//   - one character repeated: "00000000", "ffffff", "00:00:00:00:00:00"
//   - zeros and a one at the end: "0001", "00000001"
//   - counting up from 0, 1 or a, decimal, hexadecimal or by letters, however
//     often: "123456", "0123456789ABCDEF", "12345678901234567890", "ABCDEFGH"
//   - counting down to 0 or 1: "87654321", "9876543210"
//   - a PCI address, which is what the kernel gives its root hubs: "0000:00:14.0"
//   - words that say that there is none: "None", "N/A", "Default string",
//     "Serial Number", "To be filled by O.E.M."
//
// A serial that several devices share without any of these marks is told by
// their being there together, not here.
func PlaceholderSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if IsPCIAddress(s) {
		return true
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, s)
	if slices.Contains(noSerial, s) {
		return true
	}
	for _, label := range []string{"serialnumber", "serial", "sn", "0x"} {
		if rest, ok := strings.CutPrefix(s, label); ok {
			s = rest
			break
		}
	}
	runes := []rune(s)
	return len(runes) < 3 ||
		strings.Trim(s, string(runes[0])) == "" ||
		strings.TrimLeft(s, "0") == "1" ||
		counts(s)
}

// noSerial holds the words, reduced to their letters and digits.
var noSerial = []string{
	"blank", "default", "defaultserial", "defaultstring", "demo", "dummy", "empty", "example", "invalid",
	"iserial", "iserialnumber", "none", "noserial", "noserialnumber", "notapplicable", "notavailable",
	"notdefined", "notset", "notspecified", "null", "oem", "sample", "serial", "serialno", "serialnum",
	"serialnumber", "string", "systemserialnumber", "test", "tobefilled", "tobefilledbyoem", "undefined",
	"unknown", "usbserial", "xxxserial",
}

// countings holds what serials count along.
var countings = []string{"0123456789", "1234567890", "0123456789abcdef", "123456789abcdef0", "abcdefghijklmnopqrstuvwxyz"}

// counts reports whether s counts up from the start of one of the countings,
// beginning anew at its end, or down to its start.
func counts(s string) bool {
	down := []rune(s)
	slices.Reverse(down)
	for _, c := range countings {
		repeated := strings.Repeat(c, len(s)/len(c)+1)
		if strings.HasPrefix(repeated, s) || strings.HasPrefix(repeated, string(down)) {
			return true
		}
	}
	return false
}
