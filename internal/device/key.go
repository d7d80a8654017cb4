package device

import (
	"cmp"
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"
)

// maxKey is the maximum length of the key of a node.
const maxKey = 32

// NodeKeys returns the keys of the nodes of h. A key identifies a node within its hardware. Links and
// IDs contain it, so that it must not change with the kernel's name:
//
//   - The bus node of a USB device is "bus".
//   - Nodes of a platform device have the kernel's name ("ttyAMA0"), which the
//     firmware's tables fix, except in subsystems that number in probing order
//     ("card0", "video10").
//   - Any other is the kernel's name without the number that the kernel assigns
//     over the whole machine: ttyUSB3 is "ttyUSB", renderD128 "renderD",
//     pcmC1D0p "pcmCD0p", sdb2 "sd2". Its prefix is the USB interface, if any, in
//     two hexadecimal digits: "if00:ttyUSB".
//   - What a node is (Node.Part) follows, if it is known: "iio:SMO9210-00.lsm6dsm",
//     "i2c:mux-70.i2c-0".
//   - Further nodes with the same name in the same interface get ".1", ".2": the
//     kernel's index (Node.Index) if there is one. The others get the free
//     numbers, in natural order of the kernel's names.
//   - A network interface is "net", because its name depends on rules of the host and on the
//     network namespace. Interfaces are numbered like nodes: "net.1", "if00:net". Interfaces
//     with the same index are numbered in the order of the devices below their hardware, then
//     of their names.
//
// Keys have the grammar of IDs and at most 32 characters.
func NodeKeys(h *Hardware) map[*Node]string {
	names := make([]kernelName, 0, len(h.Nodes)+len(h.Nets))
	for _, n := range h.Nodes {
		names = append(names, splitKernel(n))
	}
	for _, n := range h.Nets {
		names = append(names, splitNet(n))
	}
	sort.Slice(names, func(i, j int) bool {
		return compareKernelNames(&names[i], &names[j]) < 0
	})
	keys := make(map[*Node]string, len(names))
	taken := make(map[string]bool, len(names))
	for len(names) > 0 {
		end := 1
		for end < len(names) && names[end].sameFamily(names[0]) {
			end++
		}
		numbers := numberFamily(names[:end])
		for _, k := range names[:end] {
			key := fit(k.key(h.Bus, numbers[k.counter]), maxKey)
			if taken[key] {
				apart := k.node.Path
				if k.kind == netName {
					apart = "net"
				}
				key = fit(key+HashPart(apart), maxKey)
			}
			taken[key] = true
			keys[k.node] = key
		}
		names = names[end:]
	}
	return keys
}

// compareKernelNames compares names in the order in which keys are numbered. Names of one family are
// adjacent.
func compareKernelNames(a, b *kernelName) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.node.Interface, b.node.Interface),
		cmp.Compare(a.prefix, b.prefix),
		cmp.Compare(a.part, b.part),
		CompareNatural(a.parent, b.parent),
		CompareNumber(a.counter, b.counter),
		cmp.Compare(a.suffix, b.suffix),
		cmp.Compare(a.copies(), b.copies()),
		cmp.Compare(a.node.Path, b.node.Path),
	)
}

// kernelName is the kernel's name of a node, split at the number that the kernel assigns over the
// whole machine: prefix, counter, suffix.
type kernelName struct {
	node    *Node
	kind    nameKind
	prefix  string
	counter string
	suffix  string
	// part is Node.Part.
	part string
	// parent is the sysfs directory of a network interface. The kernel has no lasting
	// number for it: counter only distinguishes interfaces.
	parent string
}

// nameKind orders names: the bus node of the USB device first, and interfaces last, so
// that the key of no node depends on them.
type nameKind byte

const (
	busName nameKind = iota
	nodeName
	netName
)

// copies returns 0 for the node that the kernel made, and 1 for nodes with the same name and number at
// another path, which somebody made with mknod(1). The kernel's node comes first.
func (k kernelName) copies() int {
	if strings.HasSuffix(k.node.Path, "/"+k.node.Kernel) {
		return 0
	}
	return 1
}

// sameFamily reports whether two names are numbered together. The bus node is always alone.
func (k kernelName) sameFamily(other kernelName) bool {
	sameInterface := k.node.Interface == other.node.Interface
	sameName := k.prefix == other.prefix && k.part == other.part
	isBusNode := k.kind == busName
	return !isBusNode && k.kind == other.kind && sameInterface && sameName
}

// numberFamily numbers the counters of one family: nodes of one interface with one
// prefix, in order. Nodes with one counter share its number: sdb, sdb1 and sdb2 are
// parts of one disk.
func numberFamily(family []kernelName) map[string]int {
	const maxIndex = 999_999
	numbers := make(map[string]int)
	taken := make(map[int]bool)
	for _, k := range family {
		index := k.node.Index
		_, isNumbered := numbers[k.counter]
		isValid := 0 <= index && index <= maxIndex
		if isNumbered || !isValid || taken[index] {
			continue
		}
		numbers[k.counter] = index
		taken[index] = true
	}
	free := 0
	next := func(counter string) {
		if _, ok := numbers[counter]; ok {
			return
		}
		for taken[free] {
			free++
		}
		numbers[counter] = free
		taken[free] = true
	}
	for _, k := range family {
		if k.counter != "" {
			next(k.counter)
		}
	}
	// Unnumbered nodes come last: /dev/watchdog accompanies only the first watchdog of
	// the machine, so that it must not determine the key of /dev/watchdog0
	// (watchdog_dev_register).
	if family[0].counter == "" {
		next("")
	}
	return numbers
}

// key returns the key of the node, with its number in the family.
func (k kernelName) key(bus Bus, number int) string {
	if k.kind == busName {
		return "bus"
	}
	if bus == PlatformBus && k.kind == nodeName && !k.probed() {
		return nameField(k.node.Kernel)
	}
	stem := strings.Trim(k.prefix+k.suffix, "_-.")
	if stem == "" {
		// Names of vfio groups and the like are only a number.
		stem = k.node.Subsystem
	}
	name := ""
	if k.part != "" {
		class, _, _ := strings.Cut(stem, ":") // "iio:device"
		name = nameField(class) + ":" + field(k.part)
	} else {
		name = nameField(stem)
	}
	interfaced := bus == USBBus && k.node.Interface >= 0
	if name == "bus" && bus == USBBus && !interfaced {
		name = replaced(name, name)
	}
	// A stem that ends like a number always has an explicit number, so that it differs from a
	// numbered key.
	dot := strings.LastIndexByte(name, '.')
	endsLikeNumber := dot >= 0 && isDigits(name[dot+1:])
	if number > 0 || endsLikeNumber {
		name += "." + strconv.Itoa(number)
	}
	if interfaced {
		// The number has the form of ID_USB_INTERFACE_NUM of udev.
		return fmt.Sprintf("if%02x:%s", k.node.Interface, name)
	}
	return name
}

// probed reports whether the number of a node depends on probing order even if firmware
// describes the hardware: device trees have no aliases for these numbers, unlike for
// those of serial ports, SPI, I2C and MMC (of_alias_get_id in drivers/of/base.c).
func (k kernelName) probed() bool {
	switch k.node.Subsystem {
	case "drm", "sound", "video4linux", "media", "input", "hidraw", "iio", "dvb", "cec", "lirc", "bsg", "scsi_generic":
		return true
	case "i2c-dev", "gpio": // they have aliases, but only some device trees define them
		return true
	case "block":
		_, to := diskLetters(k.node.Kernel)
		return to > 0
	}
	return false
}

// nameField is like field, for names of nodes. They begin with a letter, so that no name looks like a
// port or the number of an ACPI device.
func nameField(s string) string {
	if isClean(s) && strings.Contains(lower+upper, s[:1]) {
		return s
	}
	return replaced(s, s)
}

// splitKernel splits the kernel's name of a node at its counter. That is the number at
// the end, or the first of two separated by a dot (spidev0.1, wq0.3), or the first one
// if there is none at the end (mtd0ro) and in subsystems with two (pcmC1D0p, nvme0n1,
// mmcblk0boot0, dvb0.frontend1, wwan0at1, vport2p1), or the letters of a disk (sdb,
// sdaa2).
func splitKernel(n *Node) kernelName {
	k := kernelName{node: n, kind: nodeName, part: n.Part}
	if isUSBBusNode(n) {
		k.kind = busName
	}
	name := n.Kernel
	var from, to int
	switch n.Subsystem {
	case "block":
		if from, to = diskLetters(name); to == 0 {
			from, to = firstNumber(name)
		}
	case "sound", "nvme", "nvme-generic", "dvb", "wwan", "spidev", "virtio-ports", "bsg":
		from, to = firstNumber(name)
	default:
		from, to = lastNumber(name)
	}
	k.prefix = name[:from]
	k.counter = name[from:to]
	k.suffix = name[to:]
	switch n.Subsystem {
	case "bsg":
		// "6:0:1:0" and "end_device-6:0" start with the number of the SCSI host
		// (scsi_bsg_register_queue, sas_bsg_initialize).
		k.prefix = strings.TrimSuffix("bsg-"+k.prefix, "-")
		k.suffix = strings.ReplaceAll(k.suffix, ":", "-")
	case "vfio-dev":
		// The node of the IOMMU group has the key "vfio".
		k.prefix = "vfio-dev"
	}
	return k
}

// isUSBBusNode reports whether n is the bus node of a USB device (usb_devnode in
// drivers/usb/core/usb.c).
func isUSBBusNode(n *Node) bool {
	h := n.Hardware
	if h == nil || h.Bus != USBBus {
		return false
	}
	isDeviceItself := n.SysPath != "" && n.SysPath == h.Path
	return isDeviceItself || strings.HasPrefix(n.Path, "/dev/bus/usb/")
}

// splitNet is like splitKernel, for a network interface.
func splitNet(n *Node) kernelName {
	parent := path.Dir(n.SysPath)
	return kernelName{
		node:    n,
		kind:    netName,
		prefix:  "net",
		counter: parent + "/" + n.Kernel,
		parent:  parent,
	}
}

// lastNumber returns the position of the number at the end of name that the kernel
// assigns over the machine.
func lastNumber(name string) (from, to int) {
	rest := strings.TrimRight(name, decimal)
	if rest == name {
		return firstNumber(name)
	}
	before, dot := strings.CutSuffix(rest, ".")
	if first := strings.TrimRight(before, decimal); dot && first != before {
		return len(first), len(before)
	}
	return len(rest), len(name)
}

// firstNumber returns the position of the first digits of name, or its end twice if it
// has none.
func firstNumber(name string) (from, to int) {
	from = strings.IndexAny(name, decimal)
	if from < 0 {
		return len(name), len(name)
	}
	return from, from + digits(name[from:])
}

// diskLetters returns the position of the letters that number the disks of the SCSI,
// IDE, virtio, Xen and DASD drivers, and zeros for other names.
func diskLetters(name string) (from, to int) {
	for _, driver := range []string{"sd", "hd", "vd", "xvd", "dasd"} {
		rest, ok := strings.CutPrefix(name, driver)
		letters := strings.TrimRight(rest, decimal)
		if ok && consists(letters, lower) {
			return len(driver), len(driver) + len(letters)
		}
	}
	return 0, 0
}

// CompareNatural compares names in natural order: runs of digits by value, so that
// "ttyUSB2" is before "ttyUSB10", everything else by bytes. It is zero for equal
// strings only.
func CompareNatural(a, b string) int {
	x := a
	y := b
	for x != "" && y != "" {
		m := digits(x)
		n := digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x = x[1:]
			y = y[1:]
			continue
		}
		first := strings.TrimLeft(x[:m], "0")
		second := strings.TrimLeft(y[:n], "0")
		if c := CompareNumber(first, second); c != 0 {
			return c
		}
		x = x[m:]
		y = y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns the number of leading digits of s.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// CompareNumber compares counters written with all their digits: 2 before 10, z before
// aa, and PCI addresses in order.
func CompareNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
