package config

import "slices"

// matchTable is the keys of match; excludeTable those that select.
var (
	matchTable = table[Match]{keys: append(selectKeys(),
		key[Match]{name: "vfio", read: func(v value, m *Match) { m.VFIO = v.boolean() }},
		key[Match]{name: "container_path", read: func(v value, m *Match) { m.ContainerPath = v.variables(nodePath) }},
		key[Match]{name: "permissions", read: func(v value, m *Match) { m.Permissions = v.permissions() }},
		key[Match]{name: "required", read: func(v value, m *Match) { m.Required = v.boolean() }},
	)}
	excludeTable = table[Match]{keys: selectKeys()}
)

func selectKeys() []key[Match] {
	return []key[Match]{
		{name: "glob", read: func(v value, m *Match) { m.Glob = v.values(nodeGlob) }},
		{name: "usb", read: func(v value, m *Match) { m.USB = v.conditions(usbTable) }, table: usbTable},
		{name: "pci", read: func(v value, m *Match) { m.PCI = v.conditions(pciTable) }, table: pciTable},
	}
}

// conditions of a usb or pci table, by their keys.
type conditions = map[string]Values

var usbTable = table[conditions]{keys: []key[conditions]{
	condition("id", hexPair("a USB ID", "product", "10c4:ea60")),
	condition("vendor", hexID("a hexadecimal ID", 4, "10c4")),
	condition("product", hexID("a hexadecimal ID", 4, "ea60")),
	condition("serial", plain),
	condition("manufacturer", plain),
	condition("product_name", plain),
	condition("class", hexID("a USB class", 2, "e0")),
	condition("interface_class", hexID("a USB class", 2, "0e")),
	condition("interface", number),
	condition("port", plain),
	condition("path", plain),
	condition("speed", plain),
}}

var pciTable = table[conditions]{keys: []key[conditions]{
	condition("id", hexPair("a PCI ID", "device", "10de:2204")),
	condition("vendor", hexID("a hexadecimal ID", 4, "10de")),
	condition("device", hexID("a hexadecimal ID", 4, "2204")),
	condition("subsystem_id", hexPair("a PCI ID", "device", "1028:1fe2")),
	condition("class", pciClass),
	condition("revision", hexID("a PCI revision", 2, "a1")),
	condition("driver", plain),
	condition("address", pciAddress),
	condition("slot", pciSlot),
	condition("iommu_group", number),
	condition("sriov", oneOfKind("pf", "vf", "none")),
	condition("pf", plain),
	condition("vf", number),
}}

func condition(name string, k kind) key[conditions] {
	return key[conditions]{name: name, read: func(v value, into *conditions) { (*into)[name] = v.values(k) }}
}

// USBKeys lists the keys of a usb table, sorted: those of Match.USB, and the
// variables "usb.KEY".
func USBKeys() []string { return slices.Sorted(slices.Values(usbTable.names())) }

// PCIKeys lists the keys of a pci table, sorted: those of Match.PCI, and the
// variables "pci.KEY".
func PCIKeys() []string { return slices.Sorted(slices.Values(pciTable.names())) }

func (v value) conditions(t table[conditions]) conditions {
	c := make(conditions)
	readTable(v, t, &c)
	return c
}

// matches is v as one match or a list of them.
func (v value) matches(t table[Match]) []Match {
	var out []Match
	for _, e := range v.tables("glob") {
		m := Match{Place: e.place}
		readTable(e, t, &m)
		switch vfio := e.child("vfio"); {
		case m.VFIO && !e.has("pci"):
			vfio.report("true without pci: want both", "pci = {} is any PCI function")
		case m.VFIO && e.has("glob"):
			vfio.report("true with glob: want one of them", "vfio = true selects the VFIO nodes of the functions, whatever their numbers are")
		case m.VFIO && e.has("usb"):
			vfio.report("true with usb: want it with pci alone", "a USB device has no VFIO nodes")
		case !e.has("glob") && !e.has("usb") && !e.has("pci"):
			e.report("selects everything: want at least one of glob, usb and pci", "usb = {} is any USB device")
		}
		out = append(out, m)
	}
	return out
}
