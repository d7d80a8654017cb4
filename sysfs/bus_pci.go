package sysfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const pciDevices = "bus/pci/devices"

// PCI lists the PCI functions of the host by address. The error wraps
// fs.ErrNotExist on a host without PCI.
func (fs FS) PCI() ([]Entry, error) { return fs.entries(pciDevices) }

// PCIAgain is PCI for a caller that knows some functions, by address: it reads which
// exist, but not the directories of known ones.
func (fs FS) PCIAgain(known map[string]Entry) ([]Entry, error) {
	return fs.entriesAgain(pciDevices, known)
}

// PCIIDs are the identifiers of a PCI function in lower-case hexadecimal
// digits: six for the class (with subclass and programming interface), four
// for the others.
type PCIIDs struct {
	Vendor, Device, SubVendor, SubDevice, Class string
}

// PCIFunction are the attributes of a PCI function
// (Documentation/ABI/testing/sysfs-bus-pci).
type PCIFunction struct {
	PCIIDs
	Revision   string // two hexadecimal digits
	Driver     string
	IOMMUGroup string
}

// PCIFunction reads the attributes of one function. It returns the readable attributes
// and the errors of the others.
func (fs FS) PCIFunction(dir string) (PCIFunction, error) {
	var f PCIFunction
	var errs []error
	for _, a := range []struct {
		name   string
		digits int
		to     *string
	}{
		{"vendor", 4, &f.Vendor},
		{"device", 4, &f.Device},
		{"subsystem_vendor", 4, &f.SubVendor},
		{"subsystem_device", 4, &f.SubDevice},
		{"class", 6, &f.Class},
		{"revision", 2, &f.Revision},
	} {
		s, err := fs.attr(dir, a.name)
		if err == nil && s != "" {
			*a.to, err = hexDigits(s, a.digits)
			if err != nil {
				err = fmt.Errorf("%s: %w", a.name, err)
			}
		}
		errs = append(errs, err)
	}
	var err error
	f.Driver, err = fs.Driver(dir)
	errs = append(errs, err)
	f.IOMMUGroup, err = fs.linkBase(dir, "iommu_group")
	return f, errors.Join(append(errs, err)...)
}

// PCIModalias returns the attribute from which ghw takes the identifiers.
func (fs FS) PCIModalias(dir string) (string, error) { return fs.attr(dir, "modalias") }

// PhysFn returns the address of the physical function of a virtual one, otherwise "".
func (fs FS) PhysFn(dir string) (string, error) { return fs.linkBase(dir, "physfn") }

// TotalVFs returns the maximum number of virtual functions of a physical function,
// otherwise -1.
func (fs FS) TotalVFs(dir string) (int, error) { return fs.number(dir, "sriov_totalvfs") }

// VirtFns returns the numbers of the existing virtual functions of a physical function,
// by address. The numbers are those of the links virtfn0, virtfn1, …
func (fs FS) VirtFns(dir string) (map[string]int, error) {
	names, err := fs.names(dir)
	if err != nil {
		return nil, err
	}
	fns := make(map[string]int)
	var errs []error
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, "virtfn")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 {
			continue
		}
		addr, err := fs.linkBase(dir, name)
		if addr != "" {
			fns[addr] = n
		}
		errs = append(errs, err)
	}
	return fns, errors.Join(errs...)
}

// ParsePCIModalias parses the identifiers in a modalias attribute such as
// "pci:v000010DEd00001C82sv00001043sd00008613bc03sc00i00" (pci_uevent in
// drivers/pci/pci-driver.c).
func ParsePCIModalias(s string) (PCIIDs, bool) {
	rest, ok := strings.CutPrefix(s, "pci:")
	if !ok {
		return PCIIDs{}, false
	}
	field := func(key string, digits, keep int) string {
		r, found := strings.CutPrefix(rest, key)
		if !ok || !found || len(r) < digits || !isHex(r[:digits]) {
			ok = false
			return ""
		}
		rest = r[digits:]
		return strings.ToLower(r[digits-keep : digits])
	}
	ids := PCIIDs{
		Vendor:    field("v", 8, 4),
		Device:    field("d", 8, 4),
		SubVendor: field("sv", 8, 4),
		SubDevice: field("sd", 8, 4),
		Class:     field("bc", 2, 2) + field("sc", 2, 2) + field("i", 2, 2),
	}
	if !ok {
		return PCIIDs{}, false
	}
	return ids, true
}

// hexDigits turns "0x8086" into "8086", with at least that many digits.
func hexDigits(s string, digits int) (string, error) {
	d := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "0x"))
	if d == "" || !isHex(d) {
		return "", fmt.Errorf("%q is not a hexadecimal number", s)
	}
	if len(d) < digits {
		d = strings.Repeat("0", digits-len(d)) + d
	}
	return d, nil
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}
