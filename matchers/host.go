package matchers

import (
	"iter"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// maxEntries bounds the entries of directories that one Match reads in search of paths.
// "/sys/**" has some 20,000 of them on a small host, which takes 0.2 s.
const maxEntries = 400_000

const givenUp = "the searches for paths of a configuration read 400,000 entries of directories"

// beginning is the part of a list, sorted by path, whose paths have a prefix.
func beginning[T any](list []T, path func(T) string, prefix string) []T {
	list = list[sort.Search(len(list), func(i int) bool { return path(list[i]) >= prefix }):]
	return list[:sort.Search(len(list), func(i int) bool { return !strings.HasPrefix(path(list[i]), prefix) })]
}

func nodePath(n *device.Node) string { return n.Path }
func linkPath(l device.Link) string  { return l.Path }

// names yields the nodes whose path has a prefix, or that of a link to them.
func (m *run) names(prefix string) iter.Seq2[string, *device.Node] {
	return func(yield func(string, *device.Node) bool) {
		for _, n := range beginning(m.snap.Nodes, nodePath, prefix) {
			if !yield(n.Path, n) {
				return
			}
		}
		for _, l := range beginning(m.snap.Links, linkPath, prefix) {
			if !yield(l.Path, l.Node) {
				return
			}
		}
	}
}

// at is the node at a path, which may be that of a link; nil for none.
func (m *run) at(path string) *device.Node {
	if found := beginning(m.snap.Nodes, nodePath, path); len(found) > 0 && found[0].Path == path {
		return found[0]
	}
	if found := beginning(m.snap.Links, linkPath, path); len(found) > 0 && found[0].Path == path {
		return found[0].Node
	}
	return nil
}

// isDir reports whether a path is /dev or a directory below.
func (m *run) isDir(path string) bool {
	_, found := slices.BinarySearch(m.snap.Dirs, path)
	return found
}

// exists reports whether a path of the host exists.
func (m *run) exists(path string) bool {
	return m.at(path) != nil || m.isDir(path) || m.Host.Exists(path)
}

// globbed yields the nodes that a glob selects, once for each matching name.
func (m *run) globbed(v pattern.Values) iter.Seq[*device.Node] {
	return func(yield func(*device.Node) bool) {
		for _, prefix := range v.Prefixes() {
			for path, n := range m.names(prefix) {
				if v.Match(path) && (!v.Negative() || m.matchesGlob(v, n)) && !yield(n) {
					return
				}
			}
		}
	}
}

// glob lists the nodes that a glob selects, without repeats.
func (m *run) glob(v pattern.Values) []*device.Node {
	var found []*device.Node
	seen := map[*device.Node]bool{}
	for n := range m.globbed(v) {
		if !seen[n] {
			seen[n] = true
			found = append(found, n)
		}
	}
	return found
}

// matchesGlob reports whether a glob selects a node by any of its names. A "!"
// pattern that matches one of them excludes the node.
func (m *run) matchesGlob(v pattern.Values, n *device.Node) bool {
	if v.Match(n.Path) && !v.Negative() {
		return true
	}
	return v.Match(m.pathsOf(n)...)
}

// captures is what the wildcards of a glob matched: in the path of a node, or
// else in the first link to it.
func (m *run) captures(v pattern.Values, n *device.Node) []string {
	for _, p := range m.pathsOf(n) {
		if found := v.Captures(p); found != nil {
			return found
		}
	}
	return nil
}

// pathsOf lists the path of a node and those of the links to it.
func (m *run) pathsOf(n *device.Node) []string { return append([]string{n.Path}, m.links()[n]...) }

// search lists the host paths that a glob matches.
func (m *run) search(v pattern.Values) []string {
	found := m.Host.Glob(v, &m.entries)
	m.givenUp = m.givenUp || m.entries == 0
	return found
}

// files lists the host paths that a glob selects, sorted. As in a shell, a
// wildcard does not match a leading dot: programs write files under hidden names
// and rename them.
func (m *run) files(v pattern.Values) []string {
	found := slices.DeleteFunc(m.search(v), func(p string) bool {
		return path.Base(p)[0] == '.' && !slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
			return a.Match(p) && path.Base(a.Shape())[0] == '.'
		})
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// attr lists the values of an attribute of the first of some sysfs directories that has
// it, and driver is likewise their driver.
func (m *run) attr(dirs []string, name string) (values []string, unread bool) {
	for _, dir := range dirs {
		if values, unread = m.Host.Attr(dir, name); values != nil || unread {
			break
		}
	}
	return values, unread
}

func (m *run) driver(dirs []string) string {
	for _, dir := range dirs {
		if found := m.Host.Driver(dir); found != "" {
			return found
		}
	}
	return ""
}

// sysDirs lists the sysfs directories from a node up to its hardware. Hardware
// that is not above the node, as that of an IOMMU group, comes second. A node
// without hardware has its own directory only.
func sysDirs(n *device.Node) []string {
	var dirs []string
	top, dir := hardwarePath(n.Hardware), n.SysPath
	if dir != "" && !strings.HasPrefix(dir, top+"/") {
		dirs, dir = []string{dir}, top
	}
	for ; len(dir) > len(top); dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	if top != "" {
		dirs = append(dirs, top)
	}
	return dirs
}

func hardwarePath(h *device.Hardware) string {
	if h == nil {
		return ""
	}
	return h.Path
}

func linksByNode(snap *device.Snapshot) map[*device.Node][]string {
	found := make(map[*device.Node][]string, len(snap.Links))
	for _, l := range snap.Links {
		found[l.Node] = append(found[l.Node], l.Path)
	}
	return found
}

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
		if g := h.IOMMUGroup(); g != "" {
			found[g] = append(found[g], h)
		}
	}
	for _, list := range found {
		slices.SortFunc(list, compareFunctions)
	}
	return found
}

// nodeIDAs is the ID of a node, with its hardware in a form.
func (m *run) nodeIDAs(n *device.Node, form device.Form) string {
	if n.Hardware == nil || n.Namespace != "" {
		return device.NodeID(n, form)
	}
	return device.KeyedNodeID(n, form, m.key(n))
}

// key is the key of a node within its hardware, or its ID without hardware.
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
