package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// An import happens anywhere, usually not on the node: whether a path below /dev is a
// directory, a node or a link has to follow from its name.

// directories of /dev that hold nodes, one or several examples of each. Container runtimes
// take a directory as a device for all nodes below it; a glob has to be explicit.
var directories = []string{
	"/dev/accel", "/dev/blackmagic", "/dev/block", "/dev/bsg", "/dev/bus/usb/001", "/dev/char", "/dev/cpu/0", "/dev/disk/by-id", "/dev/disk/by-path",
	"/dev/dma_heap", "/dev/dri", "/dev/dri/by-path", "/dev/dvb/adapter0", "/dev/gpib", "/dev/infiniband", "/dev/input", "/dev/input/by-id",
	"/dev/input/by-path", "/dev/mapper", "/dev/mtd/by-name", "/dev/net", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/serial/by-id",
	"/dev/serial/by-path", "/dev/shm", "/dev/snd", "/dev/snd/by-id", "/dev/snd/by-path", "/dev/usb", "/dev/v4l/by-id", "/dev/v4l/by-path",
	"/dev/vfio", "/dev/vfio/devices", "/dev/zvol",
}

// withoutNodes are directories of /dev that hold no device nodes of hardware: shared memory,
// terminals, file systems and sockets.
var withoutNodes = []string{"/dev/shm", "/dev/pts", "/dev/mqueue", "/dev/hugepages", "/dev/log", "/dev/fd", "/dev/termination-log"}

// hasNoNodes reports whether a path is in one of the directories without device nodes.
func hasNoNodes(path string) bool {
	return slices.ContainsFunc(withoutNodes, func(d string) bool {
		return isBelow(path, d)
	})
}

// isBelow reports whether a path is a directory, or below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// isDirectory reports whether a path names a directory, and not a node. Numbers stand for
// other numbers.
func isDirectory(path string) bool {
	if !strings.HasPrefix(path, "/dev/") {
		return false
	}
	numbers := regexp.MustCompile("[0-9]+")
	path = numbers.ReplaceAllString(path, "0")
	return slices.ContainsFunc(directories, func(d string) bool {
		return isBelow(numbers.ReplaceAllString(d, "0"), path)
	})
}

// linkParents are directories with directories of links, and without nodes.
var linkParents = []string{"/dev/disk", "/dev/serial", "/dev/v4l"}

// hasLinks reports whether a directory has links of udev instead of nodes.
func hasLinks(directory string) bool {
	isByName := strings.HasPrefix(path.Base(directory), "by-")
	return isByName || slices.Contains(linkParents, directory)
}

// allDirectories lists the examples with the directories above them, without /dev.
func allDirectories() (all []string) {
	for _, d := range directories {
		for at := len("/dev/"); at < len(d); at++ {
			if d[at] == '/' {
				all = addOnce(all, d[:at])
			}
		}
		all = addOnce(all, d)
	}
	return all
}

// linkDirectory matches directories whose entries are symbolic links of udev.
const linkDirectory = `/dev/(.*/)?by-[a-z]+`

// isLinkDirectory reports whether the entries of a directory are symbolic links.
func isLinkDirectory(dir string) bool { return fullMatch(linkDirectory, dir) }

// kernelNodes matches the paths of nodes that the kernel names, up to their first wildcard.
// Any other name below /dev is probably a symbolic link of a udev rule, such as
// "/dev/zigbee".
const kernelNodes = `/dev/(` +
	`tty|video|media|v4l-|vbi|radio|swradio|dvb/|snd/|dri/|fb|drm|accel|nvidia|kfd|apex_|davinci|hailo|` +
	`input/|hidraw|uhid|uinput|js|mouse|bus/|usb/|usbmon|i2c-|spidev|gpio|gpiochip|pps|ptp|rtc|watchdog|tpm|iio:|` +
	`sg|sr|sd|hd|vd|nvme|ng|mmcblk|loop|nbd|dm-|md|mtd|bsg/|block/|ipmi|mei|hwrng|random|urandom|mem|port|kmsg|` +
	`kvm|vhost-|vfio/|net/|fuse|ppp|uio|infiniband/|cpu/|dma_heap/|udmabuf|rfkill|lp|parport|st|nst|` +
	`vc|console|ram|zram|cec|lirc|mali|qat_|dax|pmem|null|zero|full|char/|rfcomm|tun|cxi|xdma|isst|fw|hpet|ashmem|binder|cuse|autofs` +
	`).*`

// isKernelNode reports whether a glob names nodes by the kernel's names.
func isKernelNode(glob string) bool { return fullMatch(kernelNodes, glob) }
