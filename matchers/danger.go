package matchers

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
)

// number is a device number.
type number struct {
	kind         device.NodeType
	major, minor uint32
}

func numberOf(n *device.Node) number {
	return number{
		kind:  n.Type,
		major: n.Major,
		minor: n.Minor,
	}
}

// newNumberIndex indexes the nodes in sysfs by number: a copy made by hand has the same
// device.
func newNumberIndex(snap *device.Snapshot) map[number]*device.Node {
	nodes := make(map[number]*device.Node, len(snap.Nodes))
	for _, n := range snap.Nodes {
		if n.SysPath != "" {
			nodes[numberOf(n)] = n
		}
	}
	return nodes
}

// danger returns why a node gives a container access to the host, or "" if it does not. It
// judges the kernel's device that has the number of the node, since anybody who can make nodes
// chooses their names.
func (m *run) danger(n *device.Node) string {
	if n.Type == device.BlockNode {
		return "it is a block device"
	}
	if n.Type != device.CharNode {
		return ""
	}
	known := n
	if n.SysPath == "" {
		known = m.indexes.byNumber()[numberOf(n)]
	}
	if known == nil {
		return m.unknownDanger(n)
	}
	if why := m.ruleDanger(known); why != "" {
		return why
	}
	candidates := classIndex()[known.Subsystem]
	if len(candidates) == 0 {
		return ""
	}
	name := kernelName(known)
	for _, c := range candidates {
		if ok, _ := path.Match(c.device, name); ok {
			return because(c.effect, name)
		}
	}
	if isUnreviewed(known, name) {
		return because(unreviewed, name)
	}
	return ""
}

// because formats the reason of a dangerous device, or "" for a harmless one.
func because(e effect, name string) string {
	if e == "" {
		return ""
	}
	return fmt.Sprintf("it %s (%s)", e, name)
}

// kernelName returns what sysfs calls the device of a node: "misc uinput".
func kernelName(n *device.Node) string { return n.Subsystem + " " + path.Base(n.SysPath) }

// indexedClass is a class with its effect, "" if it is harmless.
type indexedClass struct {
	class
	effect effect
}

// classes lists harmless and dangerous classes. Harmless classes come first: they are the
// exceptions.
var classes = sync.OnceValue(listClasses)

func listClasses() []indexedClass {
	var all []indexedClass
	for _, v := range harmless {
		for _, c := range v.classes {
			all = append(all, indexedClass{class: c})
		}
	}
	for _, v := range dangerous {
		for _, c := range v.classes {
			all = append(all, indexedClass{c, v.effect})
		}
	}
	return all
}

// classIndex has the classes by subsystem.
var classIndex = sync.OnceValue(func() map[string][]indexedClass {
	index := map[string][]indexedClass{}
	for _, c := range classes() {
		if subsystem, _, ok := strings.Cut(c.device, " "); ok {
			index[subsystem] = append(index[subsystem], c)
		}
	}
	return index
})

// miscMajor is the major number of misc devices (include/uapi/linux/major.h).
const miscMajor = 10

// isUnreviewed reports whether a node is a misc device that nobody knows. The class says
// nothing about a device: most drivers that control the host itself have one. A misc device
// of hardware controls that hardware, like the devices of other classes.
func isUnreviewed(n *device.Node, name string) bool {
	isMisc := n.Subsystem == "misc" && n.Major == miscMajor
	if !isMisc || n.Hardware != nil {
		return false
	}
	byNumber := fmt.Sprintf("misc %d", n.Minor)
	for _, c := range classIndex()["misc"] {
		if ok, _ := path.Match(c.device, name); ok {
			return false
		}
		if c.driver == byNumber {
			return c.effect != "" // a static minor number has one meaning
		}
	}
	return true
}

// fixedDrivers are the drivers of fixed major numbers, which may be loaded when a node of
// theirs is opened (Documentation/admin-guide/devices.txt).
var fixedDrivers = map[uint32]string{
	1:         "mem",
	5:         "/dev/console",
	7:         "vcs",
	miscMajor: "misc",
	13:        "input",
	21:        "sg",
	89:        "i2c",
	90:        "mtd",
	162:       "raw",
	202:       "cpu/msr",
}

// unknownDanger judges a node without an entry in sysfs.
func (m *run) unknownDanger(n *device.Node) string {
	driver := cmp.Or(m.Host.CharDriver(n.Major), fixedDrivers[n.Major])
	name := fmt.Sprintf("%s %d", driver, n.Minor)
	for _, c := range classes() {
		if ok, _ := path.Match(c.driver, name); ok {
			return because(c.effect, name)
		}
	}
	if driver == "misc" {
		return because(unreviewed, name)
	}
	return ""
}

// cdiDanger returns the dangerous node of a CDI device of the host, and why.
func (b *builder) cdiDanger(d *device.CDIDevice) string {
	for _, n := range d.Nodes {
		node := &device.Node{
			Path:  n.Path,
			Type:  n.Type,
			Major: n.Major,
			Minor: n.Minor,
		}
		if n.Type == 0 {
			node = b.at(n.Path)
		}
		if node == nil {
			continue
		}
		if why := b.danger(node); why != "" {
			return n.Path + ": " + why
		}
	}
	return ""
}

// permits reports whether a container may have something; why is why it is dangerous, or empty.
// If the container may not have it, permits adds a problem that names the key to set in match.
func (b *builder) permits(what, why string, isPermitted bool, match string) bool {
	if why == "" || isPermitted && b.Allow.Dangerous {
		return true
	}
	b.problem("%s is dangerous: %s: want dangerous = true in %s, and --allow=dangerous", what, why, match)
	return false
}
