package sysfs

import (
	"strings"
)

// Driver returns the name of the driver that is bound to the device, "" where
// none is.
func (fs FS) Driver(dir string) (string, error) { return fs.linkBase(dir, "driver") }

// Subsystem returns the name of the bus or class of the device: "tty",
// "platform".
func (fs FS) Subsystem(dir string) (string, error) { return fs.linkBase(dir, "subsystem") }

// NUMANode returns the device's numa_node. It is -1 where the kernel does not
// know one (Documentation/ABI/testing/sysfs-bus-pci) and where the device has
// no such attribute.
func (fs FS) NUMANode(dir string) (int, error) { return fs.number(dir, "numa_node") }

// Uevent is what a device's uevent file says of its node.
type Uevent struct {
	DevName string // path of the node below /dev, "bus/usb/001/004"
	DevType string // "usb_device", "disk", "partition"
}

// Uevent reads the uevent file of a device. Some kernels take the device's
// lock for it, so it is not for every device of every scan.
func (fs FS) Uevent(dir string) (Uevent, error) {
	var buf [maxAttr]byte
	n, err := fs.read(dir, "uevent", buf[:])
	if err != nil {
		return Uevent{}, err
	}
	return ParseUevent(string(buf[:n])), nil
}

// ParseUevent reads the lines KEY=VALUE of a uevent file; those that it does
// not know, or can't read, are left out.
func ParseUevent(text string) Uevent {
	var u Uevent
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "DEVNAME":
			u.DevName = clean([]byte(value))
		case "DEVTYPE":
			u.DevType = clean([]byte(value))
		}
	}
	return u
}
