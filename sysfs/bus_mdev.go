package sysfs

import (
	"errors"
	"path"
)

const mdevDevices = "bus/mdev/devices"

// MDevs lists the mediated devices of the host by UUID. The error wraps fs.ErrNotExist
// on a host without them.
func (fs FS) MDevs() ([]Entry, error) { return fs.entries(mdevDevices) }

// MDev are the attributes of a mediated device
// (Documentation/driver-api/vfio-mediated-device.rst).
type MDev struct {
	Type       string // the directory of its type, "nvidia-222"
	Name       string // name of the type; "" if it has none
	IOMMUGroup string
}

// MDev reads one mediated device. It returns the readable attributes and the errors of
// the others.
func (fs FS) MDev(dir string) (MDev, error) {
	var m MDev
	var typeErr, nameErr, groupErr error
	m.Type, typeErr = fs.linkBase(dir, "mdev_type")
	if m.Type != "" {
		// Types are in the parent device (create_mdev_supported_type in
		// drivers/vfio/mdev/mdev_sysfs.c).
		m.Name, nameErr = fs.attr(path.Dir(dir)+"/mdev_supported_types/"+m.Type, "name")
	}
	m.IOMMUGroup, groupErr = fs.linkBase(dir, "iommu_group")
	return m, errors.Join(typeErr, nameErr, groupErr)
}
