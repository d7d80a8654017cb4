package matchers

import (
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/device"
)

// index finds things in a snapshot without looking at all of them: a node has
// hundreds of matches and thousands of devices. What not every configuration
// asks for is made when it is asked for, since every event pays for the rest.
type index struct {
	snap *device.Snapshot
	// opts say what of the host the snapshot does not.
	opts Options
	bus  map[device.Bus][]*device.Hardware
	// rank of hardware in the snapshot, from 1: short to compare.
	rank map[*device.Hardware]int

	// names are the paths of nodes and of links to them, sorted.
	names []name
	// links to nodes, by path.
	links map[*device.Node][]string
	// byNumber holds the nodes that sysfs knows.
	byNumber func() map[number]*device.Node
	// groups holds the functions of each IOMMU group.
	groups map[string][]*device.Hardware
	// functions are all PCI functions, by address.
	functions map[string]*device.Hardware
	// picked is the turn in which a node was picked last: a map for each of many
	// resources costs more than all else about them.
	picked map[*device.Node]int
	turn   int
	// ids of nodes that come along with devices, or are of several hardware.
	ids map[*device.Node]string
	// sys holds the directories of sysfs of nodes.
	sys map[*device.Node][]string
	// keys of the nodes of hardware.
	keys map[*device.Hardware]map[*device.Node]string
}

func newIndex(snap *device.Snapshot) *index {
	ix := &index{
		snap:     snap,
		bus:      map[device.Bus][]*device.Hardware{},
		rank:     make(map[*device.Hardware]int, len(snap.Hardware)),
		names:    make([]name, 0, len(snap.Nodes)+len(snap.Links)),
		links:    make(map[*device.Node][]string, len(snap.Links)),
		byNumber: sync.OnceValue(func() map[number]*device.Node { return newNumberIndex(snap) }),
		picked:   map[*device.Node]int{},
		ids:      map[*device.Node]string{},
		sys:      map[*device.Node][]string{},
		keys:     map[*device.Hardware]map[*device.Node]string{},
	}
	for i, h := range snap.Hardware {
		ix.bus[h.Bus] = append(ix.bus[h.Bus], h)
		ix.rank[h] = i + 1
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

// name is a path of a node, its own or that of a link to it.
type name struct {
	path string
	node *device.Node
}

// nextTurn begins a turn of picking: nothing is picked in it yet.
func (ix *index) nextTurn() int {
	ix.turn++
	return ix.turn
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

// beginning lists the names that begin with a prefix.
func (ix *index) beginning(prefix string) []name {
	from, _ := slices.BinarySearchFunc(ix.names, prefix, func(n name, prefix string) int { return strings.Compare(n.path, prefix) })
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
