package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
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
	// recording is set if regular files stand for nodes, see RecordingMarker.
	recording bool
	nodes     map[string]*node  // by path
	links     map[string]string // unresolved targets by path
	// isDir has all directories that were walked, and the ones that links lead through.
	isDir map[string]bool
	// dirs are the walked directories, sorted at the end.
	dirs     []string
	mounts   []string // directories on another file system
	problems problems
}

// node is a node of a scan.
type node struct {
	device.Node
	// changed is the time of its creation or last change.
	changed time.Time
	// removed is set by locate if the node does not exist any more.
	removed bool
}

// walkDev reads the tree below root. It follows no links and stays on one file system, because
// file systems below /dev (pts, shm, mqueue, hugepages) have no devices of the host,
// and can be large or slow. The result contains the directories that were walked.
func walkDev(ctx context.Context, root string) (*devTree, error) {
	t := &devTree{
		root:  root,
		nodes: make(map[string]*node),
		links: make(map[string]string),
		isDir: make(map[string]bool),
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("--dev: read the device nodes: %q: %w", root, err)
	}
	t.fsID = uint64(st.Dev)
	t.recording = t.hasMarker(hostDev)
	if err := t.walk(ctx, hostDev); err != nil {
		return nil, fmt.Errorf("--dev: read the device nodes: %w", err)
	}
	slices.Sort(t.dirs)
	return t, nil
}

// here returns the local path of a path of the host.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// hasMarker reports whether a directory has the marker of recordings.
func (t *devTree) hasMarker(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// walk adds a directory and its subdirectories. It fails only if /dev itself is unreadable or has too
// many nodes, or if ctx has ended. Another unreadable directory is a problem.
func (t *devTree) walk(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.dirs = append(t.dirs, dir)
	t.isDir[dir] = true
	f, err := os.OpenFile(t.here(dir), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return t.unreadable(dir, err)
	}
	defer f.Close()
	for {
		// One part at a time, because a directory may have any number of other files.
		entries, err := f.ReadDir(1000)
		for _, e := range entries {
			if err := t.add(ctx, dir+"/"+e.Name(), e.Type()); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return t.unreadable(dir, err)
		}
	}
}

// unreadable returns the error if /dev itself can't be read, and otherwise adds it as a problem.
func (t *devTree) unreadable(dir string, err error) error {
	if dir == hostDev {
		return err
	}
	t.problem(dir, err)
	return nil
}

// enter walks a subdirectory, unless it is on another file system.
func (t *devTree) enter(ctx context.Context, dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(t.here(dir), &st); err != nil {
		t.problem(dir, err)
		return nil
	}
	isMount := uint64(st.Dev) != t.fsID
	if isMount || t.recording && t.hasMarker(dir) {
		t.mounts = append(t.mounts, dir)
		return nil
	}
	return t.walk(ctx, dir)
}

// add adds the directory, the link or the node with path p. Other files are left out, such as sockets,
// and regular files unless they are recorded nodes.
func (t *devTree) add(ctx context.Context, p string, kind fs.FileMode) error {
	switch {
	case kind == fs.ModeDir:
		return t.enter(ctx, p)
	case kind == fs.ModeSymlink:
		target, err := os.Readlink(t.here(p))
		t.problem(p, err)
		if err == nil {
			t.links[p] = target
		}
	case kind&fs.ModeDevice != 0, kind == 0 && t.recording:
		n, _ := t.stat(p)
		if n != nil {
			t.nodes[p] = n
		}
	}
	if len(t.nodes)+len(t.links) > maxNodes {
		// Any choice of nodes to leave out would make devices look gone.
		return fmt.Errorf("%q: with it, there are more than %d nodes and links: remove what made them", p, maxNodes)
	}
	return nil
}

// stat returns the node at path p, and the type of the file as in the mode of stat(2). n is nil if
// the file is not a node. A new node has neither hardware nor a directory in sysfs, and -1 means that
// a number is unknown.
func (t *devTree) stat(p string) (n *node, mode uint32) {
	var st unix.Stat_t
	if err := unix.Lstat(t.here(p), &st); err != nil {
		t.problem(p, err)
		return nil, 0
	}
	mode = st.Mode & unix.S_IFMT
	found := number{
		major: unix.Major(uint64(st.Rdev)),
		minor: unix.Minor(uint64(st.Rdev)),
	}
	switch mode {
	case unix.S_IFCHR:
		found.kind = device.CharNode
	case unix.S_IFBLK:
		found.kind = device.BlockNode
	case unix.S_IFREG:
		recorded, isNode := t.readRecorded(p)
		if !isNode {
			return nil, mode
		}
		found = recorded
	default:
		return nil, mode
	}
	return &node{
		changed: time.Unix(st.Ctim.Unix()),
		Node: device.Node{
			Path:      p,
			Type:      found.kind,
			Major:     found.major,
			Minor:     found.minor,
			Kernel:    base(p),
			Interface: -1,
			Index:     -1,
		},
	}, mode
}

// stillHas reports whether a node with the path and number of n exists. It is safe for concurrent
// use.
func (t *devTree) stillHas(n *node) bool {
	// Another goroutine may be adding problems to t.
	withoutProblems := &devTree{root: t.root, recording: t.recording}
	current, _ := withoutProblems.stat(n.Path)
	return current != nil && current.number() == n.number()
}

// readRecorded returns the number of the node for which the file p stands in a recording.
func (t *devTree) readRecorded(p string) (n number, isNode bool) {
	if !t.recording {
		return number{}, false
	}
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
		i, isKept := slices.BinarySearchFunc(nodes, n.Path, func(n *device.Node, p string) int {
			return cmp.Compare(n.Path, p)
		})
		if isKept {
			links = append(links, device.Link{Path: p, Node: nodes[i]})
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
	isOutside := false
	at, ok := sysfs.Follow("/", p, func(next string) (target string, isLink bool) {
		isBelow := strings.HasPrefix(next+"/", hostDev+"/")
		// The rest of the host's file systems may not be visible here.
		isOutside = isOutside || !isBelow && next != "/"
		if isOutside || !isBelow {
			return "", false
		}
		t.visit(next)
		target, isLink = t.links[next]
		return target, isLink
	})
	n := t.nodes[at]
	if isOutside || !ok || n == nil {
		return nil
	}
	return &n.Node
}

// visit adds p if the walk did not, because it is on another file system. An error means that there
// is nothing at p, and is added as a problem.
func (t *devTree) visit(p string) {
	_, isLink := t.links[p]
	if isLink || t.isDir[p] || t.nodes[p] != nil {
		return
	}
	n, mode := t.stat(p)
	if n != nil {
		t.nodes[p] = n
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

// recordedTypes are the words for the types of nodes in a recording.
var recordedTypes = map[string]device.NodeType{
	"char":  device.CharNode,
	"block": device.BlockNode,
}

// parseRecordedNode parses the content of a file that stands for a node, "char 188:0".
func parseRecordedNode(s string) (n number, isNode bool) {
	var word string
	_, err := fmt.Sscanf(s, "%s %d:%d", &word, &n.major, &n.minor)
	isExact := err == nil && strings.TrimSuffix(s, "\n") == fmt.Sprintf("%s %d:%d", word, n.major, n.minor)
	n.kind, isNode = recordedTypes[word]
	return n, isNode && isExact
}
