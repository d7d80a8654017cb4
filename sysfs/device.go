package sysfs

import (
	"strings"
)

// Driver returns the name of the driver bound to the device, "" if there is none.
func (fs FS) Driver(dir string) (string, error) { return fs.linkBase(dir, "driver") }

// Subsystem returns the name of the bus or class of the device: "tty",
// "platform".
func (fs FS) Subsystem(dir string) (string, error) { return fs.linkBase(dir, "subsystem") }

// NUMANode returns the device's numa_node. It is -1 if unknown to the kernel
// (Documentation/ABI/testing/sysfs-bus-pci) and for a device without the attribute.
func (fs FS) NUMANode(dir string) (int, error) { return fs.number(dir, "numa_node") }

// Uevent is the content of a device's uevent file.
type Uevent struct {
	DevName string // path of the node below /dev, "bus/usb/001/004"
	DevType string // "usb_device", "disk", "partition"
}

// Uevent reads the uevent file of a device. Some kernels take the device's lock for it,
// so that scans must not read it for every device.
func (fs FS) Uevent(dir string) (Uevent, error) {
	var buf [maxAttr]byte
	n, err := fs.read(dir, "uevent", buf[:])
	if err != nil {
		return Uevent{}, err
	}
	return ParseUevent(string(buf[:n])), nil
}

// ParseUevent parses the lines KEY=VALUE of a uevent file, and ignores unknown and
// invalid ones.
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
