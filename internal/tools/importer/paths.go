package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// An import happens anywhere, usually not on the node: whether a path below /dev is a
// directory, a node or a link has to follow from its name.

// directories of /dev that hold nodes, with one example of numbered ones. Container runtimes
// take a directory as a device for all nodes below it; a glob has to be explicit.
var directories = []string{
	"/dev/accel", "/dev/blackmagic", "/dev/block", "/dev/bsg", "/dev/bus", "/dev/bus/usb", "/dev/bus/usb/001", "/dev/char", "/dev/cpu",
	"/dev/cpu/0", "/dev/disk", "/dev/disk/by-id", "/dev/disk/by-path", "/dev/dma_heap", "/dev/dri", "/dev/dri/by-path", "/dev/dvb",
	"/dev/dvb/adapter0", "/dev/gpib", "/dev/infiniband", "/dev/input", "/dev/input/by-id", "/dev/input/by-path", "/dev/mapper", "/dev/mtd",
	"/dev/net", "/dev/nvidia-caps", "/dev/serial", "/dev/serial/by-id", "/dev/serial/by-path", "/dev/snd", "/dev/snd/by-id",
	"/dev/snd/by-path", "/dev/usb", "/dev/v4l", "/dev/v4l/by-id", "/dev/v4l/by-path", "/dev/vfio", "/dev/vfio/devices", "/dev/zvol",
}

// withoutNumbers replaces the numbers in a path.
func withoutNumbers(path, by string) string {
	return regexp.MustCompile("[0-9]+").ReplaceAllString(path, by)
}

// isDirectory reports whether a path names a directory, and not a node.
func isDirectory(path string) bool {
	return slices.ContainsFunc(directories, func(d string) bool {
		return withoutNumbers(d, "0") == withoutNumbers(path, "0")
	})
}

// isLinkDirectory reports whether the entries of a directory are symbolic links of udev.
func isLinkDirectory(dir string) bool { return fullMatch(`/dev/(.*/)?by-[a-z]+`, dir) }

// kernelNodes matches the paths of nodes that the kernel names, up to their first wildcard.
// Any other name below /dev is probably a symbolic link of a udev rule, such as
// "/dev/zigbee".
const kernelNodes = `/dev/(` +
	`tty|video|media|v4l-|vbi|radio|swradio|dvb/|snd/|dri/|fb|drm|accel|nvidia|kfd|apex_|davinci|hailo|` +
	`input/|hidraw|uhid|uinput|js|mouse|bus/|usb/|usbmon|i2c-|spidev|gpio|gpiochip|pps|ptp|rtc|watchdog|tpm|iio:|` +
	`sg|sr|sd|hd|vd|nvme|ng|mmcblk|loop|nbd|dm-|md|mtd|bsg/|block/|ipmi|mei|hwrng|random|urandom|mem|port|kmsg|` +
	`kvm|vhost-|vfio/|net/|fuse|ppp|uio|infiniband/|cpu/|dma_heap/|udmabuf|rfkill|lp|parport|st|nst|hci|vchiq|vcsm|vcio|cachefiles|` +
	`vc|console|ram|zram|cec|lirc|mali|qat_|dax|pmem|null|zero|full|char/|rfcomm|tun|cxi|xdma|isst|fw|hpet|ashmem|binder|cuse|autofs` +
	`).*`

// isKernelNode reports whether a glob names nodes by the kernel's names.
func isKernelNode(glob string) bool {
	return fullMatch(kernelNodes, glob) && !isLinkDirectory(path.Dir(glob))
}

// parseGlob parses a pattern of paths without {a,b}.
func parseGlob(glob string) (pattern.Alternative, error) {
	p, err := pattern.Parse(pattern.Path, glob)
	if err != nil {
		return pattern.Alternative{}, fmt.Errorf("%.80q %w", glob, err)
	}
	return p.Positive().Alternatives()[0], nil
}

// captured replaces the wildcards of a shape by the variables of their matches.
func captured(shape string, literal func(string) string) string {
	var text strings.Builder
	for i, part := range strings.Split(shape, "*") {
		if i > 0 {
			fmt.Fprintf(&text, "${%d}", i)
		}
		text.WriteString(literal(part))
	}
	return text.String()
}

// goGlobToken matches the syntax that differs between patterns of path.Match or fnmatch and
// ours.
const goGlobToken = `(?s)\\.|\[(\\.|[^\\\]])*\]|[{}]|\*+`

// translateGlob converts a pattern of path.Match to ours. There, classes are negated by "^",
// braces are literal, and "**" is "*".
func translateGlob(glob string) string {
	translated := regexp.MustCompile(goGlobToken).ReplaceAllStringFunc(glob, func(token string) string {
		switch {
		case token[0] == '*':
			return "*"
		case token[0] == '\\':
			return pattern.Quote(token[1:])
		case token[0] == '{', token[0] == '}':
			return `\` + token
		case strings.HasPrefix(token, "[^"):
			return "[!" + token[2:]
		case strings.HasPrefix(token, "[!"):
			return `[\` + token[1:]
		}
		return token
	})
	// The configuration refuses a path that looks like a regular expression, but not one with classes.
	translated = strings.ReplaceAll(translated, "]+", "][+]")
	if before, found := strings.CutSuffix(translated, "$"); found {
		return before + "[$]"
	}
	return translated
}

// dangerousUSB are the classes of USB interfaces whose bus nodes may need dangerous = true: input
// devices, mass storage and hubs (include/uapi/linux/usb/ch9.h).
var dangerousUSB = []string{"03", "08", "09"}

// rootHubs matches the bus nodes of root hubs, which are the first device of each bus. No condition on
// USB devices selects a root hub.
const rootHubs = "/dev/bus/usb/*/001"

// excludeDangerousUSB excludes bus nodes that need dangerous = true from the pool of a directory:
// a single one of them would make the whole pool Unhealthy.
func (r *resource) excludeDangerousUSB(at *value, directory string) {
	hasBusNodes := strings.HasPrefix("/dev/bus/usb", directory) || strings.HasPrefix(directory, "/dev/bus/usb")
	if !hasBusNodes {
		return
	}
	var ofClass match
	ofClass.set("usb.interface_class", dangerousUSB...)
	r.Exclude = []match{
		ofClass,
		{Glob: []string{rootHubs}},
	}
	at.differs("USB disks, hubs and input devices are left out: they need dangerous = true, and dangerous in --allow (in the chart: allow)")
}
