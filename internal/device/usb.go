package device

import (
	"strconv"
	"strings"
)

// USB is the identity of a USB device, from the attributes of
// /sys/bus/usb/devices (kernel: Documentation/ABI/testing/sysfs-bus-usb).
// Absent attributes are empty.
type USB struct {
	Vendor       string // idVendor, four lower-case hexadecimal digits
	Product      string // idProduct, four lower-case hexadecimal digits
	Serial       string // as reported by the device, untrimmed, without control characters
	Manufacturer string
	ProductName  string // the attribute "product"
	Class        string // bDeviceClass, two lower-case hexadecimal digits
	Port         string // kernel name in this boot, "1-1.4"
	// Controller is the PCI address or platform device name of the host controller,
	// "0000:00:14.0". Unlike bus numbers, it is the same in every boot.
	Controller string
	// Chain are the numbers of the ports below the controller, "1.4".
	Chain      string
	Speed      string // Mbit/s, "480"
	Interfaces []USBInterface
}

// USBInterface is one interface of the active configuration.
type USBInterface struct {
	Number int    // bInterfaceNumber, in its name
	Class  string // bInterfaceClass, two lower-case hexadecimal digits
	Driver string
}

// InterfacesOf returns the USB interface of a node. If the node is nil or belongs to the whole device,
// like its bus node, it returns all interfaces of h.
func (h *Hardware) InterfacesOf(n *Node) []USBInterface {
	if h.USB == nil {
		return nil
	}
	if n == nil || n.Interface < 0 {
		return h.USB.Interfaces
	}
	for i, found := range h.USB.Interfaces {
		if found.Number == n.Interface {
			return h.USB.Interfaces[i : i+1]
		}
	}
	return []USBInterface{{Number: n.Interface}}
}

// KnownUSB is a USB device that was read. Within a boot it is the same device as long as
// its link on the bus has the same inode.
type KnownUSB struct {
	Inode uint64 `json:"inode"`
	USB   USB    `json:"usb"` // its own attributes, without Port, Controller, Chain and Interfaces
}

// usbKeys are the keys of the table usb. A new key of a device is a row here, and a field of USB with a
// row in Files and in usbValue.
var usbKeys = []Attribute{
	key("id", PairValue, "10c4:ea60", "vendor and product"),
	variable("vendor", IDValue),
	variable("product", IDValue),
	key("serial", TextValue, "A1B2C3", "serial number reported by the device"),
	variable("manufacturer", TextValue),
	key("product_name", TextValue, "CP2102N", "reported by the device"),
	key("class", ByteValue, "e0", "class of the device, two digits"),
	ofInterface(key("interface_class", ByteValue, "0e", "class of an interface, two digits")),
	ofInterface(key("interface", NumberValue, "0", "number of an interface, decimal")),
	key("port", TextValue, "1-1.4", "kernel numbering in this boot"),
	key("path", TextValue, "0000:00:14.0:1.4", "controller and chain of ports, the same in every boot"),
	key("speed", TextValue, "480", "Mbit/s"),
}

// USBFile is an attribute of sysfs, and the field for its value.
type USBFile struct {
	Name  string
	Value *string
}

// Files lists the attributes of sysfs of a device in the order in which they are read. idVendor is
// the last one, because the kernel removes it before the strings. If it exists, the strings existed when they were
// read, and a device without a serial number has none. An incomplete identity could be the identity
// of another device.
func (u *USB) Files() []USBFile {
	return []USBFile{
		{"serial", &u.Serial},
		{"manufacturer", &u.Manufacturer},
		{"product", &u.ProductName},
		{"bDeviceClass", &u.Class},
		{"speed", &u.Speed},
		{"idProduct", &u.Product},
		{"idVendor", &u.Vendor},
	}
}

// usbValue returns the value of a key of a USB device.
func (h *Hardware) usbValue(key string) string {
	u := h.USB
	switch key {
	case "id":
		return pair(u.Vendor, u.Product)
	case "vendor":
		return u.Vendor
	case "product":
		return u.Product
	case "serial":
		return strings.TrimSpace(u.Serial)
	case "manufacturer":
		return strings.TrimSpace(u.Manufacturer)
	case "product_name":
		return strings.TrimSpace(u.ProductName)
	case "class":
		return u.Class
	case "port":
		return u.Port
	case "path":
		return Place(h)
	case "speed":
		return u.Speed
	}
	return ""
}

// value returns the value of a key of an interface.
func (i USBInterface) value(key string) string {
	if key == "interface" {
		return strconv.Itoa(i.Number)
	}
	return i.Class
}
