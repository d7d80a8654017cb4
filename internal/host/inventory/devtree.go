package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

const hostDev = "/dev"

// devTree is the tree of a directory of device nodes. All paths are the host's,
// wherever that directory is mounted.
type devTree struct {
	root      string // the directory that is the host's /dev
	fsID      uint64 // the file system it is on
	unique    bool   // which counts inodes
	clock     int64  // of the kernel's file systems, at the start of the walk
	recording bool
	cache     map[string]*devDir // by path
	nodes     map[string]*node   // by path
	links     map[string]string  // target of a link, unresolved
	isDir     map[string]bool
	dirs      []string
	mounts    []string // directories on another file system
	problems  problems
}

// devDir is a directory as read. Any change of its entries changes its modification
// time.
type devDir struct {
	ino      uint64
	modified unix.Timespec
	settled  bool // any later change has another time
	nodes    []*devNode
	links    []devLink
	dirs     []string
}

type devLink struct{ path, target string }

// node is a node of a scan, and what is cached of it.
type node struct {
	device.Node
	read    *devNode
	removed bool
}

// devNode is a node as read. The inode distinguishes it from predecessors with its path,
// where the file system counts inodes: elsewhere a directory that changed has new ones.
type devNode struct {
	path         string
	kind         device.NodeType
	major, minor uint32
	ino          uint64
	changed      int64 // when it was made, or changed since
	place        place
}

// place is the sysfs directory of a node, and of the bus device that owns it. It is empty
// if it is unknown or no longer valid.
type place struct {
	sysPath, subsystem string
	bus                device.Bus
	owner              string
}

// walkDev reads the tree below root. It follows no links and stays on one file system:
// file systems below /dev (pts, shm, mqueue, hugepages) have no devices of the host,
// and can be large or slow. The result has the directories that were walked.
// Unchanged cached ones are not read again.
func walkDev(ctx context.Context, root string, known map[string]*devDir) (*devTree, error) {
	nodes := 0
	links := 0 // as in the previous scan
	for _, d := range known {
		nodes = nodes + len(d.nodes)
		links = links + len(d.links)
	}
	t := &devTree{
		root:  root,
		cache: known,
		nodes: make(map[string]*node, nodes),
		links: make(map[string]string, links),
		isDir: make(map[string]bool),
	}
	// The clock of file systems, read first. A directory modified before this time gets
	// another time with its next change. A directory modified later may keep its time,
	// since the clock advances only with the tick (4 ms).
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	t.clock = unix.TimespecToNsec(now)
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("read the device nodes: %q: %w", root, err)
	}
	t.fsID = uint64(st.Dev)
	t.recording = t.marked(hostDev)
	t.unique = !t.recording && dirents.CountsInodes(root)
	if err := t.walk(ctx, hostDev, &st); err != nil {
		return nil, fmt.Errorf("read the device nodes: %w", err)
	}
	slices.Sort(t.dirs)
	maps.DeleteFunc(known, func(dir string, _ *devDir) bool { return !t.isDir[dir] })
	return t, nil
}

// here returns the local path of a path of the host.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// marked reports whether a directory has the marker of recordings.
func (t *devTree) marked(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// walk adds a directory and its subdirectories. Only failures of /dev itself and a
// cancelled ctx are errors; another unreadable directory is a problem.
func (t *devTree) walk(ctx context.Context, dir string, st *unix.Stat_t) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := t.cache[dir]
	if d == nil || !d.settled || d.ino != st.Ino || d.modified != st.Mtim {
		var err error
		if d, err = t.read(dir, st); d == nil {
			return err
		}
	}
	t.dirs = append(t.dirs, dir)
	t.isDir[dir] = true
	for _, n := range d.nodes {
		t.addNode(n)
	}
	for _, l := range d.links {
		t.links[l.path] = l.target
	}
	for _, p := range d.dirs {
		var st unix.Stat_t
		if err := unix.Lstat(t.here(p), &st); err != nil {
			t.problem(p, err)
			continue
		}
		if uint64(st.Dev) != t.fsID || t.recording && t.marked(p) {
			t.mounts = append(t.mounts, p)
			continue
		}
		if err := t.walk(ctx, p, &st); err != nil {
			return err
		}
	}
	return nil
}

// read reads one directory into the cache. It returns nil for a removed one.
func (t *devTree) read(dir string, st *unix.Stat_t) (*devDir, error) {
	was := make(map[string]*devNode)
	if known := t.cache[dir]; known != nil {
		for _, n := range known.nodes {
			was[n.path] = n
		}
	}
	delete(t.cache, dir)
	before := len(t.problems)
	d := &devDir{ino: st.Ino, modified: st.Mtim}
	err := dirents.Read(t.here(dir), func(e dirents.Entry) {
		t.readEntry(d, dir+"/"+e.Name, e, was)
	})
	if err != nil && dir == hostDev {
		return nil, err
	}
	if notExist(err) {
		return nil, nil
	}
	t.problem(dir, err)
	d.settled = len(t.problems) == before && unix.TimespecToNsec(st.Mtim) < t.clock
	t.cache[dir] = d
	return d, nil
}

// readEntry adds the entry with path p; was has the earlier nodes.
func (t *devTree) readEntry(d *devDir, p string, e dirents.Entry, was map[string]*devNode) {
	switch {
	case e.Type == fs.ModeDir:
		d.dirs = append(d.dirs, p)
	case e.Type == fs.ModeSymlink:
		target, err := os.Readlink(t.here(p))
		if err != nil {
			t.problem(p, err)
			return
		}
		d.links = append(d.links, devLink{p, target})
	case e.Type&fs.ModeDevice != 0, e.Type == 0 && t.recording:
		n := was[p]
		if n == nil || n.ino != e.Ino || !t.unique {
			now, _, ok := t.stat(p)
			if !ok {
				return
			}
			n = &now
		}
		d.nodes = append(d.nodes, n)
	}
}

// stat returns the node p, or the type of p.
func (t *devTree) stat(p string) (n devNode, mode uint32, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(t.here(p), &st); err != nil {
		t.problem(p, err)
		return devNode{}, 0, false
	}
	mode = st.Mode & unix.S_IFMT
	n = devNode{
		path:    p,
		major:   unix.Major(uint64(st.Rdev)),
		minor:   unix.Minor(uint64(st.Rdev)),
		ino:     st.Ino,
		changed: unix.TimespecToNsec(st.Ctim),
	}
	switch {
	case mode == unix.S_IFCHR:
		n.kind = device.CharNode
	case mode == unix.S_IFBLK:
		n.kind = device.BlockNode
	case mode == unix.S_IFREG && t.recording:
		n.kind, n.major, n.minor, ok = t.readRecorded(p)
		return n, mode, ok
	default:
		return devNode{}, mode, false
	}
	return n, mode, true
}

// still reports whether a node with the number of n exists.
func (t *devTree) still(n *node) bool {
	got, _, ok := (&devTree{root: t.root, recording: t.recording}).stat(n.Path)
	return ok && got.kind == n.Type && got.major == n.Major && got.minor == n.Minor
}

// readRecorded returns the node that the file p stands for, if any.
func (t *devTree) readRecorded(p string) (kind device.NodeType, major, minor uint32, ok bool) {
	f, err := os.Open(t.here(p))
	if err != nil {
		t.problem(p, err)
		return 0, 0, 0, false
	}
	defer f.Close()
	var text [64]byte
	n, err := f.Read(text[:])
	if err != nil && err != io.EOF {
		t.problem(p, err)
	}
	return parseRecordedNode(string(text[:n]))
}

// problem adds an error, unless it is that something is no longer a directory.
func (t *devTree) problem(p string, err error) {
	if !errors.Is(err, unix.ENOTDIR) {
		t.problems.add(p, err)
	}
}

func (t *devTree) addNode(n *devNode) {
	t.nodes[n.path] = &node{read: n, Node: device.Node{
		Path:      n.path,
		Type:      n.kind,
		Major:     n.major,
		Minor:     n.minor,
		Kernel:    base(n.path),
		Interface: -1,
		Index:     -1,
	}}
}

// maxLinks is the maximum number of links in a path, the kernel's own limit
// (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

// sortedNodes returns the nodes by path, including targets of links only (on
// another file system below /dev, such as pts).
func (t *devTree) sortedNodes() []*node {
	for p := range t.links {
		t.resolve(p)
	}
	nodes := slices.AppendSeq(make([]*node, 0, len(t.nodes)), maps.Values(t.nodes))
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Path < nodes[j].Path })
	return nodes
}

// linksTo returns the links to nodes, by path.
func (t *devTree) linksTo(nodes []*device.Node) []device.Link {
	var links []device.Link
	for p := range t.links {
		n := t.resolve(p)
		if n == nil {
			continue
		}
		_, kept := slices.BinarySearchFunc(nodes, n.Path, func(n *device.Node, p string) int {
			return cmp.Compare(n.Path, p)
		})
		if kept {
			links = append(links, device.Link{Path: p, Node: n})
		}
	}
	sort.Slice(links, func(i, j int) bool { return links[i].Path < links[j].Path })
	return links
}

// resolve returns the target node of a path below /dev, as the host resolves it:
// "/dev/pts/3" in a link is a path of the host, wherever its /dev is mounted. It is nil
// if the target is outside of /dev, missing or a loop.
func (t *devTree) resolve(p string) *device.Node {
	at := "/"
	rest := p
	for hops := 0; rest != ""; {
		elem, after, _ := strings.Cut(rest, "/")
		rest = after
		switch elem {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, elem)
		if at == "/" && next != hostDev {
			return nil
		}
		t.visit(next)
		if target, ok := t.links[next]; ok {
			if hops++; hops > maxLinks {
				return nil
			}
			if strings.HasPrefix(target, "/") {
				at = "/"
			}
			rest = target + "/" + rest
			continue
		}
		if n := t.nodes[next]; n != nil {
			if strings.Trim(rest, "/") != "" {
				return nil
			}
			return &n.Node
		}
		if !t.isDir[next] {
			return nil
		}
		at = next
	}
	return nil
}

// visit adds p where the walk did not: on another file system.
func (t *devTree) visit(p string) {
	_, isLink := t.links[p]
	if isLink || t.isDir[p] || t.nodes[p] != nil {
		return
	}
	n, mode, ok := t.stat(p)
	if ok {
		t.addNode(&n)
	}
	switch mode {
	case unix.S_IFDIR:
		t.isDir[p] = true
	case unix.S_IFLNK:
		if target, err := os.Readlink(t.here(p)); err == nil {
			t.links[p] = target
		}
	}
}

// parseRecordedNode parses the content of a file that stands for a node.
func parseRecordedNode(s string) (kind device.NodeType, major, minor uint32, ok bool) {
	word, number, _ := strings.Cut(strings.TrimSuffix(s, "\n"), " ")
	a, b, _ := strings.Cut(number, ":")
	x, errX := strconv.ParseUint(a, 10, 32)
	y, errY := strconv.ParseUint(b, 10, 32)
	switch {
	case errX != nil || errY != nil:
	case word == "char":
		return device.CharNode, uint32(x), uint32(y), true
	case word == "block":
		return device.BlockNode, uint32(x), uint32(y), true
	}
	return 0, 0, 0, false
}
