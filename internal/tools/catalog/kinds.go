package catalog

import (
	_ "embed" // for kindsPage
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
)

// kind is a kind of hardware or of nodes, as an administrator calls it, and the resource for it in a
// starter configuration: a row of KINDS.md. The zero kind is unknown.
type kind struct {
	name string
	// resource is the name of the resource; empty if such hardware serves the host itself.
	resource string
	// nodes are globs. A kind of nodes has one.
	nodes      []string
	pciClasses []string
	usbClasses []string
	drivers    []string
	words      []string
	path       string
	together   []string
	with       []string
	vendor     string
	// count is the number of containers that share a node.
	count int
	// each is set if each node is a resource.
	each bool
	// note is about the resource of a kind of nodes.
	note string
}

//go:embed KINDS.md
var kindsPage string

// kinds are the kinds of hardware, and nodeKinds the kinds of nodes.
var (
	kinds     = sync.OnceValue(func() []kind { return readKinds("Hardware") })
	nodeKinds = sync.OnceValue(func() []kind { return readKinds("Nodes") })
)

// readKinds reads the table below a heading of the page.
func readKinds(heading string) []kind {
	_, table, _ := strings.Cut(kindsPage, "\n## "+heading+"\n")
	table, _, _ = strings.Cut(table, "\n## ")
	_, rows, _ := strings.Cut(table, "|---|\n")
	var all []kind
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		k := kind{
			name:     cells[0],
			resource: strings.Trim(cells[1], "-"),
			note:     strings.Trim(cells[4], "-"),
		}
		for _, item := range strings.Fields(strings.Trim(cells[2], "`") + " " + strings.Trim(cells[3], "`")) {
			k.add(item)
		}
		all = append(all, k)
	}
	return all
}

// add adds an item of a row: a glob, or a name with a value.
func (k *kind) add(item string) {
	name, value, _ := strings.Cut(item, ":")
	switch name {
	case "-":
	case "pci":
		k.pciClasses = append(k.pciClasses, value)
	case "usb":
		k.usbClasses = append(k.usbClasses, value)
	case "driver":
		k.drivers = append(k.drivers, value)
	case "word":
		k.words = append(k.words, value)
	case "path":
		k.path = value
	case "together":
		k.together = append(k.together, value)
	case "with":
		k.with = append(k.with, value)
	case "vendor":
		k.vendor = value
	case "count":
		k.count, _ = strconv.Atoi(value)
	case "each":
		k.each = true
	default:
		k.nodes = append(k.nodes, item)
	}
}

// Nodes that several rules name.
var (
	// serialNodes are the ports of USB serial adapters, of usb-serial and cdc_acm.
	serialNodes = []string{"/dev/ttyUSB*", "/dev/ttyACM*"}
	// mediaNodes configure the pipeline of a camera (Documentation/userspace-api/media).
	mediaNodes = []string{"/dev/media*", "/dev/v4l-subdev*"}
	// soundNodes are the nodes of ALSA.
	soundNodes = []string{"/dev/snd/*"}
)

// networkKind is the kind of hardware with network interfaces.
const networkKind = "network"

// serialKind is the kind of serial ports of a board.
const serialKind = "serial port"

// kindOf returns the kind of hardware, and the zero kind if it is unknown.
func (c *Catalog) kindOf(h *device.Hardware) kind {
	if h.MDev != nil {
		return kind{name: "mediated device"}
	}
	if h.IsPartition() {
		return c.kindOf(h.Parent)
	}
	for _, k := range kinds() {
		if c.isKind(h, &k) {
			return k
		}
	}
	return kind{}
}

// isKind reports whether hardware is of a kind. A class is assigned by the manufacturer, and nodes
// are created by a driver: either is enough.
func (c *Catalog) isKind(h *device.Hardware, k *kind) bool {
	switch {
	case h.PCI != nil && hasPrefix(h.PCI.Class, k.pciClasses):
		return true
	case h.USB != nil && k.hasInterface(h.USB):
		return true
	case k.name == networkKind && len(h.Nets) > 0:
		return true
	case !c.hasNode(h, k.nodes):
		return false
	case len(k.words) == 0:
		return true
	case h.Bus == device.PlatformBus:
		return c.hasWord(h, k.words)
	}
	// On other buses, the nodes of video4linux belong to cameras.
	return len(k.usbClasses) > 0
}

// hasInterface reports whether an interface of a USB device is of the kind.
func (k *kind) hasInterface(u *device.USB) bool {
	for _, i := range u.Interfaces {
		if slices.Contains(k.usbClasses, i.Class) || slices.Contains(k.drivers, i.Driver) {
			return true
		}
	}
	return false
}

// hasWord reports whether the name of a platform device or of its driver has one of some
// words: "bcm2835-codec", "fe801000.csi", "rkisp1".
func (c *Catalog) hasWord(h *device.Hardware, words []string) bool {
	name := strings.ToLower(h.Name + " " + c.host.Driver(h.Path))
	isSeparator := func(r rune) bool { return strings.ContainsRune(" .-_:", r) }
	for _, part := range strings.FieldsFunc(name, isSeparator) {
		// Drivers have the generation of the hardware at the end: "csi2", "isp1".
		if slices.Contains(words, stem(part)) {
			return true
		}
	}
	return false
}

// hasPrefix reports whether a text starts with one of some prefixes. Classes have the base
// class first, then the subclass and the programming interface.
func hasPrefix(s string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

const gpioSubsystem = "gpio"

// kindOfNode returns the kind of a node without hardware. The kind of an unknown node has the name
// of its subsystem, and a resource with the name of the node. The name of a serial port says nothing
// without its number: ttyS, ttyAMA.
func (c *Catalog) kindOfNode(n *device.Node) kind {
	for _, k := range nodeKinds() {
		if c.matches(n.Path, k.nodes...) {
			return k
		}
	}
	// The subsystem is what the kernel calls the kind of a node.
	name := n.Subsystem
	resource := stem(n.Kernel)
	isSerial := func(k kind) bool { return k.name == serialKind && c.matches(n.Path, k.nodes...) }
	switch {
	case n.Net != nil:
		name = networkKind
	case slices.ContainsFunc(kinds(), isSerial):
		name = serialKind
		resource = serialKind
	}
	return kind{
		name:     name,
		resource: slug(strings.ToLower(resource)),
	}
}

// isOfBoard reports whether a GPIO chip belongs to the chipset of a PC: its lines are wired
// on the board, to the power button or the lid, and pods have no use for them. The ACPI tables
// name it after its manufacturer: "INT34C5:00", "AMDI0030:00".
func isOfBoard(h *device.Hardware) bool {
	return h != nil && (h.PCI != nil || hasPrefix(h.Name, []string{"INT", "AMD"}))
}

// isDisplaySound reports whether a function is the sound of a graphics card, for its HDMI
// connectors. It is a function of the same card.
func (c *Catalog) isDisplaySound(h *device.Hardware) bool {
	if h.PCI == nil || !strings.HasPrefix(h.PCI.Class, "0403") {
		return false
	}
	// PCI_CLASS_MULTIMEDIA_HD_AUDIO. The sound of a board is in a slot of its own.
	slot := pciSlot(h.PCI.Address)
	return slices.ContainsFunc(c.snap.Hardware, func(o *device.Hardware) bool {
		isDisplay := o.PCI != nil && strings.HasPrefix(o.PCI.Class, "03")
		return isDisplay && pciSlot(o.PCI.Address) == slot
	})
}

// pciSlot returns an address without the function: "0000:3b:00" of "0000:3b:00.1".
func pciSlot(address string) string {
	slot, _, _ := strings.Cut(address, ".")
	return slot
}

// isSibling reports whether a function belongs to the IOMMU group of a function of another model
// that comes first, like the sound of a GPU that is bound to VFIO. The resource of the first
// function already injects the whole group.
func (c *Catalog) isSibling(h *device.Hardware) bool {
	if h.PCI == nil || !h.PCI.VFIO {
		return false
	}
	for _, other := range c.snap.Hardware {
		if other.PCI == nil || !other.PCI.VFIO || other.PCI.IOMMUGroup != h.PCI.IOMMUGroup {
			continue
		}
		// Functions of one model are one group of the starter configuration anyway.
		isOther := attribute(other, "pci.id") != attribute(h, "pci.id")
		if isOther && other.PCI.Address < h.PCI.Address {
			return true
		}
	}
	return false
}
