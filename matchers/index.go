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
	// nodes at each path, links included.
	at map[string]*device.Node
	// names of each node: its path, then its links.
	names map[*device.Node][]string
	dirs  map[string]bool
	bus   map[device.Bus][]*device.Hardware
	// byValue holds, for a key such as "usb.serial", the hardware with each
	// value in lower case; it is filled in for keys that are asked for.
	byValue map[string]map[string][]*device.Hardware
	// keys of the nodes of hardware, filled in likewise.
	keys map[*device.Hardware]map[*device.Node]string
}

func newIndex(snap *device.Snapshot) *index {
	ix := &index{
		snap:    snap,
		at:      make(map[string]*device.Node, len(snap.Nodes)+len(snap.Links)),
		names:   make(map[*device.Node][]string, len(snap.Nodes)),
		dirs:    make(map[string]bool, len(snap.Dirs)),
		bus:     map[device.Bus][]*device.Hardware{},
		byValue: map[string]map[string][]*device.Hardware{},
		keys:    map[*device.Hardware]map[*device.Node]string{},
	}
	for _, n := range snap.Nodes {
		ix.at[n.Path] = n
		ix.names[n] = []string{n.Path}
	}
	for _, l := range snap.Links {
		if l.Node != nil {
			ix.at[l.Path] = l.Node
			ix.names[l.Node] = append(ix.names[l.Node], l.Path)
		}
	}
	for _, d := range snap.Dirs {
		ix.dirs[d] = true
	}
	for _, h := range snap.Hardware {
		ix.bus[h.Bus] = append(ix.bus[h.Bus], h)
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
		if n != nil && !seen[n] && v.Match(ix.names[n]...) {
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
// bus, or, where a condition names the values that it wants, those that have
// one of them.
func (ix *index) hardware(m *config.Match) []*device.Hardware {
	bus, conditions, value := device.USBBus, m.USB, usbValue
	if m.USB == nil {
		bus, conditions, value = device.PCIBus, m.PCI, pciValue
	}
	best := ix.bus[bus]
	for key, v := range conditions {
		wanted, ok := literals(key, v)
		if !ok {
			continue
		}
		values := ix.values(bus, key, value)
		var found []*device.Hardware
		for _, w := range wanted {
			found = append(found, values[w]...)
		}
		if len(found) < len(best) {
			best = found
		}
	}
	return best
}

// values are the hardware of a bus by what it has for a key.
func (ix *index) values(bus device.Bus, key string, value func(*device.Hardware, string) string) map[string][]*device.Hardware {
	name := string(bus) + "." + key
	values := ix.byValue[name]
	if values == nil {
		values = map[string][]*device.Hardware{}
		for _, h := range ix.bus[bus] {
			v := indexed(value(h, key))
			values[v] = append(values[v], h)
		}
		ix.byValue[name] = values
	}
	return values
}

// literals returns the values that a condition on a key wants, in the form of
// the index, each once; false where it may want others. The index only has to
// find enough: conditions are tested on what it finds.
func literals(key string, v config.Values) (wanted []string, ok bool) {
	switch key {
	case "class", "interface", "interface_class", "iommu_group", "vf":
		return nil, false // compared as prefixes, lists or numbers
	}
	for _, p := range v.Patterns() {
		if strings.HasPrefix(p, "!") {
			continue
		}
		p = indexed(p)
		if strings.ContainsAny(p, `*?[]{}\`) || strings.Contains(p, "0x") {
			return nil, false
		}
		wanted = append(wanted, p)
	}
	slices.Sort(wanted)
	return slices.Compact(wanted), len(wanted) > 0
}

// indexed is the form of values in the index. Conditions may regard case; the
// index does not.
func indexed(value string) string { return strings.ToLower(strings.TrimSpace(value)) }
