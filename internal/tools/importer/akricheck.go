package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The comparison evaluates the rules on a snapshot of the host, with the attributes of sysfs.
// It knows less than udev does: properties of udev's database are missing, except for those
// that follow from the hardware, and so are tags. Rules with others are not compared.

// akriLister lists the devices of a Configuration (discover in
// discovery-handlers/udev/src/discovery_handler.rs of Akri): each node that a rule selects.
type akriLister struct {
	resource string
	slots    int
	rules    [][]udevFilter
	// grouped joins a device with the devices below it.
	grouped bool
	// comparable is set if a snapshot of a host has everything that the rules test.
	comparable bool
}

// akriProperties are the properties of udev's database that a snapshot has.
var akriProperties = []string{"DEVNAME", "SUBSYSTEM", "ID_BUS", "ID_VENDOR_ID", "ID_MODEL_ID", "ID_SERIAL_SHORT"}

// canCompareAkri reports whether a snapshot of a host has everything that a rule tests.
// PCI functions have no nodes: what containers get depends on properties of the discovery.
func canCompareAkri(filters []udevFilter) bool {
	for _, f := range filters {
		if strings.HasPrefix(f.key, "TAG") || f.key == "DEVPATH" {
			return false
		}
		if f.key == "ENV" && !slices.Contains(akriProperties, f.name) {
			return false
		}
	}
	return !isPCIRule(filters)
}

// devices lists the devices on a host.
func (a akriLister) devices(h *host) (devices []Device) {
	groups := make(map[string][]string) // by directory in sysfs
	var order []string
	for _, n := range a.selected(h) {
		key := n.SysPath
		if a.grouped {
			key = topmost(key, order)
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], n.Path)
	}
	for _, key := range order {
		devices = append(devices, Device{
			Resource: a.resource,
			Slots:    a.slots,
			Nodes:    groups[key],
		})
	}
	return devices
}

// selected lists the nodes that a rule selects, a device before the devices below it.
func (a akriLister) selected(h *host) (nodes []*device.Node) {
	for _, n := range h.Nodes {
		isSelected := slices.ContainsFunc(a.rules, func(rule []udevFilter) bool {
			return h.akriSelects(n, rule)
		})
		if n.SysPath != "" && isSelected {
			nodes = append(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(a, b *device.Node) int {
		return strings.Compare(a.SysPath, b.SysPath)
	})
	return nodes
}

// topmost is the directory among others that contains a directory, otherwise the directory
// itself.
func topmost(dir string, others []string) string {
	for _, other := range others {
		if isBelow(dir, other) {
			return other
		}
	}
	return dir
}

// akriSelects reports whether a rule selects a node. Of the properties with ==, one is
// enough.
func (h *host) akriSelects(n *device.Node, rule []udevFilter) bool {
	hasProperty := false
	propertyHolds := false
	for _, f := range rule {
		if f.key == "ENV" && f.op == "==" {
			hasProperty = true
			propertyHolds = propertyHolds || h.akriHolds(n, f)
		} else if f.isMatch() && !h.akriHolds(n, f) {
			return false
		}
	}
	return !hasProperty || propertyHolds
}

// akriHolds reports whether a condition holds for a node.
func (h *host) akriHolds(n *device.Node, f udevFilter) bool {
	// Keys in the plural concern the device and all devices above it.
	dirs := []string{n.SysPath}
	if strings.HasSuffix(f.key, "S") { // ATTRS, DRIVERS, KERNELS, SUBSYSTEMS
		dirs = ancestors(n.SysPath)
	}
	for _, dir := range dirs {
		for _, text := range h.udevTexts(n, dir, f) {
			if akriEqual(f, text) {
				return !f.negated()
			}
		}
	}
	return f.negated()
}

// ancestors lists a directory of sysfs and the directories above it.
func ancestors(dir string) (dirs []string) {
	for dir != "." && dir != "/" && dir != "devices" {
		dirs = append(dirs, dir)
		dir = path.Dir(dir)
	}
	return dirs
}

// akriEqual reports whether a text equals the value of a condition.
func akriEqual(f udevFilter, text string) bool {
	if !isAkriRegexp(f) {
		ok, _ := path.Match(pathMatchGlob(f.value), strings.ReplaceAll(text, "/", "\x00"))
		return ok
	}
	re, err := regexp.Compile(f.value)
	if err != nil {
		return false
	}
	// Akri searches the expression, and wants the first place to be the whole text.
	at := re.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

// pathMatchGlob is a pattern of fnmatch for path.Match: without flags, the wildcards of
// fnmatch match "/", which the caller replaces.
func pathMatchGlob(glob string) string {
	return strings.NewReplacer("[!", "[^", "/", "\x00").Replace(glob)
}

// attrEntries is enough to find an attribute by its full name, in directory entries.
const attrEntries = 64

// udevTexts are the texts that a condition compares, of a node or of a directory above it.
func (h *host) udevTexts(n *device.Node, dir string, f udevFilter) (texts []string) {
	switch strings.TrimSuffix(f.key, "S") {
	case "KERNEL":
		return []string{strings.ReplaceAll(path.Base(dir), "!", "/")}
	case "SUBSYSTEM":
		return []string{h.subsystem(n, dir)}
	case "DRIVER":
		return nonEmpty(h.attributes.Driver(dir))
	case "ATTR":
		entries := attrEntries
		values, _ := h.attributes.Attr(dir, f.name, &entries)
		return values
	case "ENV":
		return nonEmpty(udevProperty(n, f.name))
	}
	return nil
}

// subsystem is the subsystem of a directory of sysfs.
func (h *host) subsystem(n *device.Node, dir string) string {
	if dir == n.SysPath {
		return n.Subsystem
	}
	for hw := n.Hardware; hw != nil; hw = hw.Parent {
		isInterface := hw.Bus == device.USBBus && path.Dir(dir) == hw.Path && strings.Contains(path.Base(dir), ":")
		if dir == hw.Path || isInterface {
			return string(hw.Bus)
		}
	}
	return ""
}

// udevProperty is a property that udev's built-in rules give a node.
func udevProperty(n *device.Node, name string) string {
	switch name {
	case "DEVNAME":
		return n.Path
	case "SUBSYSTEM":
		return n.Subsystem
	}
	if n.Hardware == nil || n.Hardware.USB == nil {
		return ""
	}
	usb := n.Hardware.USB
	switch name {
	case "ID_BUS":
		return "usb"
	case "ID_VENDOR_ID":
		return usb.Vendor
	case "ID_MODEL_ID":
		return usb.Product
	case "ID_SERIAL_SHORT":
		return usb.Serial
	}
	return ""
}

// nonEmpty is a list of a text, unless it is empty.
func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
