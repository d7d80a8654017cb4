package config

import (
	"slices"

	"github.com/generic-dp/generic-dp/pattern"
)

// conditions of a table that names hardware, by their keys.
type conditions = map[string]pattern.Values

// The tables that name hardware. The variables "usb.KEY" and so on have the
// same keys.
var (
	usbTable = table[conditions]{name: "usb", keys: []key[conditions]{
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
	pciTable = table[conditions]{name: "pci", keys: []key[conditions]{
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
	netTable = table[conditions]{name: "net", keys: []key[conditions]{
		condition("name", plain),
		condition("driver", plain),
		condition("type", plain),
	}}
	mdevTable = table[conditions]{name: "mdev", keys: []key[conditions]{
		condition("type", plain),
		condition("name", plain),
		condition("uuid", plain),
		condition("iommu_group", number),
	}}
)

// hardwareTables in the order of the language.
var hardwareTables = []table[conditions]{usbTable, pciTable, netTable, mdevTable}

func condition(name string, k kind) key[conditions] {
	f := conditionForm
	if k.bare {
		f = numberForm
	}
	return key[conditions]{name: name, form: f, read: func(v value, into *conditions) { (*into)[name] = v.values(k) }}
}

// USBKeys lists the keys of a usb table, sorted: those of Match.USB, and the
// variables "usb.KEY".
func USBKeys() []string { return slices.Sorted(slices.Values(usbTable.names())) }

// PCIKeys lists the keys of a pci table, sorted: those of Match.PCI, and the
// variables "pci.KEY".
func PCIKeys() []string { return slices.Sorted(slices.Values(pciTable.names())) }

// NetKeys lists the keys of a net table, sorted: those of Match.Net, and the
// variables "net.KEY".
func NetKeys() []string { return slices.Sorted(slices.Values(netTable.names())) }

// MDevKeys lists the keys of an mdev table, sorted: those of Match.MDev, and
// the variables "mdev.KEY".
func MDevKeys() []string { return slices.Sorted(slices.Values(mdevTable.names())) }

func (v value) conditions(t table[conditions]) conditions {
	c := make(conditions)
	readTable(v, t, &c)
	return c
}
