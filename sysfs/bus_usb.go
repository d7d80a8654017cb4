package sysfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const usbDevices = "bus/usb/devices"

// USB lists the USB devices of the host, root hubs ("usb1") and all others
// ("1-1.4"), and the interfaces of their active configurations ("1-1.4:1.0"),
// each by name. The error wraps fs.ErrNotExist on a host without USB.
func (fs FS) USB() (devices, interfaces []Entry, err error) { return fs.USBAgain(nil) }

// USBAgain is USB for a caller that knows some devices and interfaces, by name: it
// reads which exist, but not the directories of known ones.
func (fs FS) USBAgain(known map[string]Entry) (devices, interfaces []Entry, err error) {
	all, err := fs.entriesAgain(usbDevices, known)
	for _, e := range all {
		if strings.Contains(e.Name, ":") {
			interfaces = append(interfaces, e)
		} else {
			devices = append(devices, e)
		}
	}
	return devices, interfaces, err
}

// USBDir returns the directory of a device by its name. Gone reports the error of a
// missing one.
func (fs FS) USBDir(name string) (string, error) { return fs.device(usbDevices, name) }

// USBDevice are the attributes of a USB device
// (Documentation/ABI/testing/sysfs-bus-usb).
type USBDevice struct {
	Vendor, Product                   string // four hexadecimal digits
	Serial, Manufacturer, ProductName string
	Class                             string // two hexadecimal digits
	Speed                             string // Mbit/s
}

// USBDevice reads the attributes of one device. It returns the readable attributes and
// the errors of the others; Gone reports the error of a removed device.
//
// The kernel takes the device's lock for serial, manufacturer and product
// (usb_string_attr in drivers/usb/core/sysfs.c), and holds it while a driver probes or
// a reset lasts, which can take seconds.
func (fs FS) USBDevice(dir string) (USBDevice, error) {
	var d USBDevice
	var errs []error
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

// USBNumber returns the device number of a device on its bus, which the kernel
// increments at each enumeration; empty if it cannot be read.
func (fs FS) USBNumber(dir string) string {
	number, err := fs.attr(dir, "devnum")
	if err != nil {
		return ""
	}
	return number
}

// USBInterface are the attributes of a USB interface.
type USBInterface struct {
	Number int    // bInterfaceNumber
	Class  string // bInterfaceClass, two hexadecimal digits
	Driver string
}

// USBInterface reads the attributes of one interface. Gone reports the error of a
// removed one.
func (fs FS) USBInterface(dir string) (USBInterface, error) {
	var i USBInterface
	class, classErr := fs.attr(dir, "bInterfaceClass")
	i.Class = strings.ToLower(class)
	driver, driverErr := fs.Driver(dir)
	i.Driver = driver
	number, err := fs.attr(dir, "bInterfaceNumber")
	if err == nil && number == "" {
		err = fmt.Errorf("bInterfaceNumber: %w", errGone)
	}
	if err == nil {
		i.Number, err = parseInterfaceNumber(number)
	}
	return i, errors.Join(classErr, driverErr, err)
}

// parseInterfaceNumber parses bInterfaceNumber, which is hexadecimal ("0a").
func parseInterfaceNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 16, 8)
	if err != nil {
		return 0, fmt.Errorf("bInterfaceNumber: %q is not a hexadecimal number of two digits", s)
	}
	return int(n), nil
}
