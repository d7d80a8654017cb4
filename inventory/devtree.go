package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

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
	clock     unix.Timespec
	recording bool
	known     map[string]*devDir // what was read of directories, by path
	nodes     map[string]*device.Node
	ids       map[string]nodeID // of nodes, by path
	links     map[string]string // what a link says, not where it leads
	isDir     map[string]bool
	dirs      []string
	mounts    []string // directories on another file system
	problems  []device.Problem
}

// devDir is one directory as it was read. Whatever comes, goes or is replaced
// in it changes its time of modification.
type devDir struct {
	ino      uint64
	modified unix.Timespec
	settled  bool // nothing can have changed without another time
	nodes    []devNode
	links    []device.Link // without their nodes
	targets  []string      // what the links say
	dirs     []string
}

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
	changed unix.Timespec
}

// walkDev reads the tree below root. It follows no links and stays on one
// file system: what is mounted below /dev (pts, shm, mqueue, hugepages) holds
// no devices of the host, and can be large or slow. The directories of the
// result are those that were walked. Those that are as they are known to be
// are not read again; known is brought up to date.
func walkDev(ctx context.Context, root string, known map[string]*devDir) (*devTree, error) {
	nodes, links := 0, 0 // as many as there were
	for _, d := range known {
		nodes, links = nodes+len(d.nodes), links+len(d.links)
	}
	t := &devTree{
		root:  root,
		known: known,
		nodes: make(map[string]*device.Node, nodes),
		ids:   make(map[string]nodeID, nodes),
		links: make(map[string]string, links),
		isDir: make(map[string]bool),
	}
	// The clock that file systems take their times from. It is read first: a
	// directory that was modified before this moment has another time after
	// the next change, and one whose time is not past yet may change
	// without that, since the clock goes on with the tick only (4 ms).
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t.clock); err != nil {
		return nil, fmt.Errorf("reading the clock: %w", err)
	}
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
	if unix.Statfs(path, &st) != nil {
		return false
	}
	return uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC
}

// here returns where a path of the host is.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// marked reports whether a directory has the file of recordings.
func (t *devTree) marked(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// walk takes in one directory and those below it. Only /dev itself and the end
// of ctx are errors; another directory that can't be read is a problem.
func (t *devTree) walk(ctx context.Context, dir string, st *unix.Stat_t) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := t.known[dir]
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
	for i, l := range d.links {
		t.links[l.Path] = d.targets[i]
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

// nodesIn are the nodes that a directory is known to have had, by path, if their
// inodes tell them from others.
func (t *devTree) nodesIn(dir string) map[string]devNode {
	d := t.known[dir]
	if d == nil || !t.unique {
		return nil
	}
	nodes := make(map[string]devNode, len(d.nodes))
	for _, n := range d.nodes {
		nodes[n.path] = n
	}
	return nodes
}

// read reads one directory, and takes it down. It returns nil for one that has
// gone.
func (t *devTree) read(dir string, st *unix.Stat_t) (*devDir, error) {
	was := t.nodesIn(dir)
	delete(t.known, dir)
	entries, err := dirents.Read(t.here(dir))
	if err != nil && dir == hostDev {
		return nil, err
	}
	if notExist(err) {
		return nil, nil
	}
	before := len(t.problems)
	if err != nil {
		t.problem(dir, err)
	}
	d := &devDir{ino: st.Ino, modified: st.Mtim}
	for _, e := range entries {
		p := dir + "/" + e.Name
		switch e.Type {
		case fs.ModeDir:
			d.dirs = append(d.dirs, p)
		case fs.ModeSymlink:
			target, err := os.Readlink(t.here(p))
			if err != nil {
				t.problem(p, err)
				continue
			}
			d.links, d.targets = append(d.links, device.Link{Path: p}), append(d.targets, target)
		case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice, 0:
			if e.Type == 0 && !t.recording {
				continue
			}
			if n, ok := was[p]; ok && n.id.ino == e.Ino {
				d.nodes = append(d.nodes, n)
				continue
			}
			if n, _, ok := t.stat(p); ok {
				d.nodes = append(d.nodes, n)
			}
		}
	}
	whole := len(t.problems) == before
	d.settled = whole && unix.TimespecToNsec(st.Mtim) < unix.TimespecToNsec(t.clock)
	t.known[dir] = d
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
		id: nodeID{ino: st.Ino, changed: st.Ctim},
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
	now := &devTree{root: t.root, recording: t.recording}
	got, _, ok := now.stat(n.Path)
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
		return 0, 0, 0, false
	}
	return parseRecordedNode(string(text[:n]))
}

func (t *devTree) addNode(n devNode) {
	t.nodes[n.path] = &device.Node{
		Path: n.path, Type: n.kind, Major: n.major, Minor: n.minor, Kernel: base(n.path), Interface: -1, Index: -1,
	}
	t.ids[n.path] = n.id
}

// problem notes what can't be read; what has gone is none.
func (t *devTree) problem(p string, err error) {
	if !notExist(err) && !errors.Is(err, unix.ENOTDIR) {
		t.problems = append(t.problems, device.Problem{Subject: p, Reason: reason(err)})
	}
}
