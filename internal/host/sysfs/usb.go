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

// USB lists the USB devices of the host, root hubs ("usb1") and all others
// ("1-1.4"), and the interfaces of their active configurations ("1-1.4:1.0"); the links of
// known ones are not read again. The error wraps fs.ErrNotExist on a host without USB.
func (fs FS) USB(known map[string]Entry) ([]Entry, error) {
	return fs.entries(usbDevices, known, nil)
}

// USBDevice reads the attributes of one device
// (Documentation/ABI/testing/sysfs-bus-usb). It returns the readable ones and the errors
// of the others; Gone reports the error of a removed device.
//
// The kernel takes the device's lock for serial, manufacturer and product
// (usb_string_attr in drivers/usb/core/sysfs.c), and holds it while a driver probes or
// a reset lasts, which can take seconds.
func (fs FS) USBDevice(dir string) (device.USB, error) {
	var d device.USB
	var errs []error
	fs.enter(dir)
	defer fs.leave()
	// The kernel adds a device to the bus when it has all its attributes (device_add in
	// drivers/base/core.c); before, it may have some, and would be a device without serial.
	if at, err := fs.device(usbDevices, path.Base(dir)); err != nil {
		return d, err
	} else if at != dir {
		return d, fmt.Errorf("has moved: %w", errGone)
	}
	// idVendor comes last: the kernel removes it before the strings, so that a device
	// that still has it had its serial when that was read, and an absent serial is
	// really absent. Half an identity would be another device's.
	for _, a := range []struct {
		name string
		to   *string
	}{
		{"serial", &d.Serial},
		{"manufacturer", &d.Manufacturer},
		{"product", &d.ProductName},
		{"bDeviceClass", &d.Class},
		{"speed", &d.Speed},
		{"idProduct", &d.Product},
		{"idVendor", &d.Vendor},
	} {
		s, err := fs.attr(dir, a.name)
		*a.to = s
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err == nil && d.Vendor == "" {
		err = fmt.Errorf("idVendor: %w", errGone)
	}
	d.Vendor, d.Product, d.Class = strings.ToLower(d.Vendor), strings.ToLower(d.Product), strings.ToLower(d.Class)
	return d, err
}

// USBInterface reads the attributes of one interface. Its number is in its name, "1-1.4:1.0"
// (usb_set_configuration in drivers/usb/core/message.c). It returns the readable ones and
// the errors of the others; Gone reports the error of a removed one.
func (fs FS) USBInterface(dir string) (device.USBInterface, error) {
	name := path.Base(dir)
	number, nameErr := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	if nameErr != nil {
		number = -1
		nameErr = fmt.Errorf("%q is not the name of an interface", name)
	}
	driver, driverErr := fs.Driver(dir)
	class, err := fs.attr(dir, "bInterfaceClass")
	if err == nil && class == "" {
		err = fmt.Errorf("bInterfaceClass: %w", errGone)
	}
	return device.USBInterface{Number: number, Class: strings.ToLower(class), Driver: driver}, errors.Join(nameErr, driverErr, err)
}
