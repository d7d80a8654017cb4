package sysfs

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

const usbDevices = "bus/usb/devices"

// USB lists the USB devices of the host, root hubs ("usb1") and all others ("1-1.4"), and the
// interfaces of their active configurations ("1-1.4:1.0"). The error
// wraps fs.ErrNotExist on a host without USB.
func (fs FS) USB() ([]Entry, error) {
	return fs.entries(usbDevices, nil)
}

// USBDevice reads the attributes of one device
// (Documentation/ABI/testing/sysfs-bus-usb). It returns the readable attributes and the errors
// of the others. Gone reports whether the error means that the device was removed.
//
// The kernel takes the device's lock for serial, manufacturer and product
// (usb_string_attr in drivers/usb/core/sysfs.c). It holds the lock while a driver probes the device and
// during a reset, which can take seconds.
func (fs FS) USBDevice(dir string) (device.USB, error) {
	var d device.USB
	var errs []error
	// The kernel adds a device to the bus when it has all its attributes (device_add in
	// drivers/base/core.c). Before that, its serial number may be missing.
	current, err := fs.device(usbDevices, path.Base(dir))
	if err != nil {
		return d, err
	}
	if current != dir {
		return d, fmt.Errorf("is at another port: %w", errGone)
	}
	for _, f := range d.Files() {
		s, err := fs.attr(dir, f.Name)
		*f.Value = s
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if err == nil && d.Vendor == "" {
		err = fmt.Errorf("idVendor: %w", errGone)
	}
	d.Vendor = strings.ToLower(d.Vendor)
	d.Product = strings.ToLower(d.Product)
	d.Class = strings.ToLower(d.Class)
	return d, err
}

// USBInterface reads the attributes of one interface. Its name contains its number, "1-1.4:1.0"
// (usb_set_configuration in drivers/usb/core/message.c). It returns the readable attributes and
// the errors of the others. Gone reports whether the error means that the interface was removed.
func (fs FS) USBInterface(dir string) (device.USBInterface, error) {
	name := path.Base(dir)
	lastDot := strings.LastIndexByte(name, '.')
	number, nameErr := strconv.Atoi(name[lastDot+1:])
	if nameErr != nil {
		number = -1
		nameErr = fmt.Errorf("%q is not the name of an interface", name)
	}
	driver, driverErr := fs.Driver(dir)
	class, err := fs.attr(dir, "bInterfaceClass")
	if err == nil && class == "" {
		err = fmt.Errorf("bInterfaceClass: %w", errGone)
	}
	i := device.USBInterface{
		Number: number,
		Class:  strings.ToLower(class),
		Driver: driver,
	}
	return i, errors.Join(nameErr, driverErr, err)
}
