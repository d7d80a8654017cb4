// Package catalog describes the hardware of a host in the terms of an administrator. List
// lists all of it, Find finds a device by any of its names. Starter makes the resources of
// a starter configuration, For the resource of one device. ReadNames reads the names of
// vendors and products. Only commands use it: no rule of matching is here.
package catalog

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Dirs are the directories where distributions have pci.ids and usb.ids. An image
// from scratch has none of them: only the devices' own strings are left.
var Dirs = []string{"/usr/share/hwdata", "/usr/share/misc", "/var/lib/usbutils"}

// Names are vendors and products.
type Names map[key]string

// key is the ID of a vendor ("10c4") or product ("10c4:ea60").
type key struct {
	bus device.Bus
	id  string
}

// ReadNames reads the names of the hardware of a snapshot from the first pci.ids and
// usb.ids in some directories. Other names are dropped: the files have 60,000.
func ReadNames(snap *device.Snapshot, dirs []string) Names {
	names := Names{}
	for _, h := range snap.Hardware {
		if vendor, product := ids(h); vendor != "" {
			names[key{h.Bus, vendor}], names[key{h.Bus, vendor + ":" + product}] = "", ""
		}
	}
	for _, bus := range []device.Bus{device.PCIBus, device.USBBus} {
		for _, dir := range dirs {
			if text, err := os.ReadFile(filepath.Join(dir, string(bus)+".ids")); err == nil {
				names.parse(bus, string(text))
				break
			}
		}
	}
	return names
}

// parse reads lines "10c4  Silicon Labs" and, below, "\tea60  CP210x". Those of other
// sections begin with upper-case letters.
func (names Names) parse(bus device.Bus, text string) {
	vendor := ""
	for line := range strings.Lines(text) {
		id, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		switch {
		case line[0] != '\t':
			vendor = id
		case strings.HasPrefix(line, "\t\t"):
			ok = false // subsystems
		default:
			id = vendor + ":" + id[1:]
		}
		if _, wanted := names[key{bus, id}]; wanted && ok {
			names[key{bus, id}] = strings.TrimSpace(name)
		}
	}
}

func ids(h *device.Hardware) (vendor, product string) {
	switch {
	case h.USB != nil:
		return h.USB.Vendor, h.USB.Product
	case h.PCI != nil:
		return h.PCI.Vendor, h.PCI.Device
	}
	return "", ""
}

// Of returns the vendor and product of hardware, empty where unknown. The strings of a USB
// device precede the files, which name only the chip that many products share.
func (names Names) Of(h *device.Hardware) (vendor, product string) {
	v, p := ids(h)
	vendor, product = names[key{h.Bus, v}], names[key{h.Bus, v + ":" + p}]
	switch {
	case h.USB != nil:
		if own := strings.TrimSpace(h.USB.Manufacturer); own != "" {
			vendor = own
		}
		if own := strings.TrimSpace(h.USB.ProductName); own != "" {
			product = own
		}
	case h.MDev != nil:
		product = h.MDev.Name
	}
	return vendor, product
}
