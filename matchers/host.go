package matchers

import (
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// at returns the node at a path or behind the link at the path, or nil. It never reads the host:
// the scan has resolved all links.
func (m *run) at(path string) *device.Node {
	i, isNode := slices.BinarySearchFunc(m.snap.Nodes, path, compareNode)
	if isNode {
		return m.snap.Nodes[i]
	}
	i, isLink := slices.BinarySearchFunc(m.snap.Links, path, compareLink)
	if isLink {
		return m.snap.Links[i].Node
	}
	return nil
}

func compareNode(n *device.Node, path string) int { return strings.Compare(n.Path, path) }

func compareLink(l device.Link, path string) int { return strings.Compare(l.Path, path) }

// isDir reports whether a path is /dev or a directory below.
func (m *run) isDir(path string) bool {
	_, found := slices.BinarySearch(m.snap.Dirs, path)
	return found
}

// glob lists the nodes that a glob selects.
func (m *run) glob(v pattern.Values) []*device.Node {
	var found []*device.Node
	for _, n := range m.snap.Nodes {
		if !m.isLate(v) && v.Match(m.namesOf(n)...) {
			found = append(found, n)
		}
	}
	return found
}

// captures lists the texts that the wildcards of a glob matched in the path of a node, or else
// in the path of the first link to it.
func (m *run) captures(v pattern.Values, n *device.Node) []string {
	if m.isLate(v) {
		return nil
	}
	for _, p := range m.namesOf(n) {
		if found := v.Captures(p); found != nil {
			return found
		}
	}
	return nil
}

// namesOf lists the path of a node and the paths of the links to it. A glob selects a node by any of them. The
// node is usually found by its path, so that the path comes first.
func (m *run) namesOf(n *device.Node) []string {
	names := m.names[n]
	if names == nil {
		return []string{n.Path}
	}
	return names
}

// pathsOf is namesOf for a condition.
func (m *run) pathsOf(t target) []string { return m.namesOf(t.node) }

// files lists the host paths that a glob selects, sorted. As in a shell, a wildcard does not
// match a leading dot: programs write files under hidden names and rename them. place is the
// place in the configuration, for messages.
func (m *run) files(place string, v pattern.Values) []string {
	// A search that is cut off is reported by reportUnknown. The paths found so far are used.
	found, _ := m.search(place, "glob "+quotedPatterns(v), v)
	found = slices.DeleteFunc(found, func(p string) bool {
		return isHidden(p) && !namesHidden(v, p)
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// isHidden reports whether the last element of a path or a glob begins with a dot.
func isHidden(p string) bool { return path.Base(p)[0] == '.' }

// namesHidden reports whether a pattern that matches p spells out the leading dot.
func namesHidden(v pattern.Values, p string) bool {
	return slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
		return a.Match(p) && isHidden(a.Shape())
	})
}

// drivers lists the drivers of a node or a network interface, and of the devices above it up to its
// hardware, or only of hardware as a whole. The nearest driver comes first.
func (m *run) drivers(t target) []string {
	var found []string
	// An interface may have a driver, but no hardware that the snapshot knows.
	if t.isNet() {
		found = append(found, t.node.Net.Driver)
	}
	h := ownerOf(t)
	for _, dir := range dirsOf(t) {
		isFunction := h != nil && h.PCI != nil && dir == h.Path
		// The snapshot has the drivers of functions. A driver that is read now may be another one.
		if isFunction {
			found = append(found, h.PCI.Driver)
		} else {
			found = append(found, m.Host.Driver(dir))
		}
	}
	return unique(found)
}

// ownerOf returns the hardware that owns the node of a target, or the hardware as a whole.
func ownerOf(t target) *device.Hardware {
	if t.node != nil {
		return t.node.Hardware
	}
	return t.hardware
}

// dirsOf lists the sysfs directories from a node up to its hardware, or of hardware as a whole. The
// nearest directory comes first, and decides which attribute counts if several have one with the same name.
// The hardware of an IOMMU group is not above the node of the group. A node without hardware has only
// its own directory. The attributes of partitioning are in the directory of the GPU, which follows
// its partition.
func dirsOf(t target) []string {
	var dirs []string
	dir := ""
	if t.node != nil {
		dir = t.node.SysPath
	}
	h := ownerOf(t)
	top := hardwarePath(h)
	// The directory is not below the hardware: there is no hardware, the node belongs to an IOMMU
	// group, or the directory is the directory of the hardware.
	if dir != "" && !strings.HasPrefix(dir, top+"/") {
		dirs = append(dirs, dir)
		dir = top
	}
	// Without hardware, top is empty, and dir was set to it above.
	for ; len(dir) > len(top); dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	if top != "" {
		dirs = append(dirs, top)
	}
	if h != nil && h.IsPartition() {
		dirs = append(dirs, h.Parent.Path)
	}
	return dirs
}

// hardwarePath returns the sysfs path of hardware, or "" without hardware.
func hardwarePath(h *device.Hardware) string {
	if h == nil {
		return ""
	}
	return h.Path
}

// namesByNode has the names of each node, see namesOf.
func namesByNode(snap *device.Snapshot) map[*device.Node][]string {
	names := make(map[*device.Node][]string, len(snap.Nodes))
	for _, n := range snap.Nodes {
		names[n] = []string{n.Path}
	}
	for _, l := range snap.Links {
		names[l.Node] = append(names[l.Node], l.Path)
	}
	return names
}

// function returns the PCI function with an address, or nil if the snapshot lacks it.
func (m *run) function(address string) *device.Hardware {
	i := slices.IndexFunc(m.snap.Hardware, func(h *device.Hardware) bool {
		return h.PCI != nil && h.Name == address
	})
	if i < 0 {
		return nil
	}
	return m.snap.Hardware[i]
}

// functionsByGroup lists the functions of each IOMMU group by address, or its
// mediated device.
func functionsByGroup(snap *device.Snapshot) map[string][]*device.Hardware {
	found := map[string][]*device.Hardware{}
	for _, h := range snap.Hardware {
		number := h.IOMMUGroup()
		if number != "" {
			found[number] = append(found[number], h)
		}
	}
	for _, list := range found {
		slices.SortFunc(list, compareFunctions)
	}
	return found
}

// nodeIDAs is the ID of a node, with its hardware in a form.
func (m *run) nodeIDAs(n *device.Node, form device.Form) string {
	return device.KeyedNodeID(n, form, m.key(n))
}

// key returns the key of a node within its hardware, or its ID without hardware.
func (m *run) key(n *device.Node) string {
	h := n.Hardware
	if h == nil {
		return device.NodeID(n, "")
	}
	if m.keys[h] == nil {
		m.keys[h] = device.NodeKeys(h)
	}
	return m.keys[h][n]
}
