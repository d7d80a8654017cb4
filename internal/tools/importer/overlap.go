package importer

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Other plugins do not know of each other's devices, and not even of other resources of their
// own: two resources may both offer /dev/ttyUSB0, and a container each gets it. Ours gives a
// device to the first resource unless both are shared. The import therefore shares resources
// whose globs may match the same node, where the other plugin would have given it to both. Resources
// with different nodes of the same hardware are not shared: check has a note about them.

// shareOverlaps lets resources share devices that several of them may select, if either
// may be shared.
func (c *conversion) shareOverlaps() {
	for i, a := range c.resources {
		for _, b := range c.resources[:i] {
			mayShare := a.mayShare || b.mayShare
			if !mayShare || !a.overlaps(b) {
				continue
			}
			a.share()
			b.share()
			// The IDs of SR-IOV functions are their addresses otherwise.
			if a.mayShare != b.mayShare && a.Match[0].PCI != nil {
				c.warnings = addOnce(c.warnings, fmt.Sprintf("%s: %s and %s: differs: IDs of shared devices are not the addresses that Multus and CNI plugins need: exclude the devices from one of the resources", c.file, a.Name, b.Name))
			}
		}
	}
}

// share lets other resources have the devices of the resource.
func (r *resource) share() {
	r.Shared = true
	r.comments = addOnce(r.comments, "shared: another resource may select the same devices, and each counts its own slots")
}

// overlaps reports whether two resources may select the same node. It errs on the side of yes.
func (r *resource) overlaps(other *resource) bool {
	return slices.ContainsFunc(r.Match, func(m match) bool {
		return slices.ContainsFunc(other.Match, m.overlaps)
	})
}

// overlaps reports whether two matches may select the same node. Mounts do not count, since any number
// of containers may have them.
func (m match) overlaps(other match) bool {
	isMount := m.isMount() || other.isMount()
	sameUSB := mayBeSame(m.USB["id"], other.USB["id"]) && mayBeSame(m.USB["serial"], other.USB["serial"])
	samePaths := slices.ContainsFunc(m.Glob, func(a string) bool {
		return slices.ContainsFunc(other.Glob, func(b string) bool { return samePath(a, b) })
	})
	return !isMount && sameUSB && samePaths
}

// mayBeSame reports whether two lists of patterns may match the same value. An absent list matches
// any, and only single literal patterns are known to differ.
func mayBeSame(a, b any) bool {
	text := fmt.Sprint(a, b)
	isPattern := strings.ContainsAny(text, `*?{!\`)
	return a == nil || b == nil || isPattern || reflect.DeepEqual(a, b)
}

// samePath reports whether two globs may match the same node.
func samePath(a, b string) bool {
	prefix, isFixed := nodesOf(a)
	other, isOtherFixed := nodesOf(b)
	isBelow := strings.HasPrefix(prefix, other) && !isOtherFixed
	isAbove := strings.HasPrefix(other, prefix) && !isFixed
	return prefix == other || isBelow || isAbove
}

// nodesOf returns the beginning of the paths of the nodes that a glob selects.
func nodesOf(glob string) (prefix string, isFixed bool) {
	a, err := parseGlob(strings.TrimPrefix(glob, "!"))
	if err != nil {
		return "", false
	}
	prefix = a.Prefix()
	for links, target := range linkTargets {
		if strings.HasPrefix(prefix, links) {
			return target, false
		}
	}
	_, isFixed = a.Literal()
	return prefix, isFixed
}

// linkTargets are the nodes that the links in directories of udev point to. Links of an
// administrator's own rules may point anywhere: the first resource gets the node then, which check
// reports.
var linkTargets = map[string]string{
	"/dev/serial/by-":  "/dev/tty",
	"/dev/v4l/by-":     "/dev/v",
	"/dev/input/by-":   "/dev/input/",
	"/dev/snd/by-":     "/dev/snd/",
	"/dev/dri/by-path": "/dev/dri/",
}
