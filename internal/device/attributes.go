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
	Key  string
	Kind ValueKind
	// Words are the possible values of a WordValue.
	Words   []string
	Example string
	Help    string
	// OnlyVariable is set if no match can test the attribute, because another key does.
	OnlyVariable bool
	// Hardware returns the value of hardware, or an empty string if it has none. It is nil if
	// Interface or Net is set.
	Hardware func(*Hardware) string
	// Interface returns the value of an interface of a USB device.
	Interface func(USBInterface) string
	// Net returns the value of a network interface.
	Net func(*Node) string
}

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

var attributes = []Attribute{
	ofUSB("id", PairValue, "10c4:ea60", "vendor and product", func(u *USB) string {
		return pair(u.Vendor, u.Product)
	}),
	onlyVariable(ofUSB("vendor", IDValue, "10c4", "four digits", func(u *USB) string {
		return u.Vendor
	})),
	onlyVariable(ofUSB("product", IDValue, "ea60", "four digits", func(u *USB) string {
		return u.Product
	})),
	ofUSB("serial", TextValue, "A1B2C3", "serial number reported by the device", func(u *USB) string {
		return strings.TrimSpace(u.Serial)
	}),
	onlyVariable(ofUSB("manufacturer", TextValue, "Silicon Labs", "reported by the device", func(u *USB) string {
		return strings.TrimSpace(u.Manufacturer)
	})),
	ofUSB("product_name", TextValue, "CP2102N", "reported by the device", func(u *USB) string {
		return strings.TrimSpace(u.ProductName)
	}),
	ofUSB("class", ByteValue, "e0", "class of the device, two digits", func(u *USB) string {
		return u.Class
	}),
	ofInterface(
		"interface_class",
		ByteValue,
		"0e",
		"class of an interface, two digits",
		func(i USBInterface) string {
			return i.Class
		},
	),
	ofInterface("interface", NumberValue, "0", "number of an interface, decimal", func(i USBInterface) string {
		return strconv.Itoa(i.Number)
	}),
	ofUSB("port", TextValue, "1-1.4", "kernel numbering in this boot", func(u *USB) string {
		return u.Port
	}),
	{
		Table:    "usb",
		Key:      "path",
		Example:  "0000:00:14.0:1.4",
		Help:     "controller and chain of ports, the same in every boot",
		Hardware: Place,
	},
	ofUSB("speed", TextValue, "480", "Mbit/s", func(u *USB) string {
		return u.Speed
	}),

	ofPCI("id", PairValue, "10de:2204", "vendor and device", func(p *PCI) string {
		return pair(p.Vendor, p.Device)
	}),
	onlyVariable(ofPCI("vendor", IDValue, "10de", "four digits", func(p *PCI) string {
		return p.Vendor
	})),
	onlyVariable(ofPCI("device", IDValue, "2204", "four digits", func(p *PCI) string {
		return p.Device
	})),
	ofPCI("subsystem_id", PairValue, "1028:1fe2", "vendor and device of the card", func(p *PCI) string {
		return pair(p.SubVendor, p.SubDevice)
	}),
	ofPCI(
		"class",
		ClassValue,
		"0302",
		"class code or its prefix: two, four or six digits",
		func(p *PCI) string {
			return p.Class
		},
	),
	ofPCI("revision", ByteValue, "a1", "two digits", func(p *PCI) string {
		return p.Revision
	}),
	ofPCI("address", AddressValue, "0000:3b:00.0", "with the domain", func(p *PCI) string {
		return p.Address
	}),
	ofPCI("slot", SlotValue, "0000:3b:00", "the address without its function", slotOf),
	onlyVariable(ofPCI("iommu_group", NumberValue, "12", "decimal", func(p *PCI) string {
		return p.IOMMUGroup
	})),
	withWords([]string{"pf", "vf", "sf", "none"}, ofPCI(
		"sriov",
		WordValue,
		"vf",
		"physical, virtual or sub-function, or neither",
		func(p *PCI) string {
			return p.SRIOV
		},
	)),
	ofPCI(
		"pf",
		TextValue,
		"ens1f0",
		"of a virtual or sub-function: address or network interface of its physical one",
		func(p *PCI) string {
			return p.PF
		},
	),
	ofPCI("vf", NumberValue, "0", "of a virtual or sub-function: its number there, decimal", numberOfVF),

	ofNet("name", "can0", "name of the interface", func(n *Node) string {
		return n.Path
	}),
	ofNet("type", "can", "kind of link: ether, can, infiniband, ...", func(n *Node) string {
		return n.Net.Type
	}),

	ofMDev("type", TextValue, "nvidia-222", "directory of its type", func(m *MDev) string {
		return m.Type
	}),
	onlyVariable(ofMDev("name", TextValue, "GRID T4-1Q", "name of the type", func(m *MDev) string {
		return m.Name
	})),
	ofMDev(
		"uuid",
		TextValue,
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1001",
		"UUID of the mediated device",
		func(m *MDev) string {
			return m.UUID
		},
	),
	onlyVariable(ofMDev("iommu_group", NumberValue, "12", "decimal", func(m *MDev) string {
		return m.IOMMUGroup
	})),
}

// newAttribute returns an attribute that has no values yet.
func newAttribute(table, key string, kind ValueKind, example, help string) Attribute {
	return Attribute{
		Table:   table,
		Key:     key,
		Kind:    kind,
		Example: example,
		Help:    help,
	}
}

// ofUSB returns an attribute of a USB device.
func ofUSB(key string, kind ValueKind, example, help string, get func(*USB) string) Attribute {
	a := newAttribute("usb", key, kind, example, help)
	a.Hardware = func(h *Hardware) string {
		if h.USB == nil {
			return ""
		}
		return get(h.USB)
	}
	return a
}

// ofInterface returns an attribute of the interfaces of a USB device.
func ofInterface(key string, kind ValueKind, example, help string, get func(USBInterface) string) Attribute {
	a := newAttribute("usb", key, kind, example, help)
	a.Interface = get
	return a
}

// ofPCI returns an attribute of a PCI function. A USB or mediated device has the attribute of the
// nearest function above, and a partition of a GPU has the attribute of the GPU.
func ofPCI(key string, kind ValueKind, example, help string, get func(*PCI) string) Attribute {
	a := newAttribute("pci", key, kind, example, help)
	a.Hardware = func(h *Hardware) string {
		f := h.Function()
		if f == nil {
			return ""
		}
		return get(f.PCI)
	}
	return a
}

// ofMDev returns an attribute of a mediated device.
func ofMDev(key string, kind ValueKind, example, help string, get func(*MDev) string) Attribute {
	a := newAttribute("mdev", key, kind, example, help)
	a.Hardware = func(h *Hardware) string {
		if h.MDev == nil {
			return ""
		}
		return get(h.MDev)
	}
	return a
}

// ofNet returns an attribute of a network interface.
func ofNet(key, example, help string, get func(*Node) string) Attribute {
	a := newAttribute("net", key, TextValue, example, help)
	a.Net = func(n *Node) string {
		if n.Net == nil {
			return ""
		}
		return get(n)
	}
	return a
}

// onlyVariable marks an attribute that no match can test.
func onlyVariable(a Attribute) Attribute {
	a.OnlyVariable = true
	return a
}

// withWords adds the possible values to an attribute.
func withWords(words []string, a Attribute) Attribute {
	a.Words = words
	return a
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

// Attributes returns the attributes in the order of the language.
func Attributes() []Attribute { return slices.Clone(attributes) }

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
	add := func(v string) {
		if v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if a.Net != nil && n != nil {
		add(a.Net(n))
		return values
	}
	if h == nil {
		return nil
	}
	switch {
	case a.Net != nil:
		for _, n := range h.Nets {
			add(a.Net(n))
		}
	case a.Interface != nil:
		for _, i := range h.InterfacesOf(n) {
			add(a.Interface(i))
		}
	default:
		add(a.Hardware(h))
	}
	return values
}

// pair returns an ID of two numbers, or an empty string unless both exist.
func pair(vendor, product string) string {
	if vendor == "" || product == "" {
		return ""
	}
	return vendor + ":" + product
}
