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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/dirents"
)

const hostDev = "/dev"

// devTree is what lies below a directory of device nodes. All paths are the
// host's, wherever that directory is here.
type devTree struct {
	root      string // the directory that is the host's /dev
	fsID      uint64 // the file system it is on
	unique    bool   // which gives no inode twice
	clock     int64  // of the kernel's file systems, as the walk began
	recording bool
	cache     map[string]*devDir // by path
	nodes     map[string]*device.Node
	ids       map[string]nodeID // of nodes, by path
	links     map[string]string // what a link says, not where it leads
	isDir     map[string]bool
	dirs      []string
	mounts    []string // directories on another file system
	problems  problems
}

// devDir is one directory as it was read. Whatever comes, goes or is replaced
// in it changes its time of modification.
type devDir struct {
	ino      uint64
	modified unix.Timespec
	settled  bool // nothing can have changed without another time
	nodes    []devNode
	links    []devLink
	dirs     []string
}

type devLink struct{ path, target string }

// devNode is a node as it was found.
type devNode struct {
	path         string
	kind         device.NodeType
	major, minor uint32
	id           nodeID
}

// nodeID tells a node from others that had its path before.
type nodeID struct {
	ino     uint64
	changed int64
}

// walkDev reads the tree below root. It follows no links and stays on one
// file system: what is mounted below /dev (pts, shm, mqueue, hugepages) holds
// no devices of the host, and can be large or slow. The directories of the
// result are those that were walked. Those that are as the cache has them are
// not read again.
func walkDev(ctx context.Context, root string, known map[string]*devDir) (*devTree, error) {
	nodes, links := 0, 0 // as many as there were
	for _, d := range known {
		nodes, links = nodes+len(d.nodes), links+len(d.links)
	}
	t := &devTree{
		root:  root,
		cache: known,
		nodes: make(map[string]*device.Node, nodes),
		ids:   make(map[string]nodeID, nodes),
		links: make(map[string]string, links),
		isDir: make(map[string]bool),
	}
	// The clock that file systems take their times from. It is read first: a
	// directory that was modified before this moment has another time after
	// the next change, and one whose time is not past yet may change
	// without that, since the clock goes on with the tick only (4 ms).
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, fmt.Errorf("reading the clock: %w", err)
	}
	t.clock = unix.TimespecToNsec(now)
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("reading the device nodes: %q: %w", root, err)
	}
	t.fsID = uint64(st.Dev)
	t.recording = t.marked(hostDev)
	t.unique = !t.recording && neverReusesInodes(root)
	if err := t.walk(ctx, hostDev, &st); err != nil {
		return nil, fmt.Errorf("reading the device nodes: %w", err)
	}
	slices.Sort(t.dirs)
	maps.DeleteFunc(known, func(dir string, _ *devDir) bool { return !t.isDir[dir] })
	return t, nil
}

// neverReusesInodes reports whether a file system gives no inode a second time, or
// after some billions of others: what has the same name and inode is the same file
// then. tmpfs and ramfs count them, of which a devtmpfs is one (shmem_reserve_inode
// in mm/shmem.c, get_next_ino in fs/inode.c); file systems on disks take what is free.
func neverReusesInodes(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && (uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC)
}

// here returns where a path of the host is.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// marked reports whether a directory has the file of recordings.
func (t *devTree) marked(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// walk adds one directory and those below it. Only /dev itself and the end
// of ctx are errors; another directory that can't be read is a problem.
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

// read reads one directory into the cache. It returns nil for one that has gone.
func (t *devTree) read(dir string, st *unix.Stat_t) (*devDir, error) {
	was := make(map[string]devNode)
	if known := t.cache[dir]; known != nil && t.unique {
		for _, n := range known.nodes {
			was[n.path] = n
		}
	}
	delete(t.cache, dir)
	entries, err := dirents.Read(t.here(dir))
	if err != nil && dir == hostDev {
		return nil, err
	}
	if notExist(err) {
		return nil, nil
	}
	before := len(t.problems)
	t.problem(dir, err)
	d := &devDir{ino: st.Ino, modified: st.Mtim}
	for _, e := range entries {
		p := dir + "/" + e.Name
		switch {
		case e.Type == fs.ModeDir:
			d.dirs = append(d.dirs, p)
		case e.Type == fs.ModeSymlink:
			target, err := os.Readlink(t.here(p))
			if err != nil {
				t.problem(p, err)
				continue
			}
			d.links = append(d.links, devLink{p, target})
		case e.Type&fs.ModeDevice != 0, e.Type == 0 && t.recording:
			n, ok := was[p]
			if !ok || n.id.ino != e.Ino {
				n, _, ok = t.stat(p)
			}
			if ok {
				d.nodes = append(d.nodes, n)
			}
		}
	}
	d.settled = len(t.problems) == before && unix.TimespecToNsec(st.Mtim) < t.clock
	t.cache[dir] = d
	return d, nil
}

// stat returns the node that p is, and what p is otherwise.
func (t *devTree) stat(p string) (n devNode, mode uint32, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(t.here(p), &st); err != nil {
		t.problem(p, err)
		return devNode{}, 0, false
	}
	mode = st.Mode & unix.S_IFMT
	n = devNode{
		path: p, major: unix.Major(uint64(st.Rdev)), minor: unix.Minor(uint64(st.Rdev)),
		id: nodeID{ino: st.Ino, changed: unix.TimespecToNsec(st.Ctim)},
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

// still reports whether n is there as it was read.
func (t *devTree) still(n *device.Node) bool {
	got, _, ok := (&devTree{root: t.root, recording: t.recording}).stat(n.Path)
	return ok && got.kind == n.Type && got.major == n.Major && got.minor == n.Minor
}

// readRecorded returns the node that p stands for, if it is a file that does.
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

// problem adds an error. That something is no directory any more is no problem.
func (t *devTree) problem(p string, err error) {
	if !errors.Is(err, unix.ENOTDIR) {
		t.problems.add(p, err)
	}
}

func (t *devTree) addNode(n devNode) {
	t.nodes[n.path] = &device.Node{
		Path: n.path, Type: n.kind, Major: n.major, Minor: n.minor, Kernel: base(n.path), Interface: -1, Index: -1,
	}
	t.ids[n.path] = n.id
}

// maxLinks is how many links one path may lead through, the kernel's own
// limit (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

// sortedNodes returns the nodes by path, with those that only a link leads to
// (on another file system below /dev, such as pts).
func (t *devTree) sortedNodes() []*device.Node {
	for p := range t.links {
		t.resolve(p)
	}
	nodes := slices.AppendSeq(make([]*device.Node, 0, len(t.nodes)), maps.Values(t.nodes))
	slices.SortFunc(nodes, func(a, b *device.Node) int { return cmp.Compare(a.Path, b.Path) })
	return nodes
}

// linksTo returns by path the links that lead to one of nodes.
func (t *devTree) linksTo(nodes []*device.Node) []device.Link {
	var links []device.Link
	for p := range t.links {
		n := t.resolve(p)
		if n == nil {
			continue
		}
		_, kept := slices.BinarySearchFunc(nodes, n.Path, func(n *device.Node, p string) int { return cmp.Compare(n.Path, p) })
		if kept {
			links = append(links, device.Link{Path: p, Node: n})
		}
	}
	slices.SortFunc(links, func(a, b device.Link) int { return cmp.Compare(a.Path, b.Path) })
	return links
}

// resolve returns the node that a path below /dev leads to, as the host sees
// it: "/dev/pts/3" in a link is a path of the host, wherever its /dev is
// mounted here. It is nil for what leads out of /dev, nowhere or in a circle.
func (t *devTree) resolve(p string) *device.Node {
	at, rest := "/", p
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
			return n
		}
		if !t.isDir[next] {
			return nil
		}
		at = next
	}
	return nil
}

// visit adds p if the walk did not, since it is on another file system.
func (t *devTree) visit(p string) {
	_, isLink := t.links[p]
	if isLink || t.isDir[p] || t.nodes[p] != nil {
		return
	}
	n, mode, ok := t.stat(p)
	if ok {
		t.addNode(n)
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

// parseRecordedNode reads the content of a file that stands for a node.
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
