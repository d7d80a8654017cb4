package matchers

import (
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

	tree  func() *pathIndex
	links func() *linkIndex
	// byNumber holds the nodes that sysfs knows.
	byNumber func() map[number]*device.Node
	// byValue holds the hardware of a bus by what it has for a key such as
	// "usb.serial".
	byValue map[string]*valueIndex
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
		tree:     sync.OnceValue(func() *pathIndex { return newPathIndex(snap) }),
		links:    sync.OnceValue(func() *linkIndex { return newLinkIndex(snap) }),
		byNumber: sync.OnceValue(func() map[number]*device.Node { return newNumberIndex(snap) }),
		byValue:  map[string]*valueIndex{},
		picked:   map[*device.Node]int{},
		ids:      map[*device.Node]string{},
		sys:      map[*device.Node][]string{},
		keys:     map[*device.Hardware]map[*device.Node]string{},
	}
	for i, h := range snap.Hardware {
		ix.bus[h.Bus] = append(ix.bus[h.Bus], h)
		ix.rank[h] = i + 1
	}
	return ix
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

// at is the node at a path, links included; nil for none.
func (ix *index) at(path string) *device.Node { return ix.tree().at(path) }

// isDir reports whether a path is that of a directory below /dev, or "/dev".
func (ix *index) isDir(path string) bool { return ix.tree().isDir(path) }
