package sysfs

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	pciDevices       = "bus/pci/devices"
	auxiliaryDevices = "bus/auxiliary/devices"
)

// PCI lists the PCI functions of the host and their sub-functions; the links of
// known ones are not read again. The error wraps fs.ErrNotExist on a host without PCI.
func (fs FS) PCI(known map[string]Entry) ([]Entry, error) {
	functions, err := fs.entries(pciDevices, known, nil)
	parts, partsErr := fs.entries(auxiliaryDevices, known, IsSubFunction)
	if errors.Is(partsErr, unix.ENOENT) {
		partsErr = nil
	}
	for _, e := range parts {
		if device.IsPCIAddress(path.Base(path.Dir(e.Path))) {
			functions = append(functions, e)
		}
	}
	return functions, errors.Join(err, partsErr)
}

// IsSubFunction reports whether name is that of a sub-function, "mlx5_core.sf.4": driver,
// kind and a number that counts over the machine
// (Documentation/driver-api/auxiliary_bus.rst).
func IsSubFunction(name string) bool {
	_, number, ok := strings.Cut(name, ".sf.")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// SubFunction reads the number of a sub-function at its PCI function, -1 if there is none,
// and its driver. Gone reports the error of a removed one.
func (fs FS) SubFunction(dir string) (number int, driver string, err error) {
	driver, driverErr := fs.Driver(dir)
	number, err = fs.number(dir, "sfnum")
	if number < 0 && err == nil {
		_, err = fs.device(auxiliaryDevices, path.Base(dir))
	}
	return number, driver, errors.Join(driverErr, err)
}

// PCIFunction is a PCI function, with the attributes that do not change while it has its
// driver (Documentation/ABI/testing/sysfs-bus-pci).
type PCIFunction struct {
	device.PCI     // without identifiers; not of SR-IOV unless it can have virtual functions
	NUMA       int // -1 is unknown
}

// PCIFunction reads one function, and its modalias, which has the class and the identifiers
// of vendor, device and subsystem. It returns the readable attributes and the errors of the
// others; Gone reports the error of a removed function.
func (fs FS) PCIFunction(dir string) (f PCIFunction, modalias string, err error) {
	f.PCI = device.PCI{Address: path.Base(dir), SRIOV: "none", VF: -1}
	var errs [6]error
	fs.enter(dir)
	defer fs.leave()
	f.Revision, errs[0] = fs.attr(dir, "revision")
	f.Revision = strings.TrimPrefix(f.Revision, "0x")
	f.Driver, errs[1] = fs.Driver(dir)
	f.IOMMUGroup, errs[2] = fs.linkBase(dir, "iommu_group")
	f.NUMA, errs[3] = fs.NUMANode(dir)
	totalVFs, err := fs.number(dir, "sriov_totalvfs")
	if errs[4] = err; totalVFs > 0 {
		f.SRIOV = "pf"
	}
	// The kernel takes a removed function from the bus, and then removes its attributes, of
	// which this one is the last.
	if modalias, errs[5] = fs.attr(dir, "modalias"); modalias == "" && errs[5] == nil {
		_, errs[5] = fs.device(pciDevices, path.Base(dir))
	}
	return f, modalias, errors.Join(errs[:]...)
}

// VirtFns returns the numbers of the existing virtual functions of a physical function,
// by directory. The numbers are those of the links virtfn0, virtfn1, …
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
		target, err := fs.link(dir, name)
		if target != "" {
			fns[path.Join(dir, target)] = n
		}
		errs = append(errs, err)
	}
	return fns, errors.Join(errs...)
}

// MDevs lists the mediated devices of the host; the links of known ones are not read
// again. The error wraps fs.ErrNotExist on a host without them.
func (fs FS) MDevs(known map[string]Entry) ([]Entry, error) {
	return fs.entries("bus/mdev/devices", known, nil)
}

// MDev reads one mediated device
// (Documentation/driver-api/vfio-mediated-device.rst). It returns the readable
// attributes and the errors of the others.
func (fs FS) MDev(dir string) (device.MDev, error) {
	m := device.MDev{UUID: path.Base(dir)}
	var typeErr, nameErr, groupErr error
	if m.Type, typeErr = fs.linkBase(dir, "mdev_type"); m.Type != "" {
		// Types are in the parent device (create_mdev_supported_type in
		// drivers/vfio/mdev/mdev_sysfs.c).
		m.Name, nameErr = fs.attr(path.Dir(dir)+"/mdev_supported_types/"+m.Type, "name")
	}
	m.IOMMUGroup, groupErr = fs.linkBase(dir, "iommu_group")
	return m, errors.Join(typeErr, nameErr, groupErr)
}
