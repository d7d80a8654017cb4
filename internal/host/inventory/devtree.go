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

// maxNodes bounds the memory of a scan: nodes and links below /dev together. A large storage server
// has a few thousand.
const maxNodes = 32_000

// hostDev is the directory of device nodes in paths of the host.
const hostDev = "/dev"

// devTree is the tree of a directory of device nodes. All paths are paths of the host, wherever the
// directory is mounted.
type devTree struct {
	// root is the directory that is the host's /dev.
	root string
	// fsID is its file system.
	fsID uint64
	// hasInodes is set if an inode identifies a file of this file system.
	hasInodes bool
	// startedAt is the time of file systems at the start of the walk.
	startedAt int64
	// recording is set if regular files stand for nodes, see RecordingMarker.
	recording bool
	cache     map[string]*devDir // by path
	nodes     map[string]*node   // by path
	links     map[string]string  // unresolved targets by path
	// isDir has all directories that were walked, and the ones that links lead through.
	isDir map[string]bool
	// dirs are the walked directories, sorted at the end.
	dirs     []string
	mounts   []string // directories on another file system
	problems problems
}

// devDir is a directory as read. Any change of its entries changes its modification
// time.
type devDir struct {
	ino      uint64
	modified unix.Timespec
	// isCurrent is set if any later change has another modification time.
	isCurrent bool
	nodes     []*devNode
	links     []devLink
	dirs      []string
}

// devLink is a symbolic link below /dev. Its target is not resolved.
type devLink struct {
	path   string
	target string
}

// node is a node of a scan, and its cached data.
type node struct {
	device.Node
	// read is the node as it was read, which later scans use again while it is unchanged.
	read *devNode
	// removed is set by locate if the node does not exist any more.
	removed bool
}

// devNode is a node as read. The inode distinguishes it from earlier nodes at its path if the file
// system counts inodes. Otherwise all nodes of a directory that has changed are new.
type devNode struct {
	path         string
	kind         device.NodeType
	major, minor uint32
	ino          uint64
	changed      int64 // the time of its creation or last change
	place        place
}

// place is the sysfs directory of a node, and of the bus device that owns it. It is empty
// if it is unknown or no longer valid.
type place struct {
	sysPath   string
	subsystem string
	bus       device.Bus
	owner     string
}

// walkDev reads the tree below root. It follows no links and stays on one file system, because
// file systems below /dev (pts, shm, mqueue, hugepages) have no devices of the host,
// and can be large or slow. The result contains the directories that were walked.
// Known directories that have not changed are not read again.
func walkDev(ctx context.Context, root string, known map[string]*devDir) (*devTree, error) {
	t := newDevTree(root, known)
	// The clock is read first. A directory modified before this time gets another time with its next
	// change. A directory modified later may keep its time, because the clock of file systems only
	// advances with the tick (4 ms).
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	t.startedAt = unix.TimespecToNsec(now)
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("read the device nodes: %q: %w", root, err)
	}
	t.fsID = uint64(st.Dev)
	t.recording = t.hasMarker(hostDev)
	t.hasInodes = !t.recording && dirents.CountsInodes(root)
	if err := t.walk(ctx, hostDev, &st); err != nil {
		return nil, fmt.Errorf("read the device nodes: %w", err)
	}
	slices.Sort(t.dirs)
	// Directories that do not exist any more leave the cache.
	maps.DeleteFunc(known, func(dir string, _ *devDir) bool {
		return !t.isDir[dir]
	})
	return t, nil
}

// newDevTree returns an empty tree with room for as many nodes and links as in the previous scan.
func newDevTree(root string, known map[string]*devDir) *devTree {
	nodes := 0
	links := 0
	for _, d := range known {
		nodes += len(d.nodes)
		links += len(d.links)
	}
	return &devTree{
		root:  root,
		cache: known,
		nodes: make(map[string]*node, nodes),
		links: make(map[string]string, links),
		isDir: make(map[string]bool),
	}
}

// here returns the local path of a path of the host.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// hasMarker reports whether a directory has the marker of recordings.
func (t *devTree) hasMarker(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// isUnchanged reports whether a directory as read before is the same as the directory with this
// status.
func (d *devDir) isUnchanged(st *unix.Stat_t) bool {
	if d == nil || !d.isCurrent {
		return false
	}
	return d.ino == st.Ino && d.modified == st.Mtim
}

// walk adds a directory and its subdirectories. It fails only if /dev itself is unreadable or has too
// many nodes, or if ctx has ended. Another unreadable directory is a problem.
func (t *devTree) walk(ctx context.Context, dir string, st *unix.Stat_t) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := t.cache[dir]
	if !d.isUnchanged(st) {
		var err error
		d, err = t.read(dir, st)
		// This is no error if the directory was removed meanwhile.
		if d == nil {
			return err
		}
	}
	t.dirs = append(t.dirs, dir)
	t.isDir[dir] = true
	if len(t.nodes)+len(t.links)+len(d.nodes)+len(d.links) > maxNodes {
		// Any choice of nodes to leave out would make devices look gone.
		return fmt.Errorf("%q: with it, there are more than %d nodes and links: remove what made them", dir, maxNodes)
	}
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
		isMount := uint64(st.Dev) != t.fsID
		if isMount || t.recording && t.hasMarker(p) {
			t.mounts = append(t.mounts, p)
			continue
		}
		if err := t.walk(ctx, p, &st); err != nil {
			return err
		}
	}
	return nil
}

// read reads one directory into the cache. It returns nil if the directory was removed.
func (t *devTree) read(dir string, st *unix.Stat_t) (*devDir, error) {
	earlier := make(map[string]*devNode) // by path
	known := t.cache[dir]
	if known != nil {
		for _, n := range known.nodes {
			earlier[n.path] = n
		}
	}
	delete(t.cache, dir)
	problems := len(t.problems)
	d := &devDir{ino: st.Ino, modified: st.Mtim}
	err := dirents.Read(t.here(dir), func(e dirents.Entry) {
		t.readEntry(d, dir+"/"+e.Name, e, earlier)
	})
	if err != nil && dir == hostDev {
		return nil, err
	}
	if notExist(err) {
		return nil, nil
	}
	t.problem(dir, err)
	// After a failed read, the directory is read again in the next scan.
	isComplete := len(t.problems) == problems
	d.isCurrent = isComplete && unix.TimespecToNsec(st.Mtim) < t.startedAt
	t.cache[dir] = d
	return d, nil
}

// readEntry adds the entry with path p. It does not read earlier nodes again. Other files are left
// out, such as sockets, and regular files unless they are recorded nodes.
func (t *devTree) readEntry(d *devDir, p string, e dirents.Entry, earlier map[string]*devNode) {
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
		n := earlier[p]
		isSame := n != nil && n.ino == e.Ino && t.hasInodes
		if !isSame {
			current, _, isNode := t.stat(p)
			if !isNode {
				return
			}
			n = &current
		}
		d.nodes = append(d.nodes, n)
	}
}

// stat returns the node at path p, and the type of the file as in the mode of stat(2). isNode is
// false if the file is not a node.
func (t *devTree) stat(p string) (n devNode, mode uint32, isNode bool) {
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
	switch mode {
	case unix.S_IFCHR:
		n.kind = device.CharNode
		return n, mode, true
	case unix.S_IFBLK:
		n.kind = device.BlockNode
		return n, mode, true
	case unix.S_IFREG:
		if !t.recording {
			return devNode{}, mode, false
		}
		recorded, isNode := t.readRecorded(p)
		n.kind = recorded.kind
		n.major = recorded.major
		n.minor = recorded.minor
		return n, mode, isNode
	}
	return devNode{}, mode, false
}

// stillHas reports whether a node with the path and number of n exists. It is safe for concurrent
// use.
func (t *devTree) stillHas(n *node) bool {
	// Another goroutine may be adding problems to t.
	withoutProblems := &devTree{root: t.root, recording: t.recording}
	current, _, isNode := withoutProblems.stat(n.Path)
	if !isNode {
		return false
	}
	currentNumber := number{current.kind, current.major, current.minor}
	return currentNumber == number{n.Type, n.Major, n.Minor}
}

// readRecorded returns the number of the node for which the file p stands in a recording.
func (t *devTree) readRecorded(p string) (n number, isNode bool) {
	f, err := os.Open(t.here(p))
	if err != nil {
		t.problem(p, err)
		return number{}, false
	}
	defer f.Close()
	var text [64]byte
	size, err := f.Read(text[:])
	if err != nil && err != io.EOF {
		t.problem(p, err)
	}
	return parseRecordedNode(string(text[:size]))
}

// problem adds an error, unless it means that a directory was replaced by another file.
func (t *devTree) problem(p string, err error) {
	if !errors.Is(err, unix.ENOTDIR) {
		t.problems.add(p, err)
	}
}

// addNode adds a node that has neither hardware nor a directory in sysfs so far. -1 means that a
// number is unknown.
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

// sortedNodes returns the nodes by path. Nodes on another file system below /dev, such as pts, are
// included if a link points to them.
func (t *devTree) sortedNodes() []*node {
	for p := range t.links {
		t.resolve(p)
	}
	nodes := make([]*node, 0, len(t.nodes))
	for _, n := range t.nodes {
		nodes = append(nodes, n)
	}
	sort.Slice(nodes, func(i, j int) bool {
		return nodes[i].Path < nodes[j].Path
	})
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
		_, isKept := slices.BinarySearchFunc(nodes, n.Path, func(n *device.Node, p string) int {
			return cmp.Compare(n.Path, p)
		})
		if isKept {
			links = append(links, device.Link{Path: p, Node: n})
		}
	}
	sort.Slice(links, func(i, j int) bool {
		return links[i].Path < links[j].Path
	})
	return links
}

// resolve returns the target node of a path below /dev. The target of a link, such as "/dev/pts/3",
// is a path of the host, wherever its /dev is mounted. It returns nil if the target is missing or
// outside of /dev, or if the links are a loop.
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
		// The rest of the host's file systems may not be visible here.
		if at == "/" && next != hostDev {
			return nil
		}
		t.visit(next)
		target, isLink := t.links[next]
		if isLink {
			hops++
			if hops > maxLinks {
				return nil
			}
			if strings.HasPrefix(target, "/") {
				at = "/"
			}
			rest = target + "/" + rest
			continue
		}
		if n := t.nodes[next]; n != nil {
			// A node is not a directory.
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

// visit adds p if the walk did not, because it is on another file system. An error means that there
// is nothing at p, and is added as a problem.
func (t *devTree) visit(p string) {
	_, isLink := t.links[p]
	if isLink || t.isDir[p] || t.nodes[p] != nil {
		return
	}
	n, mode, isNode := t.stat(p)
	if isNode {
		t.addNode(&n)
	}
	switch mode {
	case unix.S_IFDIR:
		t.isDir[p] = true
	case unix.S_IFLNK:
		target, err := os.Readlink(t.here(p))
		if err == nil {
			t.links[p] = target
		}
	}
}

// parseRecordedNode parses the content of a file that stands for a node, "char 188:0".
func parseRecordedNode(s string) (n number, isNode bool) {
	word, pair, _ := strings.Cut(strings.TrimSuffix(s, "\n"), " ")
	first, second, _ := strings.Cut(pair, ":")
	major, majorErr := strconv.ParseUint(first, 10, 32)
	minor, minorErr := strconv.ParseUint(second, 10, 32)
	if majorErr != nil || minorErr != nil {
		return number{}, false
	}
	n.major = uint32(major)
	n.minor = uint32(minor)
	switch word {
	case "char":
		n.kind = device.CharNode
	case "block":
		n.kind = device.BlockNode
	default:
		return number{}, false
	}
	return n, true
}
