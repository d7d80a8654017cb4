package matchers

import (
	"iter"
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

// mayMatch yields the nodes that a glob may select, with repeats. Names with the same beginning are adjacent in
// a snapshot, so that most nodes are not compared.
func (m *run) mayMatch(v pattern.Values) iter.Seq[*device.Node] {
	if v.Negative() {
		return slices.Values(m.snap.Nodes)
	}
	return func(yield func(*device.Node) bool) {
		for _, a := range v.Alternatives() {
			prefix := a.Prefix()
			i, _ := slices.BinarySearchFunc(m.snap.Nodes, prefix, compareNode)
			for ; i < len(m.snap.Nodes) && strings.HasPrefix(m.snap.Nodes[i].Path, prefix); i++ {
				if !yield(m.snap.Nodes[i]) {
					return
				}
			}
			i, _ = slices.BinarySearchFunc(m.snap.Links, prefix, compareLink)
			for ; i < len(m.snap.Links) && strings.HasPrefix(m.snap.Links[i].Path, prefix); i++ {
				n := m.snap.Links[i].Node
				if !strings.HasPrefix(n.Path, prefix) && !yield(n) {
					return
				}
			}
		}
	}
}

// isDir reports whether a path is /dev or a directory below.
func (m *run) isDir(path string) bool {
	_, found := slices.BinarySearch(m.snap.Dirs, path)
	return found
}

// hasName reports whether a glob selects a node by any of its names. A "!" pattern that matches one of them
// excludes the node.
func (m *run) hasName(n *device.Node, v pattern.Values) bool {
	if v.Negative() {
		return v.Match(m.pathsOf(target{node: n})...)
	}
	isMatch := func(link string) bool {
		return v.Match(link)
	}
	return v.Match(n.Path) || slices.ContainsFunc(m.links[n], isMatch)
}

// glob lists the nodes that a glob selects.
func (m *run) glob(v pattern.Values) []*device.Node {
	var found []*device.Node
	for _, n := range m.snap.Nodes {
		if !m.isLate(v) && m.hasName(n, v) {
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
	for _, p := range m.pathsOf(target{node: n}) {
		if found := v.Captures(p); found != nil {
			return found
		}
	}
	return nil
}

// pathsOf lists the path of a node and the paths of the links to it. The node is usually found by its
// path, so that the path comes first.
func (m *run) pathsOf(t target) []string {
	return append([]string{t.node.Path}, m.links[t.node]...)
}

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
	add := func(driver string) {
		if driver != "" && !slices.Contains(found, driver) {
			found = append(found, driver)
		}
	}
	// An interface may have a driver, but no hardware that the snapshot knows.
	if t.isNet() {
		add(t.node.Net.Driver)
	}
	h := ownerOf(t)
	for _, dir := range dirsOf(t) {
		isFunction := h != nil && h.PCI != nil && dir == h.Path
		// The snapshot has the drivers of functions. A driver that is read now may be another one.
		if isFunction {
			add(h.PCI.Driver)
		} else {
			add(m.Host.Driver(dir))
		}
	}
	return found
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

// linksByNode has the paths of the links to each node.
func linksByNode(snap *device.Snapshot) map[*device.Node][]string {
	found := make(map[*device.Node][]string, len(snap.Links))
	for _, l := range snap.Links {
		found[l.Node] = append(found[l.Node], l.Path)
	}
	return found
}

// functionsByAddress has the PCI functions by address.
func functionsByAddress(snap *device.Snapshot) map[string]*device.Hardware {
	found := map[string]*device.Hardware{}
	for _, h := range snap.Hardware {
		if h.PCI != nil {
			found[h.Name] = h
		}
	}
	return found
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

// nodeIDAs is the ID of a node, with its hardware in a form. The namespace of an NVMe node is its
// whole ID, so that the key is not needed.
func (m *run) nodeIDAs(n *device.Node, form device.Form) string {
	if n.Hardware == nil || n.Namespace != "" {
		return device.NodeID(n, form)
	}
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
