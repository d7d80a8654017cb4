package matchers

import (
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// pathIndex holds the paths of a snapshot by their directories: a pattern
// looks at few of them, and there only at the names that begin as it does.
type pathIndex struct {
	dirs   []*directory // by path
	byPath map[string]*directory
}

// directory is one that nodes or links are in, or other directories.
type directory struct {
	path  string
	names []entry  // by name
	subs  []string // names of the directories in it, sorted
	// letters that the names have, by their bytes; nil until they are asked for.
	letters *[256]bool
}

// entry is the last element of the path of a node or a link to it.
type entry struct {
	name string
	node *device.Node
	link bool
}

func newPathIndex(snap *device.Snapshot) *pathIndex {
	x := &pathIndex{byPath: make(map[string]*directory, len(snap.Dirs))}
	for _, p := range snap.Dirs {
		x.directory(p)
		above, name := split(p)
		if d := x.byPath[above]; d != nil {
			d.subs = append(d.subs, name)
		}
	}
	x.add(len(snap.Nodes), func(i int) (string, *device.Node) { return snap.Nodes[i].Path, snap.Nodes[i] }, false)
	x.add(len(snap.Links), func(i int) (string, *device.Node) { return snap.Links[i].Path, snap.Links[i].Node }, true)
	byName := func(a, b entry) int { return strings.Compare(a.name, b.name) }
	for _, d := range x.dirs {
		if !slices.IsSortedFunc(d.names, byName) { // nodes and links side by side
			slices.SortFunc(d.names, byName)
		}
	}
	slices.SortFunc(x.dirs, func(a, b *directory) int { return strings.Compare(a.path, b.path) })
	return x
}

// add puts n sorted paths into their directories.
func (x *pathIndex) add(n int, get func(i int) (string, *device.Node), links bool) {
	for i := 0; i < n; {
		first, _ := get(i)
		dir, _ := split(first)
		end := i + 1
		for ; end < n; end++ {
			if p, _ := get(end); len(p) <= len(dir) || p[:len(dir)] != dir || strings.LastIndexByte(p, '/') != len(dir) {
				break
			}
		}
		d := x.directory(dir)
		d.names = slices.Grow(d.names, end-i)
		for ; i < end; i++ {
			if p, node := get(i); node != nil {
				d.names = append(d.names, entry{p[len(dir)+1:], node, links})
			}
		}
	}
}

// split cuts an absolute path in front of its last element.
func split(p string) (dir, name string) {
	i := strings.LastIndexByte(p, '/')
	return p[:max(i, 0)], p[i+1:]
}

func (x *pathIndex) directory(p string) *directory {
	d := x.byPath[p]
	if d == nil {
		d = &directory{path: p}
		x.byPath[p] = d
		x.dirs = append(x.dirs, d)
	}
	return d
}

// at is the node at a path, links included; nil for none.
func (x *pathIndex) at(p string) *device.Node {
	dir, name := split(p)
	if d := x.byPath[dir]; d != nil {
		i, found := slices.BinarySearchFunc(d.names, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
		if found {
			return d.names[i].node
		}
	}
	return nil
}

// beginning lists the names that begin with a prefix.
func (d *directory) beginning(prefix string) []entry {
	if prefix == "" {
		return d.names
	}
	from := sort.Search(len(d.names), func(i int) bool { return d.names[i].name >= prefix })
	rest := d.names[from:]
	to := sort.Search(len(rest), func(i int) bool { return !strings.HasPrefix(rest[i].name, prefix) })
	return rest[:to]
}

// matched are the directories with paths that g, which has wildcards, may
// match.
func (x *pathIndex) matched(g config.Glob) []*directory {
	if dir, alone := g.Dir(); alone {
		if d := x.byPath[dir]; d != nil {
			return []*directory{d}
		}
		return nil
	}
	var found []*directory
	for _, d := range x.dirs {
		if g.MatchDir(d.path) {
			found = append(found, d)
		}
	}
	return found
}

// look adds the nodes to found whose path, or that of a link to them, g
// matches; links says that there was such a link.
func (x *pathIndex) look(g config.Glob, found []*device.Node) (_ []*device.Node, links bool) {
	if p, literal := g.Path(); literal {
		if n := x.at(p); n != nil {
			return append(found, n), n.Path != p
		}
		return found, false
	}
	prefix, all := g.NamePrefix()
	letters := g.NameLetters()
	for _, d := range x.matched(g) {
		names := d.beginning(prefix)
		switch {
		case all:
			found = slices.Grow(found, len(names))
		case len(names) > fewNames && !d.spells(letters):
			continue
		}
		for i := range names {
			e := &names[i]
			if all || g.MatchName(e.name) {
				found = append(found, e.node)
				links = links || e.link
			}
		}
	}
	return found, links
}

// fewNames are looked at one by one whatever letters they have.
const fewNames = 16

// spells reports whether each of the letters is in a name of the directory.
func (d *directory) spells(letters string) bool {
	if d.letters == nil {
		d.letters = new([256]bool)
		for i := range d.names {
			name := d.names[i].name
			for j := range len(name) {
				d.letters[name[j]] = true
			}
		}
	}
	for i := range len(letters) {
		if !d.letters[letters[i]] {
			return false
		}
	}
	return true
}

// asked is how many names look asks g about, and whether g matches them all.
func (x *pathIndex) asked(g config.Glob) (n int, all bool) {
	if _, literal := g.Path(); literal {
		return 1, true
	}
	prefix, all := g.NamePrefix()
	for _, d := range x.matched(g) {
		n += len(d.beginning(prefix))
	}
	return n, all
}

// matchedDir is the first directory that g itself matches, empty for none.
func (x *pathIndex) matchedDir(g config.Glob) string {
	if p, literal := g.Path(); literal {
		if x.isDir(p) {
			return p
		}
		return ""
	}
	for _, d := range x.matched(g) {
		for _, name := range d.subs {
			if g.MatchName(name) {
				return d.path + "/" + name
			}
		}
	}
	return ""
}

// isDir reports whether a path is that of a directory below /dev, or "/dev".
func (x *pathIndex) isDir(p string) bool {
	if p == "/dev" {
		return x.byPath[p] != nil
	}
	dir, name := split(p)
	d := x.byPath[dir]
	if d == nil {
		return false
	}
	_, found := slices.BinarySearch(d.subs, name)
	return found
}

// linkIndex holds the links to each node.
type linkIndex struct {
	// first link to a node, and next one to the same node, by their places in
	// all; the last has -1.
	first map[*device.Node]int32
	next  []int32
	all   []device.Link
	// buffer that names returns.
	buffer []string
}

func newLinkIndex(snap *device.Snapshot) *linkIndex {
	x := &linkIndex{first: make(map[*device.Node]int32, len(snap.Links)), next: make([]int32, len(snap.Links)), all: snap.Links}
	for i := len(x.all) - 1; i >= 0; i-- {
		n := x.all[i].Node
		if n == nil {
			continue
		}
		x.next[i] = -1
		if later, ok := x.first[n]; ok {
			x.next[i] = later
		}
		x.first[n] = int32(i)
	}
	return x
}

// has reports whether there are links to a node.
func (x *linkIndex) has(n *device.Node) bool {
	_, ok := x.first[n]
	return ok
}

// names lists the path of a node and those of the links to it, in order. What
// it returns holds until it is called again.
func (x *linkIndex) names(n *device.Node) []string {
	x.buffer = append(x.buffer[:0], n.Path)
	if i, ok := x.first[n]; ok {
		for ; i >= 0; i = x.next[i] {
			x.buffer = append(x.buffer, x.all[i].Path)
		}
	}
	return x.buffer
}
