package device

import (
	"slices"
	"strconv"
	"strings"
)

// Attribute is an attribute of hardware that a match can test and a variable can
// insert: match.usb.serial and ${usb.serial}. Attributes is the only list of them.
type Attribute struct {
	// Table is "usb", "pci", "net" or "mdev".
	Table string
	// Key is the key of the attribute in the table.
	Key string
	// About is the thing that has the attribute.
	About Subject
	Kind  ValueKind
	// Words are the possible values of a WordValue.
	Words   []string
	Example string
	Help    string
	// OnlyVariable is set if no match can test the attribute, because another key does. It has no
	// Example and no Help.
	OnlyVariable bool
}

// Subject is the kind of thing that has an attribute.
type Subject byte

// The subjects.
const (
	OfHardware Subject = iota
	OfInterface
	OfNet
)

// ValueKind is the syntax of values.
type ValueKind byte

// The kinds of values.
const (
	TextValue    ValueKind = iota
	IDValue                // four hexadecimal digits
	PairValue              // two IDs, separated by a colon
	ByteValue              // two hexadecimal digits
	ClassValue             // a PCI class, compared by prefix
	AddressValue           // a PCI address
	SlotValue              // a PCI address without its function
	NumberValue            // decimal
	WordValue              // one of Words
)

// IsHexadecimal reports whether values of the kind are hexadecimal numbers.
func (k ValueKind) IsHexadecimal() bool { return k == IDValue || k == ByteValue || k == ClassValue }

var attributes = slices.Concat(
	table("usb", usbKeys),
	table("pci", pciKeys),
	table("net", netKeys),
	table("mdev", mdevKeys),
)

var pciKeys = []Attribute{
	key("id", PairValue, "10de:2204", "vendor and device"),
	variable("vendor", IDValue),
	variable("device", IDValue),
	key("subsystem_id", PairValue, "1028:1fe2", "vendor and device of the card"),
	key("class", ClassValue, "0302", "class code or its prefix: two, four or six digits"),
	key("revision", ByteValue, "a1", "two digits"),
	key("address", AddressValue, "0000:3b:00.0", "with the domain"),
	key("slot", SlotValue, "0000:3b:00", "the address without its function"),
	variable("iommu_group", NumberValue),
	key("sriov", WordValue, "vf", "physical, virtual or sub-function, or neither", "pf", "vf", "sf", "none"),
	key("pf", TextValue, "ens1f0", "of a virtual or sub-function: address or network interface of its physical one"),
	key("vf", NumberValue, "0", "of a virtual or sub-function: its number there, decimal"),
}

var netKeys = []Attribute{
	key("name", TextValue, "can0", "name of the interface"),
	key("type", TextValue, "can", "kind of link: ether, can, infiniband, ..."),
}

var mdevKeys = []Attribute{
	key("type", TextValue, "nvidia-222", "directory of its type"),
	variable("name", TextValue),
	key("uuid", TextValue, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "UUID of the mediated device"),
	variable("iommu_group", NumberValue),
}

// key returns a key of a match, whose value is also a variable. words are the values of a WordValue.
func key(name string, kind ValueKind, example, help string, words ...string) Attribute {
	return Attribute{
		Key:     name,
		Kind:    kind,
		Example: example,
		Help:    help,
		Words:   words,
	}
}

// variable returns an attribute that no match can test.
func variable(name string, kind ValueKind) Attribute {
	return Attribute{
		Key:          name,
		Kind:         kind,
		OnlyVariable: true,
	}
}

// ofInterface makes a key of a USB device a key of its interfaces.
func ofInterface(a Attribute) Attribute {
	a.About = OfInterface
	return a
}

// table returns the keys of a table.
func table(name string, keys []Attribute) []Attribute {
	for i := range keys {
		keys[i].Table = name
		if name == "net" {
			keys[i].About = OfNet
		}
	}
	return keys
}

// Value returns the value of hardware, or an empty string if it has none. A partition of a GPU has the
// attributes of the GPU. Nothing else is inherited from the hardware above.
func (a *Attribute) Value(h *Hardware) string {
	switch a.Table {
	case "usb":
		if h.USB != nil {
			return h.usbValue(a.Key)
		}
	case "pci":
		if h.IsPartition() {
			h = h.Function()
		}
		if h.PCI != nil {
			return h.PCI.value(a.Key)
		}
	case "mdev":
		if h.MDev != nil {
			return h.MDev.value(a.Key)
		}
	}
	return ""
}

// value returns the value of a key of the function.
func (p *PCI) value(key string) string {
	switch key {
	case "id":
		return pair(p.Vendor, p.Device)
	case "vendor":
		return p.Vendor
	case "device":
		return p.Device
	case "subsystem_id":
		return pair(p.SubVendor, p.SubDevice)
	case "class":
		return p.Class
	case "revision":
		return p.Revision
	case "address":
		return p.Address
	case "slot":
		return slotOf(p)
	case "iommu_group":
		return p.IOMMUGroup
	case "sriov":
		return p.SRIOV
	case "pf":
		return p.PF
	case "vf":
		return numberOfVF(p)
	}
	return ""
}

// value returns the value of a key of the mediated device.
func (m *MDev) value(key string) string {
	switch key {
	case "type":
		return m.Type
	case "name":
		return m.Name
	case "uuid":
		return m.UUID
	case "iommu_group":
		return m.IOMMUGroup
	}
	return ""
}

// netValue returns the value of a key of a network interface, and an empty string for a node.
func (n *Node) netValue(key string) string {
	switch {
	case n.Net == nil:
		return ""
	case key == "type":
		return n.Net.Type
	}
	return n.Path
}

// slotOf returns the address of a function without its last number. A sub-function has the slot of its
// physical function.
func slotOf(p *PCI) string {
	address := p.Address
	if p.SRIOV == "sf" {
		address = p.PF
	}
	slot, _, _ := strings.Cut(address, ".")
	return slot
}

// numberOfVF returns the number of a virtual function or sub-function at its physical function.
func numberOfVF(p *PCI) string {
	if p.PF == "" || p.VF < 0 {
		return ""
	}
	return strconv.Itoa(p.VF)
}

// Attributes returns the attributes in the order of the language. Nobody may change them.
func Attributes() []Attribute { return attributes }

// FindAttribute returns the attribute with a name such as "usb.serial".
func FindAttribute(name string) (a *Attribute, ok bool) {
	table, key, _ := strings.Cut(name, ".")
	i := slices.IndexFunc(attributes, func(a Attribute) bool {
		return a.Key == key && a.Table == table
	})
	if i < 0 {
		return nil, false
	}
	return &attributes[i], true
}

// Name returns the name of the attribute, "usb.serial".
func (a *Attribute) Name() string { return a.Table + "." + a.Key }

// Of returns the values of hardware, or of its node n, which may be nil. A node of a USB interface has
// the values of its interface, and a node of the whole device has the values of all interfaces. An
// attribute of the table net belongs to the node, or to all network interfaces of the hardware if n
// is nil.
func (a *Attribute) Of(h *Hardware, n *Node) []string {
	var values []string
	switch {
	case a.About == OfNet && n != nil:
		values = []string{n.netValue(a.Key)}
	case h == nil:
		return nil
	case a.About == OfNet:
		for _, n := range h.Nets {
			values = append(values, n.netValue(a.Key))
		}
	case a.About == OfInterface:
		for _, i := range h.InterfacesOf(n) {
			values = append(values, i.value(a.Key))
		}
	default:
		values = []string{a.Value(h)}
	}
	if len(values) == 1 && values[0] != "" {
		return values
	}
	return distinct(values)
}

// distinct returns the values that are not empty, each once.
func distinct(values []string) []string {
	var all []string
	for _, v := range values {
		if v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// pair returns an ID of two numbers, or an empty string unless both exist.
func pair(vendor, product string) string {
	if vendor == "" || product == "" {
		return ""
	}
	return vendor + ":" + product
}
