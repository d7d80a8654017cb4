package matchers

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// danger returns why a node grants a container access to the host, or an empty string. It judges the
// kernel's device with the number of the node, because the name of a node can be chosen freely.
func (m *run) danger(n *device.Node) string {
	// Every block device grants access to the host.
	if n.Type == device.BlockNode {
		return "it is a block device"
	}
	// A network interface is not judged.
	if n.Type != device.CharNode {
		return ""
	}
	known := n
	// A node that mknod(1) made has no entry of its own. The entry of its number applies.
	if n.SysPath == "" {
		i := slices.IndexFunc(m.snap.Nodes, func(other *device.Node) bool {
			isSame := other.Type == n.Type && other.Major == n.Major && other.Minor == n.Minor
			return isSame && other.SysPath != ""
		})
		if i < 0 {
			return m.unknownDanger(n)
		}
		known = m.snap.Nodes[i]
	}
	candidates := verdictIndex()[known.Subsystem]
	// Most subsystems have no verdict, and their nodes are harmless.
	if len(candidates) == 0 {
		return ""
	}
	name := kernelName(known)
	for _, v := range candidates {
		if !matchesName(v.device, name) {
			continue
		}
		if v.judge == nil {
			// The first verdict decides.
			return because(v.effect, name)
		}
		what := v.judge(m, known)
		if what != "" {
			return because(v.effect, what)
		}
	}
	if isUnreviewed(known) {
		return because(unreviewed, name)
	}
	return ""
}

// matchesName reports whether a name matches the pattern of a verdict. All patterns are valid.
func matchesName(pattern, name string) bool {
	matches, _ := path.Match(pattern, name)
	return matches
}

// because formats the reason of a dangerous device. It is empty for a harmless device.
func because(effect, name string) string {
	if effect == "" {
		return ""
	}
	return fmt.Sprintf("it %s (%s)", effect, name)
}

// kernelName returns the name of a node's device in sysfs with its subsystem: "misc uinput".
func kernelName(n *device.Node) string { return n.Subsystem + " " + path.Base(n.SysPath) }

// miscMajor is the major number of misc devices (include/uapi/linux/major.h).
const miscMajor = 10

// isUnreviewed reports whether a node whose name has no verdict is a misc device that may be dangerous. The class
// misc says nothing about a device, and most drivers that control the host itself use it. A misc device of
// hardware controls that hardware, like the devices of other classes.
func isUnreviewed(n *device.Node) bool {
	isMisc := n.Subsystem == "misc" && n.Major == miscMajor
	if !isMisc || n.Hardware != nil {
		return false
	}
	byNumber := fmt.Sprintf("misc %d", n.Minor)
	for _, v := range verdictIndex()["misc"] {
		if v.driver == byNumber {
			return v.effect != "" // a static minor number has one meaning
		}
	}
	return true
}

// fixedDrivers are the drivers of fixed major numbers. Opening a node with such a number may load the
// driver (Documentation/admin-guide/devices.txt).
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

// unknownDanger judges a node without an entry in sysfs. The driver of its major number may not
// be loaded yet.
func (m *run) unknownDanger(n *device.Node) string {
	// The running kernel knows better than the list of fixed numbers.
	driver := cmp.Or(m.Host.CharDriver(n.Major), fixedDrivers[n.Major])
	name := fmt.Sprintf("%s %d", driver, n.Minor)
	for _, v := range verdicts() {
		if matchesName(v.driver, name) {
			return because(v.effect, name)
		}
	}
	// The minor number is not listed. A driver that is loaded later may get it.
	if driver == "misc" {
		return because(unreviewed, name)
	}
	return ""
}

// cdiDanger returns the first dangerous node of a CDI device of the host, with the reason, or an empty
// string.
func (b *builder) cdiDanger(d *device.CDIDevice) string {
	for _, n := range d.Nodes {
		// A spec may give the number of a node. The runtime uses it, even if /dev has another
		// node.
		node := &device.Node{
			Path:  n.Path,
			Type:  n.Type,
			Major: n.Major,
			Minor: n.Minor,
		}
		// Without a number in the spec, the runtime uses the node of the host.
		if n.Type == 0 {
			node = b.at(n.Path)
		}
		// The path does not exist, so that the runtime cannot inject it.
		if node == nil {
			continue
		}
		why := b.danger(node)
		if why != "" {
			return n.Path + ": " + why
		}
	}
	return ""
}

// permits reports whether the item may be injected. why is why it is dangerous, or empty. isPermitted is
// the key dangerous of its match. If the item may not be injected, permits adds a problem that names
// the key to set in match.
func (b *builder) permits(what, why string, isPermitted bool, match string) bool {
	isHarmless := why == ""
	if isHarmless || isPermitted && b.Allow.Dangerous {
		return true
	}
	b.problem("%s is dangerous: %s: it requires dangerous = true in %s, and dangerous in --allow (in the chart: allow)", what, why, match)
	return false
}
