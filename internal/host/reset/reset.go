// Package reset resets devices of the host. It has no policy: the caller decides which hardware may
// be reset, because nothing else uses it.
//
// Every way is limited to one device by the kernel. A USB reset is of the port of the device. A
// reset of a PCI function fails rather than affect another function: the methods device_specific,
// acpi, flr, af_flr and pm are of one function, and bus and cxl_bus are only used if the function is
// alone on its bus and in its slot (pci_parent_bus_reset and pci_dev_reset_slot_function in
// drivers/pci/pci.c).
//
// Root needs no capability for either. The kernel checks the permissions of the node of a USB
// device, and of the attribute reset, which only its owner, root, may write. A container also needs
// the node in its device cgroup, and a /sys that is mounted writable.
package reset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The ways to reset a device.
const (
	USB = "usb"
	PCI = "pci"
)

// Host is where this process sees the host's /sys and /dev.
type Host struct {
	Sysfs, Dev string
}

// ErrDenied means that this process has no access to the device. Errors of Reset wrap it.
var ErrDenied = errors.New("this program has no access")

// Reset resets the hardware with a sysfs path in one of the ways. It returns when the kernel has
// reset the device, or has begun to enumerate it again because it has changed. It may block for as
// long as a driver does.
func (h Host) Reset(way, path string) error {
	if err := h.checkNets(path); err != nil {
		return err
	}
	switch way {
	case USB:
		return h.resetUSB(path)
	case PCI:
		return h.resetPCI(path)
	}
	return fmt.Errorf("unknown way to reset a device: %q", way)
}

// usbMajor is the major number of the nodes of USB devices (USB_DEVICE_MAJOR in
// include/linux/usb.h).
const usbMajor = 189

// usbReset is the request USBDEVFS_RESET, _IO('U', 20) in include/uapi/linux/usbdevice_fs.h. The
// direction of a request without data is not 0 on every architecture, so that it is taken from
// BLKRRPART, _IO(0x12, 95).
const usbReset = unix.BLKRRPART - (0x12<<8 | 95) + ('U'<<8 | 20)

// resetUSB resets the port of a USB device.
func (h Host) resetUSB(path string) error {
	bus, err := h.number(path, "busnum")
	if err != nil {
		return err
	}
	device, err := h.number(path, "devnum")
	if err != nil {
		return err
	}
	before := h.inode(path)
	node := fmt.Sprintf("/dev/bus/usb/%03d/%03d", bus, device)
	local := filepath.Join(h.Dev, strings.TrimPrefix(node, "/dev"))
	fd, err := unix.Open(local, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return opening(node, err)
	}
	defer unix.Close(fd)
	// The number stands for one device as long as that is open: the kernel assigns the numbers of a
	// bus in turn (choose_devnum in drivers/usb/core/hub.c).
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	isDevice := stat.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(stat.Rdev) == usbMajor
	minor := uint32((bus-1)*128 + device - 1) // usb_new_device in drivers/usb/core/hub.c
	if !isDevice || unix.Minor(stat.Rdev) != minor {
		return fmt.Errorf("%s is not the node of the device", node)
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), usbReset, 0)
	switch errno {
	case 0:
		return nil
	case unix.ENODEV:
		return h.awaitRemoval(path, before)
	}
	return fmt.Errorf("%s: reset: %w", node, errno)
}

// The kernel removes a device that changed in a reset in another thread. removalWithin limits the
// wait, and removalPoll is the time between two checks, which no event replaces: the caller waits
// for the events that follow.
const (
	removalWithin = 5 * time.Second
	removalPoll   = 10 * time.Millisecond
)

// awaitRemoval waits until a device is no longer at its path, or another one is. ENODEV means that
// the device has changed in the reset, for example because it lost its firmware: the kernel removes
// it and enumerates it again (usb_reset_and_verify_device in drivers/usb/core/hub.c). Until then,
// the device looks as before.
func (h Host) awaitRemoval(path string, before uint64) error {
	for deadline := time.Now().Add(removalWithin); time.Now().Before(deadline); time.Sleep(removalPoll) {
		if h.inode(path) != before {
			return nil
		}
	}
	return errors.New("the kernel lost the device in the reset, and did not enumerate it again")
}

// inode identifies the device at a path. It is 0 if there is none.
func (h Host) inode(path string) uint64 {
	var stat unix.Stat_t
	if unix.Lstat(filepath.Join(h.Sysfs, path), &stat) != nil {
		return 0
	}
	return stat.Ino
}

// number reads an attribute with a positive decimal number.
func (h Host) number(path, name string) (int, error) {
	text, err := h.attribute(path, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a positive number", name, text)
	}
	return n, nil
}

// attribute reads a short attribute.
func (h Host) attribute(path, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(h.Sysfs, path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the device is gone: it has no %s", name)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}

// resetPCI resets a PCI function.
func (h Host) resetPCI(path string) error {
	methods, err := os.ReadFile(filepath.Join(h.Sysfs, path, "reset_method")) // since Linux 5.15
	if err == nil && strings.TrimSpace(string(methods)) == "" {
		return errors.New("the kernel may not reset it: its reset_method is empty")
	}
	const name = "reset"
	fd, err := unix.Open(filepath.Join(h.Sysfs, path, name), unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return errors.New("the kernel can't reset it without other functions: it has no attribute reset")
	}
	if err != nil {
		return opening(name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// opening adds to an error of open(2) what was opened, and whether access is missing.
func opening(name string, err error) error {
	isDenied := errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
	if isDenied {
		return fmt.Errorf("open %s: %w (%w)", name, err, ErrDenied)
	}
	return fmt.Errorf("open %s: %w", name, err)
}

const (
	// maxDepth is the depth of the directory with the network interfaces of a device:
	// "virtio0/net", "1-2:1.0/net".
	maxDepth = 3
	// maxEntries limits the search.
	maxEntries = 10_000
)

// checkNets returns an error if a network interface of the device is in another network namespace,
// in use by a container or, if this /sys is the one of a container, by the host. sysfs shows the
// directory of the interfaces in each namespace, and in it only the interfaces of its own
// (class_dir_create_and_add in drivers/base/core.c).
func (h Host) checkNets(path string) error {
	entries := maxEntries
	return h.checkNetsBelow(path, maxDepth, &entries)
}

var errOtherNamespace = errors.New(
	"its network interface is in another network namespace: of a container, or of the host if --sysfs is not the host's /sys",
)

// checkNetsBelow is checkNets for a directory of the device.
func (h Host) checkNetsBelow(dir string, depth int, left *int) error {
	list, err := os.ReadDir(filepath.Join(h.Sysfs, dir))
	if err != nil {
		return nil // it was removed meanwhile
	}
	for _, e := range list {
		*left--
		// Links lead to other devices.
		if !e.IsDir() || *left <= 0 {
			continue
		}
		below := filepath.Join(dir, e.Name())
		if e.Name() == "net" && h.isEmptyOfDevices(below) {
			return errOtherNamespace
		}
		if depth > 1 {
			if err := h.checkNetsBelow(below, depth-1, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// isEmptyOfDevices reports whether a directory of a class has no device.
func (h Host) isEmptyOfDevices(dir string) bool {
	list, err := os.ReadDir(filepath.Join(h.Sysfs, dir))
	if err != nil {
		return false
	}
	for _, e := range list {
		if e.IsDir() {
			return false
		}
	}
	return true
}
