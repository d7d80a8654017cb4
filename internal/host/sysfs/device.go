package sysfs

import (
	"fmt"
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// NodeDir returns the device directory of the number of a node, or an empty string if the kernel has no
// such device. Every device with a number has a link below dev, whatever its class
// (device_create_sys_dev_entry in drivers/base/core.c).
func (fs FS) NodeDir(n *device.Node) (string, error) {
	dir := "dev/char"
	if n.Type == device.BlockNode {
		dir = "dev/block"
	}
	p, err := fs.device(dir, fmt.Sprintf("%d:%d", n.Major, n.Minor))
	if Gone(err) {
		return "", nil
	}
	return p, err
}

// Driver returns the name of the driver that is bound to the device, or an empty string.
func (fs FS) Driver(dir string) (string, error) {
	return fs.linkBase(dir, "driver")
}

// Subsystem returns the name of the bus or class of the device: "tty",
// "platform".
func (fs FS) Subsystem(dir string) (string, error) {
	return fs.linkBase(dir, "subsystem")
}

// NUMANode returns the device's numa_node (Documentation/ABI/testing/sysfs-bus-pci). It is -1 if the
// kernel does not know it, or if the device has no such attribute.
func (fs FS) NUMANode(dir string) (int, error) {
	return fs.number(dir, "numa_node")
}

// PortNumber returns the number of a port of bus/usb-serial at its adapter, from 0
// (port_number_show in drivers/usb/serial/bus.c), and -1 for other devices.
func (fs FS) PortNumber(dir string) (int, error) {
	return fs.number(dir, "port_number")
}

// VideoIndex returns the number of a node of class/video4linux at its device, from 0
// (index_show in drivers/media/v4l2-core/v4l2-dev.c), and -1 for other devices.
func (fs FS) VideoIndex(dir string) (int, error) {
	return fs.number(dir, "index")
}

// ATAPort returns the number of an ATA port at its controller, from 1
// (drivers/ata/libata-transport.c). dir is the directory of the port, ".../ata4", whose own
// number counts over the machine. The result is -1 if the number is unknown.
func (fs FS) ATAPort(dir string) (int, error) {
	return fs.number(dir+"/ata_port/"+path.Base(dir), "port_no")
}

// FirmwareNode returns the name of a device in the tables of the firmware: the path in a device tree,
// "soc/i2c@7e804000", or the name of an ACPI device, "SMO9210:00". If the kernel counts the names of
// the ACPI devices, it is their path. It is empty if the firmware does not describe the device
// (Documentation/ABI/testing/sysfs-firmware-ofw and sysfs-bus-acpi).
func (fs FS) FirmwareNode(dir string) (string, error) {
	target, err := fs.link(dir, "of_node")
	_, node, isInTree := strings.Cut(target, "/devicetree/base/")
	if isInTree || err != nil {
		return node, err
	}
	name, err := fs.linkBase(dir, "firmware_node")
	if strings.HasPrefix(name, "device:") {
		name, err = fs.attr(dir+"/firmware_node", "path")
	}
	return strings.TrimPrefix(name, `\`), err
}

// Label returns the label of a device from the firmware, otherwise the name from its driver. It is
// empty if the device has neither.
func (fs FS) Label(dir string) (string, error) {
	label, err := fs.attr(dir, "label")
	if label != "" || err != nil {
		return label, err
	}
	return fs.attr(dir, "name")
}

// NVMeControllers lists the directories of the controllers of an NVMe subsystem, which share its
// namespaces (nvme_init_subsystem in drivers/nvme/host/core.c).
func (fs FS) NVMeControllers(subsystem string) ([]string, error) {
	controllers, err := fs.linksWith(subsystem, "nvme")
	var dirs []string
	for number, dir := range controllers {
		if device.IsDigits(number) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// WWID returns the identifier of an NVMe namespace: its UUID, NGUID or EUI-64, or the kernel's
// substitute for them (wwid_show in drivers/nvme/host/sysfs.c).
func (fs FS) WWID(dir string) (string, error) {
	return fs.attr(dir, "wwid")
}

// DevName returns the path below /dev that the kernel chose for the node of a device,
// "bus/usb/001/004". Some kernels take the device's lock for this read, so that a scan must not do
// it for every device.
func (fs FS) DevName(dir string) (string, error) {
	var buf [maxAttr]byte
	n, err := fs.read(dir, "uevent", buf[:])
	return devName(string(buf[:n])), err
}

func devName(uevent string) string {
	for line := range strings.Lines(uevent) {
		name, isDevName := strings.CutPrefix(line, "DEVNAME=")
		if isDevName {
			return clean([]byte(name))
		}
	}
	return ""
}
