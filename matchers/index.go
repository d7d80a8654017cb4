package matchers

import (
	"iter"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// index answers questions about a host: from its snapshot, and from Host where
// that holds no answer. What not every configuration asks for is made when it is
// asked for, since every event pays for the rest.
type index struct {
	Options
	snap *device.Snapshot
	// names are the paths of nodes and of links to them, sorted; links are the
	// paths of the links to a node.
	names []name
	links map[*device.Node][]string

	byNumber func() map[number]*device.Node     // nodes that sysfs knows
	byName   func() map[string]*device.Hardware // PCI functions, by address
	byGroup  func() map[string][]*device.Hardware
	// keys of the nodes of hardware, and IDs of nodes.
	keys map[*device.Hardware]map[*device.Node]string
	ids  map[*device.Node]string
	// picked are the nodes that the matches of a resource have selected.
	picked map[*device.Node]bool
}

// name is a path of a node, its own or that of a link to it.
type name struct {
	path string
	node *device.Node
}

func newIndex(snap *device.Snapshot, opts Options) *index {
	ix := &index{
		Options:  opts,
		snap:     snap,
		names:    make([]name, 0, len(snap.Nodes)+len(snap.Links)),
		links:    make(map[*device.Node][]string, len(snap.Links)),
		byNumber: sync.OnceValue(func() map[number]*device.Node { return newNumberIndex(snap) }),
		byName:   sync.OnceValue(func() map[string]*device.Hardware { return functionsByName(snap) }),
		byGroup:  sync.OnceValue(func() map[string][]*device.Hardware { return functionsByGroup(snap) }),
		keys:     map[*device.Hardware]map[*device.Node]string{},
		ids:      map[*device.Node]string{},
		picked:   map[*device.Node]bool{},
	}
	if ix.Host == nil {
		ix.Host = noHost{}
	}
	for _, l := range snap.Links {
		ix.names = append(ix.names, name{l.Path, l.Node})
		ix.links[l.Node] = append(ix.links[l.Node], l.Path)
	}
	for _, n := range snap.Nodes {
		ix.names = append(ix.names, name{n.Path, n})
	}
	slices.SortFunc(ix.names, func(a, b name) int { return strings.Compare(a.path, b.path) })
	return ix
}

// noHost is a host of which nothing but the snapshot is known: nothing has
// attributes, and what is mounted is taken to be there.
type noHost struct{}

func (noHost) Attr(string, string) (string, bool) { return "", false }
func (noHost) Driver(string) string               { return "" }
func (noHost) CharDriver(uint32) string           { return "" }
func (noHost) InUse(*device.Node) string          { return "" }
func (noHost) Exists(string) bool                 { return true }
func (noHost) Glob(pattern.Values) []string       { return nil }

// beginning lists the names that begin with a prefix.
func (ix *index) beginning(prefix string) []name {
	from := sort.Search(len(ix.names), func(i int) bool { return ix.names[i].path >= prefix })
	n := sort.Search(len(ix.names)-from, func(i int) bool { return !strings.HasPrefix(ix.names[from+i].path, prefix) })
	return ix.names[from : from+n]
}

// at is the node at a path, links included; nil for none.
func (ix *index) at(path string) *device.Node {
	if found := ix.beginning(path); len(found) > 0 && found[0].path == path {
		return found[0].node
	}
	return nil
}

// isDir reports whether a path is that of a directory below /dev, or "/dev".
func (ix *index) isDir(path string) bool {
	_, found := slices.BinarySearch(ix.snap.Dirs, path)
	return found
}

// exists reports whether there is something at a path of the host.
func (ix *index) exists(path string) bool {
	return ix.at(path) != nil || ix.isDir(path) || ix.Host.Exists(path)
}

// globbed yields the nodes that v selects by their paths or those of their
// links, once for each of these.
func (ix *index) globbed(v pattern.Values) iter.Seq[*device.Node] {
	return func(yield func(*device.Node) bool) {
		for _, prefix := range v.Prefixes() {
			for _, n := range ix.beginning(prefix) {
				if v.Match(n.path) && (!v.Negative() || ix.globHolds(v, n.node)) && !yield(n.node) {
					return
				}
			}
		}
	}
}

// glob lists the nodes that v selects, each once.
func (ix *index) glob(v pattern.Values) []*device.Node {
	var found []*device.Node
	seen := map[*device.Node]bool{}
	for n := range ix.globbed(v) {
		if !seen[n] {
			seen[n] = true
			found = append(found, n)
		}
	}
	return found
}

// globHolds reports whether a glob selects a node: by its path, or by the
// path of a link that leads to it. All its names count at once: a "!" pattern
// that matches a link takes the node out.
func (ix *index) globHolds(v pattern.Values, n *device.Node) bool {
	links := ix.links[n]
	if own := v.Match(n.Path); len(links) == 0 || own && !v.Negative() {
		return own
	}
	return v.Match(append(links[:len(links):len(links)], n.Path)...)
}

// captures is what the wildcards of a glob stood for where it selects a node:
// in the node's own path if that matches, else in the first link that does.
func (ix *index) captures(v pattern.Values, n *device.Node) []string {
	for _, p := range append([]string{n.Path}, ix.links[n]...) {
		if found := v.Captures(p); found != nil {
			return found
		}
	}
	return nil
}

// files lists what there is on the host that a glob selects, sorted. As in a shell, a wildcard stands for no name that begins
// with a dot: what writes a file makes it under such a name first.
func (ix *index) files(v pattern.Values) []string {
	found := slices.DeleteFunc(ix.Host.Glob(v), func(p string) bool {
		return path.Base(p)[0] == '.' && !slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
			return a.Match(p) && path.Base(a.Shape())[0] == '.'
		})
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// attr is an attribute as the first of some directories of sysfs has it that
// does, and driver their driver likewise.
func (ix *index) attr(dirs []string, name string) string {
	for _, dir := range dirs {
		if value, found := ix.Host.Attr(dir, name); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (ix *index) driver(dirs []string) string {
	for _, dir := range dirs {
		if found := ix.Host.Driver(dir); found != "" {
			return found
		}
	}
	return ""
}

// sysDirs lists the directories of sysfs from a node up to its hardware,
// relative as in a snapshot. Where the hardware is not above the node, as that
// of an IOMMU group, it comes second. A node without hardware has its own
// directory alone.
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

func functionsByName(snap *device.Snapshot) map[string]*device.Hardware {
	found := map[string]*device.Hardware{}
	for _, h := range snap.Hardware {
		if h.PCI != nil {
			found[h.Name] = h
		}
	}
	return found
}

// functionsByGroup holds the functions of each IOMMU group by address, or its
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

// key is the key of a node within its hardware, or its ID where it has none.
func (ix *index) key(n *device.Node) string {
	h := n.Hardware
	if h == nil {
		return device.NodeID(n, "")
	}
	if ix.keys[h] == nil {
		ix.keys[h] = device.NodeKeys(h)
	}
	return ix.keys[h][n]
}

// nodeID is the whole ID of a node.
func (ix *index) nodeID(n *device.Node, forms device.Forms) string {
	id, ok := ix.ids[n]
	if !ok {
		id = device.NodeID(n, forms.Of(n.Hardware))
		ix.ids[n] = id
	}
	return id
}
