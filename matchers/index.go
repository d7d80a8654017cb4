package matchers

import (
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// index finds things in a snapshot without looking at all of them: a node has
// hundreds of matches and thousands of devices.
type index struct {
	snap *device.Snapshot
	// at is the node at each path, links included.
	at map[string]*device.Node
	// links to each node that has some.
	links map[*device.Node][]string
	dirs  map[string]bool
	bus   map[device.Bus][]*device.Hardware
	// rank of hardware in the snapshot, from 1: short to compare.
	rank map[*device.Hardware]int
	// byValue holds the hardware of a bus by what it has for a key such as
	// "usb.serial"; it is filled in for keys that are asked for.
	byValue map[string][]valued
	// groups holds the functions of each IOMMU group, filled in likewise.
	groups map[string][]*device.Hardware
	// keys of the nodes of hardware, filled in likewise.
	keys map[*device.Hardware]map[*device.Node]string
}

// valued is hardware with the form of its value in the index.
type valued struct {
	value    string
	hardware *device.Hardware
}

func newIndex(snap *device.Snapshot) *index {
	ix := &index{
		snap:    snap,
		at:      make(map[string]*device.Node, len(snap.Nodes)+len(snap.Links)),
		links:   make(map[*device.Node][]string, len(snap.Links)),
		dirs:    make(map[string]bool, len(snap.Dirs)),
		bus:     map[device.Bus][]*device.Hardware{},
		rank:    make(map[*device.Hardware]int, len(snap.Hardware)),
		byValue: map[string][]valued{},
		keys:    map[*device.Hardware]map[*device.Node]string{},
	}
	for _, n := range snap.Nodes {
		ix.at[n.Path] = n
	}
	for _, l := range snap.Links {
		if l.Node != nil {
			ix.at[l.Path] = l.Node
			ix.links[l.Node] = append(ix.links[l.Node], l.Path)
		}
	}
	for _, d := range snap.Dirs {
		ix.dirs[d] = true
	}
	for i, h := range snap.Hardware {
		ix.bus[h.Bus] = append(ix.bus[h.Bus], h)
		ix.rank[h] = i + 1
	}
	return ix
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

// glob lists the nodes that v selects by their paths or those of their links,
// each once. Paths are sorted, so those that begin with what all matches do
// are found by binary search.
func (ix *index) glob(v config.Values) []*device.Node {
	var found []*device.Node
	seen := map[*device.Node]bool{}
	try := func(n *device.Node) {
		if n != nil && !seen[n] && ix.globHolds(v, n) {
			seen[n] = true
			found = append(found, n)
		}
	}
	nodes, links := ix.snap.Nodes, ix.snap.Links
	for _, prefix := range v.Prefixes() {
		i := sort.Search(len(nodes), func(i int) bool { return nodes[i].Path >= prefix })
		for ; i < len(nodes) && strings.HasPrefix(nodes[i].Path, prefix); i++ {
			try(nodes[i])
		}
		i = sort.Search(len(links), func(i int) bool { return links[i].Path >= prefix })
		for ; i < len(links) && strings.HasPrefix(links[i].Path, prefix); i++ {
			try(links[i].Node)
		}
	}
	return found
}

// hardware lists what may fulfil the hardware conditions of m: all of the
// bus, or, where a condition says how the values begin that it wants, those
// that have one of them.
func (ix *index) hardware(m *config.Match) []*device.Hardware {
	bus, conditions, value := device.USBBus, m.USB, usbValue
	if m.USB == nil {
		bus, conditions, value = device.PCIBus, m.PCI, pciValue
	}
	least := len(ix.bus[bus])
	var best [][]valued
	for key, v := range conditions {
		wanted, ok := beginnings(key, v)
		if !ok {
			continue
		}
		values := ix.values(bus, key, value)
		n := 0
		var found [][]valued
		for _, w := range wanted {
			from := sort.Search(len(values), func(i int) bool { return values[i].value >= w })
			to := from + sort.Search(len(values)-from, func(i int) bool { return !strings.HasPrefix(values[from+i].value, w) })
			found = append(found, values[from:to])
			n += to - from
		}
		if n < least {
			best, least = found, n
		}
	}
	if best == nil {
		return ix.bus[bus]
	}
	found := make([]*device.Hardware, 0, least)
	for _, values := range best {
		for _, v := range values {
			found = append(found, v.hardware)
		}
	}
	return found
}

// values are the hardware of a bus by what it has for a key, in order.
func (ix *index) values(bus device.Bus, key string, value func(*device.Hardware, string) string) []valued {
	name := string(bus) + "." + key
	values, ok := ix.byValue[name]
	if !ok {
		for _, h := range ix.bus[bus] {
			values = append(values, valued{indexed(value(h, key)), h})
		}
		slices.SortFunc(values, func(a, b valued) int { return strings.Compare(a.value, b.value) })
		ix.byValue[name] = values
	}
	return values
}

// beginnings returns how the values begin that a condition on a key wants, in
// the form of the index, none of them the beginning of another; false where
// nothing is known of that. The index only has to find enough: conditions are
// tested on what it finds.
func beginnings(key string, v config.Values) (wanted []string, ok bool) {
	hexadecimal := false
	switch key {
	case "serial", "manufacturer", "product_name", "port", "path", "driver", "pf":
	case "id", "vendor", "product", "device", "subsystem_id", "address", "slot":
		hexadecimal = true
	default:
		return nil, false // compared as numbers, or not worth it
	}
	for _, p := range v.Patterns() {
		if strings.HasPrefix(p, "!") {
			continue
		}
		p = indexed(p)
		if hexadecimal && strings.Contains(p, "0x") {
			return nil, false
		}
		if i := strings.IndexAny(p, `*?[{\`); i >= 0 {
			p = p[:i]
		}
		if p == "" {
			return nil, false
		}
		wanted = append(wanted, p)
	}
	slices.Sort(wanted)
	last := ""
	wanted = slices.DeleteFunc(wanted, func(w string) bool {
		if last != "" && strings.HasPrefix(w, last) {
			return true
		}
		last = w
		return false
	})
	return wanted, len(wanted) > 0
}

// indexed is the form of values in the index. Conditions may regard case; the
// index does not.
func indexed(value string) string { return strings.ToLower(strings.TrimSpace(value)) }
