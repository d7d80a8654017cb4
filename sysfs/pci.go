package sysfs

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// PCI lists the PCI functions of the host by address; the directories of known ones are
// not read again. The error wraps fs.ErrNotExist on a host without PCI.
func (fs FS) PCI(known map[string]Entry) ([]Entry, error) {
	return fs.entries("bus/pci/devices", known)
}

// PCIFunction reads the attributes of one function and its links
// (Documentation/ABI/testing/sysfs-bus-pci), without those of virtual functions. It
// returns the readable ones and the errors of the others.
func (fs FS) PCIFunction(dir string) (device.PCI, error) {
	p := device.PCI{Address: path.Base(dir)}
	var errs []error
	for _, a := range []struct {
		name   string
		digits int
		to     *string
	}{
		{"vendor", 4, &p.Vendor},
		{"device", 4, &p.Device},
		{"subsystem_vendor", 4, &p.SubVendor},
		{"subsystem_device", 4, &p.SubDevice},
		{"class", 6, &p.Class},
		{"revision", 2, &p.Revision},
	} {
		s, err := fs.attr(dir, a.name)
		if err == nil && s != "" {
			*a.to, err = hexDigits(a.name, s, a.digits)
		}
		errs = append(errs, err)
	}
	var driverErr, groupErr error
	p.Driver, driverErr = fs.Driver(dir)
	p.IOMMUGroup, groupErr = fs.linkBase(dir, "iommu_group")
	return p, errors.Join(append(errs, driverErr, groupErr)...)
}

// PCIModalias returns the attribute from which ghw takes the identifiers.
func (fs FS) PCIModalias(dir string) (string, error) { return fs.attr(dir, "modalias") }

// PhysFn returns the address of the physical function of a virtual one, otherwise "".
func (fs FS) PhysFn(dir string) (string, error) { return fs.linkBase(dir, "physfn") }

// HasVFs reports whether a function is a physical one that can have virtual functions.
func (fs FS) HasVFs(dir string) (bool, error) {
	n, err := fs.number(dir, "sriov_totalvfs")
	return n > 0, err
}

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
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 {
			continue
		}
		address, err := fs.linkBase(dir, name)
		if address != "" {
			fns[address] = n
		}
		errs = append(errs, err)
	}
	return fns, errors.Join(errs...)
}

// hexDigits turns "0x8086" into "8086", with at least that many digits.
func hexDigits(name, s string, digits int) (string, error) {
	d := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "0x"))
	if strings.Trim(d, "0123456789abcdef") != "" || d == "" {
		return "", fmt.Errorf("%s: %q is not a hexadecimal number", name, s)
	}
	return strings.Repeat("0", max(0, digits-len(d))) + d, nil
}
