package device

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxKey is the longest key of a node, in characters.
const maxKey = 32

// NodeKeys returns the keys of the nodes of h. A key names a node within its
// hardware and stays the same when the kernel's name changes, since links and
// IDs are made of it:
//
//   - The bus node of a USB device is "bus".
//   - Nodes of a platform device keep the kernel's whole name ("ttyAMA0"),
//     since the firmware's tables fix it, but for those of subsystems that
//     count in the order of probing ("card0", "video10").
//   - Any other is the kernel's name without the number that the kernel counts
//     over the whole machine: ttyUSB3 is "ttyUSB", renderD128 "renderD",
//     pcmC1D0p "pcmCD0p", sdb2 "sd2". In front of it is the USB interface, if
//     it has one, in two hexadecimal digits: "if00:ttyUSB".
//   - Further nodes of the same name in the same interface get ".1", ".2": the
//     kernel's own index (Node.Index) where it has one. The others take the
//     numbers that are free, in the natural order of the kernel's names.
//   - A network interface is "net" whatever it is called, since names are given
//     by rules of the host and in every network namespace anew, and is numbered
//     like nodes: "net.1", "if00:net". Those that have one index are numbered in
//     the order of the devices below the hardware that they belong to, then of
//     their names.
//
// Keys are in the grammar of IDs, at most 32 characters.
func NodeKeys(h *Hardware) map[*Node]string {
	names := make([]kernelName, 0, len(h.Nodes)+len(h.Nets))
	for _, n := range h.Nodes {
		names = append(names, splitKernel(n))
	}
	for _, n := range h.Nets {
		names = append(names, splitNet(n))
	}
	slices.SortFunc(names, func(a, b kernelName) int {
		return cmp.Or(
			cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.node.Interface, b.node.Interface),
			cmp.Compare(a.prefix, b.prefix),
			CompareNatural(a.parent, b.parent),
			CompareNumber(a.counter, b.counter),
			cmp.Compare(a.suffix, b.suffix),
			cmp.Compare(a.copies(), b.copies()),
			cmp.Compare(a.node.Path, b.node.Path),
		)
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
				key = fit(key+hashPart(apart), maxKey)
			}
			taken[key] = true
			keys[k.node] = key
		}
		names = names[end:]
	}
	return keys
}

// kernelName is the kernel's name of a node, cut at the number that the
// kernel counts over the whole machine: prefix, counter, suffix.
type kernelName struct {
	node                    *Node
	kind                    nameKind
	prefix, counter, suffix string
	// parent is the directory of sysfs that a network interface is in. The kernel
	// counts nothing of it that lasts: its counter tells it apart from others.
	parent string
}

// nameKind orders names: the USB device's own node first, and interfaces last,
// so that the key of no node depends on them.
type nameKind byte

const (
	busName nameKind = iota
	nodeName
	netName
)

// copies is 0 for the kernel's own node, which comes before copies of it made by
// hand: they have its name and its number, but another path.
func (k kernelName) copies() int {
	if strings.HasSuffix(k.node.Path, "/"+k.node.Kernel) {
		return 0
	}
	return 1
}

func (k kernelName) sameFamily(other kernelName) bool {
	return k.kind != busName && k.kind == other.kind && k.node.Interface == other.node.Interface && k.prefix == other.prefix
}

// numberFamily numbers the counters of one family: nodes of one interface
// with one prefix, in their order. Nodes with one counter share its number:
// sdb, sdb1 and sdb2 are parts of one thing.
func numberFamily(family []kernelName) map[string]int {
	const maxIndex = 999_999
	numbers := make(map[string]int)
	taken := make(map[int]bool)
	for _, k := range family {
		i := k.node.Index
		if _, ok := numbers[k.counter]; ok || i < 0 || i > maxIndex || taken[i] {
			continue
		}
		numbers[k.counter] = i
		taken[i] = true
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
	// What the kernel does not count comes last: /dev/watchdog is there beside
	// the first watchdog of the machine only, so that it must not decide what
	// the key of /dev/watchdog0 is (watchdog_dev_register).
	if family[0].counter == "" {
		next("")
	}
	return numbers
}

func (k kernelName) key(bus Bus, number int) string {
	if k.kind == busName {
		return "bus"
	}
	if bus == PlatformBus && k.kind == nodeName && !k.probed() {
		return nameField(k.node.Kernel)
	}
	stem := strings.Trim(k.prefix+k.suffix, "_-.")
	if stem == "" {
		// vfio groups and their like are named by nothing but a number.
		stem = k.node.Subsystem
	}
	name := nameField(stem)
	interfaced := bus == USBBus && k.node.Interface >= 0
	if name == "bus" && bus == USBBus && !interfaced {
		name = replaced(name, name)
	}
	// A stem that ends like a number always says its own.
	if i := strings.LastIndexByte(name, '.'); number > 0 || i >= 0 && isDigits(name[i+1:]) {
		name += "." + strconv.Itoa(number)
	}
	if interfaced {
		// As udev writes ID_USB_INTERFACE_NUM.
		return fmt.Sprintf("if%02x:%s", k.node.Interface, name)
	}
	return name
}

// probed reports whether the number of a node depends on the order of probing
// even where firmware describes the hardware: device trees have no aliases for
// these numbers, as they have for those of serial ports, SPI, I2C and MMC
// (of_alias_get_id in drivers/of/base.c).
func (k kernelName) probed() bool {
	switch k.node.Subsystem {
	case "drm", "sound", "video4linux", "media", "input", "hidraw", "iio", "dvb", "cec", "lirc", "bsg", "scsi_generic":
		return true
	case "block":
		_, to := diskLetters(k.node.Kernel)
		return to > 0
	}
	return false
}

// nameField is field for names of nodes, which begin with a letter: so none
// of them reads as a port or as the number of an ACPI device.
func nameField(s string) string {
	if isClean(s) && strings.Contains(lower+upper, s[:1]) {
		return s
	}
	return replaced(s, s)
}

// splitKernel cuts the kernel's name of a node at its counter. That is the
// number at the end, or the first of two with a dot between them (spidev0.1,
// wq0.3), or the first one where none is at the end (mtd0ro) and in subsystems
// that count twice (pcmC1D0p, nvme0n1, mmcblk0boot0, dvb0.frontend1, wwan0at1,
// vport2p1), or the letters of a disk (sdb, sdaa2).
func splitKernel(n *Node) kernelName {
	k := kernelName{node: n, kind: nodeName}
	if h := n.Hardware; h != nil && h.Bus == USBBus && (n.SysPath == h.Path && n.SysPath != "" || strings.HasPrefix(n.Path, "/dev/bus/usb/")) {
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
	k.prefix, k.counter, k.suffix = name[:from], name[from:to], name[to:]
	switch n.Subsystem {
	case "bsg":
		// "6:0:1:0" and "end_device-6:0" begin with the number of the SCSI
		// host (scsi_bsg_register_queue, sas_bsg_initialize).
		k.prefix = strings.TrimSuffix("bsg-"+k.prefix, "-")
		k.suffix = strings.ReplaceAll(k.suffix, ":", "-")
	case "vfio-dev":
		// Beside the node of the IOMMU group, whose key is "vfio".
		k.prefix = "vfio-dev"
	}
	return k
}

// splitNet is splitKernel for a network interface.
func splitNet(n *Node) kernelName {
	parent := path.Dir(n.SysPath)
	return kernelName{node: n, kind: netName, prefix: "net", counter: parent + "/" + n.Kernel, parent: parent}
}

// lastNumber returns where the number at the end of name is that the kernel
// counts over the machine.
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

// firstNumber returns where the first digits of name are, and its end twice
// where it has none.
func firstNumber(name string) (from, to int) {
	from = strings.IndexAny(name, decimal)
	if from < 0 {
		return len(name), len(name)
	}
	return from, from + digits(name[from:])
}

// diskLetters returns where the letters are that count the disks of the SCSI,
// IDE, virtio and Xen drivers, and zeros where name is not one of theirs.
func diskLetters(name string) (from, to int) {
	for _, driver := range []string{"sd", "hd", "vd", "xvd"} {
		rest, ok := strings.CutPrefix(name, driver)
		letters := strings.TrimRight(rest, decimal)
		if ok && consists(letters, lower) {
			return len(driver), len(driver) + len(letters)
		}
	}
	return 0, 0
}

// CompareNatural orders names as people count: runs of digits by their value,
// so that "ttyUSB2" is before "ttyUSB10", all else by its bytes. It is zero
// for equal strings only.
func CompareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		if c := CompareNumber(strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits is how many digits s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// CompareNumber orders what counts, written with all its digits: 2 before 10, z
// before aa, and PCI addresses as they are numbered.
func CompareNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
