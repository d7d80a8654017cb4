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

// maxIndex is the maximum Node.Index that is a part of a key.
const maxIndex = 999_999

// NodeKeys returns the keys of the nodes of h. A key identifies a node within its hardware. Links and
// IDs contain it, so that it must not change with the kernel's name:
//
//   - The bus node of a USB device is "bus".
//   - Nodes of a platform device have the kernel's name ("ttyAMA0"), which the
//     firmware's tables fix, except in subsystems that number in probing order
//     ("card0", "video10").
//   - The key of any other node is the kernel's name without the number that the kernel
//     assigns over the whole machine: "ttyUSB" for ttyUSB3, "renderD" for renderD128,
//     "pcmCD0p" for pcmC1D0p, "sd2" for sdb2. Its prefix is the USB interface, if any, in
//     two hexadecimal digits: "if00:ttyUSB".
//   - Node.Part follows, if it is known: "iio:SMO9210-00.lsm6dsm", "i2c:mux-70.i2c-0".
//   - Further nodes with the same name in the same interface get ".1", ".2": the
//     kernel's index (Node.Index) if there is one. The others get the free
//     numbers, in natural order of the kernel's names.
//   - A network interface is "net", because its name depends on rules of the host and on the
//     network namespace. Interfaces are numbered like nodes: "net.1", "if00:net". Interfaces
//     with the same index are numbered in the order of the devices below their hardware, then
//     of their names, when they are first seen together. The scanner remembers that number as
//     their index, because a container takes its interface out of the host's sysfs.
//
// Keys have the syntax of IDs and at most 32 characters.
func NodeKeys(h *Hardware) map[*Node]string {
	names := make([]kernelName, 0, len(h.Nodes)+len(h.Nets))
	for _, n := range h.Nodes {
		names = append(names, splitKernelName(n))
	}
	for _, n := range h.Nets {
		names = append(names, splitNet(n))
	}
	sort.Slice(names, func(i, j int) bool {
		return compareKernelNames(&names[i], &names[j]) < 0
	})
	keys := make(map[*Node]string, len(names))
	isUsed := make(map[string]bool, len(names))
	for len(names) > 0 {
		family := firstFamily(names)
		names = names[len(family):]
		numbers := numberFamily(family)
		for _, k := range family {
			key := fit(k.key(h.Bus, numbers[k.counter]), maxKey)
			if isUsed[key] {
				key = fit(key+HashPart(k.distinction()), maxKey)
			}
			isUsed[key] = true
			keys[k.node] = key
		}
	}
	return keys
}

// SortNets sorts the network interfaces of one hardware in the order in which NodeKeys numbers them.
func SortNets(nets []*Node) {
	sort.Slice(nets, func(i, j int) bool {
		a := splitNet(nets[i])
		b := splitNet(nets[j])
		return compareKernelNames(&a, &b) < 0
	})
}

// firstFamily returns the first names that are numbered together.
func firstFamily(names []kernelName) []kernelName {
	end := 1
	for end < len(names) && names[end].sameFamily(names[0]) {
		end++
	}
	return names[:end]
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
		cmp.Compare(a.copyRank(), b.copyRank()),
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
// that no key of a node depends on an interface.
type nameKind byte

const (
	busName nameKind = iota
	nodeName
	netName
)

// copyRank returns 0 for the node that the kernel made, and 1 for nodes with the same name and number at
// another path, which somebody made with mknod(1). The kernel's node comes first.
func (k kernelName) copyRank() int {
	if strings.HasSuffix(k.node.Path, "/"+k.node.Kernel) {
		return 0
	}
	return 1
}

// distinction is the text whose hash distinguishes the key of the node from an equal key.
func (k kernelName) distinction() string {
	if k.kind == netName {
		return "net"
	}
	return k.node.Path
}

// sameFamily reports whether two names are numbered together. The bus node is a family of its own.
func (k kernelName) sameFamily(other kernelName) bool {
	if k.kind == busName || k.kind != other.kind {
		return false
	}
	sameInterface := k.node.Interface == other.node.Interface
	sameName := k.prefix == other.prefix && k.part == other.part
	return sameInterface && sameName
}

// numberFamily numbers the counters of one family in order: nodes of one interface with one
// prefix. Nodes with one counter share its number: sdb, sdb1 and sdb2 are parts of one disk.
func numberFamily(family []kernelName) map[string]int {
	numbers := make(map[string]int)
	var used Numbers
	for _, k := range family {
		_, hasNumber := numbers[k.counter]
		if !hasNumber && used.Take(k.node.Index) {
			numbers[k.counter] = k.node.Index
		}
	}
	for _, k := range family {
		_, hasNumber := numbers[k.counter]
		if k.counter != "" && !hasNumber {
			numbers[k.counter] = used.Next()
		}
	}
	// Nodes without a counter come last: /dev/watchdog accompanies only the first watchdog of
	// the machine, so that it must not determine the key of /dev/watchdog0
	// (watchdog_dev_register).
	_, hasNumber := numbers[""]
	if family[0].counter == "" && !hasNumber {
		numbers[""] = used.Next()
	}
	return numbers
}

// Numbers are the used numbers of nodes that are numbered together. The zero value has none.
type Numbers struct {
	isUsed map[int]bool
	// free is not greater than the lowest free number.
	free int
}

// Take marks a number as used. It returns false if the number is used already, or cannot be a part of
// a key.
func (u *Numbers) Take(number int) bool {
	isValid := 0 <= number && number <= maxIndex
	if !isValid || u.isUsed[number] {
		return false
	}
	if u.isUsed == nil {
		u.isUsed = make(map[int]bool)
	}
	u.isUsed[number] = true
	return true
}

// Next returns the lowest free number, and marks it as used.
func (u *Numbers) Next() int {
	for u.isUsed[u.free] {
		u.free++
	}
	u.Take(u.free)
	return u.free
}

// key returns the key of the node, with its number in the family.
func (k kernelName) key(bus Bus, number int) string {
	if k.kind == busName {
		return "bus"
	}
	if bus == PlatformBus && k.kind == nodeName && !k.isNumberedByProbing() {
		return nameField(k.node.Kernel)
	}
	name := k.unnumberedKey()
	belongsToInterface := bus == USBBus && k.node.Interface >= 0
	if name == "bus" && bus == USBBus && !belongsToInterface {
		name = replaced(name, name)
	}
	// A name that ends like a number always has an explicit number, so that it differs from a
	// numbered key.
	dot := strings.LastIndexByte(name, '.')
	endsLikeNumber := dot >= 0 && IsDigits(name[dot+1:])
	if number > 0 || endsLikeNumber {
		name += "." + strconv.Itoa(number)
	}
	if belongsToInterface {
		// The number has the form of ID_USB_INTERFACE_NUM of udev.
		return fmt.Sprintf("if%02x:%s", k.node.Interface, name)
	}
	return name
}

// unnumberedKey returns the key without the interface and the number in the family.
func (k kernelName) unnumberedKey() string {
	stem := strings.Trim(k.prefix+k.suffix, "_-.")
	if stem == "" {
		// Some names are only a number, such as the names of VFIO groups.
		stem = k.node.Subsystem
	}
	if k.part == "" {
		return nameField(stem)
	}
	class, _, _ := strings.Cut(stem, ":") // "iio:device"
	return nameField(class) + ":" + field(k.part)
}

// isNumberedByProbing reports whether the number of a node depends on the order of probing even if
// firmware describes the hardware. Device trees have aliases for the numbers of serial ports, SPI, I2C
// and MMC, but not for these (of_alias_get_id in drivers/of/base.c).
func (k kernelName) isNumberedByProbing() bool {
	switch k.node.Subsystem {
	case "drm", "sound", "video4linux", "media", "input", "hidraw", "iio", "dvb", "cec", "lirc", "bsg", "scsi_generic":
		return true
	case "i2c-dev", "gpio":
		return true // only some device trees define these aliases
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

// splitKernelName splits the kernel's name of a node at its counter. The counter is one of these:
//
//   - the letters of a disk (sdb, sdaa2)
//   - the first number in subsystems whose names have two (pcmC1D0p, nvme0n1, mmcblk0boot0,
//     dvb0.frontend1, wwan0at1, vport2p1), or if the name does not end with a number (mtd0ro)
//   - the first of two numbers that are separated by a dot (spidev0.1, wq0.3)
//   - otherwise the number at the end
func splitKernelName(n *Node) kernelName {
	k := kernelName{node: n, kind: nodeName, part: n.Part}
	if isUSBBusNode(n) {
		k.kind = busName
	}
	from, to := findCounter(n)
	k.prefix = n.Kernel[:from]
	k.counter = n.Kernel[from:to]
	k.suffix = n.Kernel[to:]
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

// findCounter returns the position of the counter in the kernel's name of a node.
func findCounter(n *Node) (from, to int) {
	switch n.Subsystem {
	case "block":
		from, to = diskLetters(n.Kernel)
		if to > 0 {
			return from, to
		}
		return firstNumber(n.Kernel)
	case "sound", "nvme", "nvme-generic", "dvb", "wwan", "spidev", "virtio-ports", "bsg":
		return firstNumber(n.Kernel)
	default:
		return lastNumber(n.Kernel)
	}
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

// splitNet is like splitKernelName, for a network interface.
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

// lastNumber returns the position of the number at the end of name, or of the first of two numbers
// that are separated by a dot. Without a number at the end it is like firstNumber.
func lastNumber(name string) (from, to int) {
	rest := strings.TrimRight(name, decimal)
	if rest == name {
		return firstNumber(name)
	}
	beforeDot, hasDot := strings.CutSuffix(rest, ".")
	stem := strings.TrimRight(beforeDot, decimal)
	if hasDot && stem != beforeDot {
		return len(stem), len(beforeDot)
	}
	return len(rest), len(name)
}

// firstNumber returns the position of the first digits of name, or the end of name twice if it
// has no digits.
func firstNumber(name string) (from, to int) {
	from = strings.IndexAny(name, decimal)
	if from < 0 {
		return len(name), len(name)
	}
	return from, from + leadingDigits(name[from:])
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
// "ttyUSB2" is before "ttyUSB10", and everything else by bytes. It returns zero only for equal
// strings.
func CompareNatural(a, b string) int {
	x := a
	y := b
	for x != "" && y != "" {
		m := leadingDigits(x)
		n := leadingDigits(y)
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

// leadingDigits returns the number of digits at the start of s.
func leadingDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// CompareNumber compares counters: 2 is before 10, and z is before aa. PCI addresses are in their
// order.
func CompareNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
