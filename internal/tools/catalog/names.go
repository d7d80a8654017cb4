package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jaypipes/pcidb"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Dirs are the directories where distributions have pci.ids and usb.ids. An image from scratch has
// none of them: names then only come from the devices themselves.
var Dirs = []string{"/usr/share/hwdata", "/usr/share/misc", "/var/lib/usbutils"}

// Names are the names of vendors and products. A nil Names has no names.
type Names map[key]string

// key is the ID of a vendor ("10c4") or product ("10c4:ea60").
type key struct {
	bus device.Bus
	id  string
}

// ReadNames reads the names of the hardware of a snapshot from the first pci.ids and
// usb.ids in some directories. All other names are dropped: the files have 60,000. A file
// that cannot be read has no names; the error says why.
func ReadNames(snap *device.Snapshot, dirs []string) (Names, error) {
	names := Names{}
	var errs []error
	for _, bus := range []device.Bus{device.PCIBus, device.USBBus} {
		file := idsFile(dirs, bus)
		if file == "" {
			continue
		}
		db, err := readIDs(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, h := range snap.Hardware {
			if h.Bus == bus {
				names.add(h, db)
			}
		}
	}
	return names, errors.Join(errs...)
}

// idsFile returns the first file with the names of a bus. It is empty if no directory has one.
func idsFile(dirs []string, bus device.Bus) string {
	for _, dir := range dirs {
		for _, suffix := range []string{".ids", ".ids.gz"} {
			file := filepath.Join(dir, string(bus)+suffix)
			// A file that cannot be read is returned as well, so that the error is reported.
			_, err := os.Stat(file)
			if !errors.Is(err, fs.ErrNotExist) {
				return file
			}
		}
	}
	return ""
}

// readIDs reads a file with the library for pci.ids. The file usb.ids has the same format,
// with more sections after the vendors.
func readIDs(file string) (db *pcidb.DB, err error) {
	// The library slices each line without a look at its length.
	defer func() {
		if recover() != nil {
			db = nil
			err = fmt.Errorf("%q is not in the format of pci.ids", file)
		}
	}()
	// Without the option, an environment variable allows the library to fetch a missing file
	// from the network.
	offline := false
	db, err = pcidb.New(pcidb.WithPath(file), &pcidb.WithOption{EnableNetworkFetch: &offline})
	if err != nil {
		return nil, fmt.Errorf("names of hardware: %w", err)
	}
	return db, nil
}

// add adds the names of hardware. An ID that the file does not have adds no name.
func (names Names) add(h *device.Hardware, db *pcidb.DB) {
	vendor, product := ids(h)
	if v := db.Vendors[vendor]; v != nil {
		// A clone does not keep the text of the file in memory.
		names[key{h.Bus, vendor}] = strings.Clone(strings.TrimSpace(v.Name))
	}
	if p := db.Products[vendor+product]; p != nil {
		names[key{h.Bus, vendor + ":" + product}] = strings.Clone(strings.TrimSpace(p.Name))
	}
}

// Of returns the vendor and product of hardware, empty where unknown. The strings of a USB
// device precede the files, which only name the chip that many products share.
func (names Names) Of(h *device.Hardware) (vendor, product string) {
	if h.IsPartition() {
		return names.Of(h.Parent)
	}
	vendorID, productID := ids(h)
	vendor = names[key{h.Bus, vendorID}]
	product = names[key{h.Bus, vendorID + ":" + productID}]
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

// withoutVendor returns the name of a product without the vendor's name in front of it.
func withoutVendor(product, vendor string) string {
	return strings.TrimPrefix(product, vendor+" ")
}

// FullName returns the vendor and product of a device for people. It is empty if both are unknown.
func (d Device) FullName() string {
	return strings.TrimSpace(d.Vendor + " " + withoutVendor(d.Product, d.Vendor))
}
