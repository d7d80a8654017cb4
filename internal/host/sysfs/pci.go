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

// PCI lists the PCI functions of the host and their sub-functions. The error wraps fs.ErrNotExist on a
// host without PCI.
func (fs FS) PCI() ([]Entry, error) {
	functions, err := fs.entries(pciDevices, nil)
	parts, partsErr := fs.entries(auxiliaryDevices, IsSubFunction)
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

// IsSubFunction reports whether name is the name of a sub-function, "mlx5_core.sf.4": driver,
// kind and a number that counts over the machine
// (Documentation/driver-api/auxiliary_bus.rst).
func IsSubFunction(name string) bool {
	_, number, isKind := strings.Cut(name, ".sf.")
	return isKind && device.IsDigits(number)
}

// SubFunction reads the number of a sub-function at its PCI function, or -1 if it has no number,
// and its driver. Gone reports whether the error means that it was removed.
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
	// PCI has no identifiers, and no number of a virtual function: only its physical function has that,
	// see VirtFns.
	device.PCI
	// PFDir is the directory of the physical function of a virtual function.
	PFDir string
	// NUMA is -1 if it is unknown.
	NUMA int
}

// PCIFunction reads one function, and its modalias, which contains the class and the identifiers
// of vendor, device and subsystem. It returns the readable attributes and the errors of the
// others. Gone reports whether the error means that the function was removed.
func (fs FS) PCIFunction(dir string) (f PCIFunction, modalias string, err error) {
	f.PCI = device.PCI{Address: path.Base(dir), SRIOV: "none", VF: -1}
	revision, revisionErr := fs.attr(dir, "revision")
	f.Revision = strings.TrimPrefix(revision, "0x")
	var driverErr, groupErr, numaErr error
	f.Driver, driverErr = fs.Driver(dir)
	f.IOMMUGroup, groupErr = fs.linkBase(dir, "iommu_group")
	f.NUMA, numaErr = fs.NUMANode(dir)
	totalVFs, vfsErr := fs.number(dir, "sriov_totalvfs")
	if totalVFs > 0 {
		f.SRIOV = "pf"
	}
	// The link belongs to the virtual function itself. The kernel announces the physical function only
	// after the last of its virtual functions (sriov_enable in drivers/pci/iov.c).
	physfn, physfnErr := fs.link(dir, "physfn")
	if physfn != "" {
		f.PFDir = path.Join(dir, physfn)
		f.PF = path.Base(physfn)
		f.SRIOV = "vf"
	}
	modalias, err = fs.modalias(dir)
	return f, modalias, errors.Join(revisionErr, driverErr, groupErr, numaErr, vfsErr, physfnErr, err)
}

// modalias reads the modalias of a function. The kernel removes a function from the bus first, then
// its attributes, and this attribute last.
func (fs FS) modalias(dir string) (string, error) {
	modalias, err := fs.attr(dir, "modalias")
	if modalias == "" && err == nil {
		_, err = fs.device(pciDevices, path.Base(dir))
	}
	return modalias, err
}

// VirtFns returns the numbers of the existing virtual functions of a physical function,
// by directory. The links virtfn0, virtfn1, … contain the numbers.
func (fs FS) VirtFns(dir string) (map[string]int, error) {
	targets, err := fs.linksWith(dir, "virtfn")
	numbers := make(map[string]int, len(targets))
	for digits, function := range targets {
		n, parseErr := strconv.Atoi(digits)
		if parseErr == nil && n >= 0 {
			numbers[function] = n
		}
	}
	return numbers, err
}

// MDevs lists the mediated devices of the host. The error wraps fs.ErrNotExist on a host without
// mediated devices.
func (fs FS) MDevs() ([]Entry, error) {
	return fs.entries("bus/mdev/devices", nil)
}

// MDev reads one mediated device
// (Documentation/driver-api/vfio-mediated-device.rst). It returns the readable
// attributes and the errors of the others.
func (fs FS) MDev(dir string) (device.MDev, error) {
	m := device.MDev{UUID: path.Base(dir)}
	var typeErr, nameErr, groupErr error
	m.Type, typeErr = fs.linkBase(dir, "mdev_type")
	if m.Type != "" {
		// Types are in the parent device (create_mdev_supported_type in
		// drivers/vfio/mdev/mdev_sysfs.c).
		typeDir := path.Dir(dir) + "/mdev_supported_types/" + m.Type
		m.Name, nameErr = fs.attr(typeDir, "name")
	}
	m.IOMMUGroup, groupErr = fs.linkBase(dir, "iommu_group")
	return m, errors.Join(typeErr, nameErr, groupErr)
}
