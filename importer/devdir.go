package importer

import (
	"regexp"
	"slices"
	"strings"
)

// directories of /dev that hold nodes, one or several examples of each. Container runtimes
// take a directory as a device for all nodes below it; a glob has to be explicit.
var directories = []string{
	"/dev/blackmagic", "/dev/block", "/dev/bsg", "/dev/bus/usb/001", "/dev/char", "/dev/cpu/0", "/dev/disk/by-id", "/dev/disk/by-path",
	"/dev/dma_heap", "/dev/dri", "/dev/dri/by-path", "/dev/dvb/adapter0", "/dev/gpib", "/dev/infiniband", "/dev/input", "/dev/input/by-id",
	"/dev/input/by-path", "/dev/mapper", "/dev/mtd/by-name", "/dev/net", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/serial/by-id",
	"/dev/serial/by-path", "/dev/shm", "/dev/snd", "/dev/snd/by-id", "/dev/snd/by-path", "/dev/usb", "/dev/v4l/by-id", "/dev/v4l/by-path",
	"/dev/vfio", "/dev/vfio/devices", "/dev/zvol",
}

// isDirectory reports whether a path is that of a directory, and not of a node. Numbers
// stand for others.
func isDirectory(path string) bool {
	if !strings.HasPrefix(path, "/dev/") {
		return false
	}
	numbers := regexp.MustCompile("[0-9]+")
	path = numbers.ReplaceAllString(path, "0")
	return slices.ContainsFunc(directories, func(d string) bool {
		d = numbers.ReplaceAllString(d, "0")
		return d == path || strings.HasPrefix(d, path+"/")
	})
}
