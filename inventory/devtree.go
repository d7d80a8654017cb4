package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
)

const hostDev = "/dev"

// maxLinks is how many links one path may lead through, the kernel's own
// limit (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

// devTree is what lies below a directory of device nodes. All paths are the
// host's, wherever that directory is here.
type devTree struct {
	root      string // the directory that is the host's /dev
	fsID      uint64 // the file system it is on
	recording bool
	nodes     map[string]*device.Node
	links     map[string]string // what a link says, not where it leads
	isDir     map[string]bool
	dirs      []string
	mounts    []string // directories on another file system
	problems  []device.Problem
}

// walkDev reads the tree below root. It follows no links and stays on one
// file system: what is mounted below /dev (pts, shm, mqueue, hugepages) holds
// no devices of the host, and can be large or slow. The directories of the
// result are those that were walked.
func walkDev(ctx context.Context, root string) (*devTree, error) {
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("reading the device nodes: %q: %w", root, err)
	}
	t := &devTree{
		root:  root,
		fsID:  uint64(st.Dev),
		nodes: make(map[string]*device.Node),
		links: make(map[string]string),
		isDir: make(map[string]bool),
	}
	t.recording = t.marked(hostDev)
	if err := t.walk(ctx, hostDev); err != nil {
		return nil, fmt.Errorf("reading the device nodes: %w", err)
	}
	slices.Sort(t.dirs)
	return t, nil
}

// here returns where a path of the host is.
func (t *devTree) here(p string) string { return t.root + p[len(hostDev):] }

// marked reports whether a directory has the file of recordings.
func (t *devTree) marked(dir string) bool {
	_, err := os.Lstat(t.here(dir) + "/" + RecordingMarker)
	return err == nil
}

// walk reads one directory and those below it. Only /dev itself and the end
// of ctx are errors; another directory that can't be read is a problem.
func (t *devTree) walk(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(t.here(dir))
	if err != nil && dir == hostDev {
		return err
	}
	if notExist(err) {
		return nil
	}
	t.dirs = append(t.dirs, dir)
	t.isDir[dir] = true
	if err != nil {
		t.problem(dir, err)
	}
	for _, e := range entries {
		p := dir + "/" + e.Name()
		switch e.Type() {
		case fs.ModeDir:
			var st unix.Stat_t
			if err := unix.Lstat(t.here(p), &st); err != nil {
				t.problem(p, err)
				continue
			}
			if uint64(st.Dev) != t.fsID || t.recording && t.marked(p) {
				t.mounts = append(t.mounts, p)
				continue
			}
			if err := t.walk(ctx, p); err != nil {
				return err
			}
		case fs.ModeSymlink:
			target, err := os.Readlink(t.here(p))
			if err != nil {
				t.problem(p, err)
				continue
			}
			t.links[p] = target
		case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
			t.stat(p)
		case 0:
			if t.recording {
				t.readRecorded(p)
			}
		}
	}
	return nil
}

// stat adds p to the nodes if it is one, and returns what it is.
func (t *devTree) stat(p string) (mode uint32) {
	var st unix.Stat_t
	if err := unix.Lstat(t.here(p), &st); err != nil {
		t.problem(p, err)
		return 0
	}
	mode = st.Mode & unix.S_IFMT
	major, minor := unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))
	switch {
	case mode == unix.S_IFCHR:
		t.addNode(p, device.CharNode, major, minor)
	case mode == unix.S_IFBLK:
		t.addNode(p, device.BlockNode, major, minor)
	case mode == unix.S_IFREG && t.recording:
		t.readRecorded(p)
	}
	return mode
}

// still reports whether n is there as it was read.
func (t *devTree) still(n *device.Node) bool {
	now := &devTree{root: t.root, recording: t.recording, nodes: make(map[string]*device.Node)}
	now.stat(n.Path)
	got := now.nodes[n.Path]
	return got != nil && got.Type == n.Type && got.Major == n.Major && got.Minor == n.Minor
}

// readRecorded adds p to the nodes if it is a file that stands for one.
func (t *devTree) readRecorded(p string) {
	f, err := os.Open(t.here(p))
	if err != nil {
		t.problem(p, err)
		return
	}
	defer f.Close()
	var text [64]byte
	n, err := f.Read(text[:])
	if err != nil && err != io.EOF {
		t.problem(p, err)
		return
	}
	if kind, major, minor, ok := parseRecordedNode(string(text[:n])); ok {
		t.addNode(p, kind, major, minor)
	}
}

func (t *devTree) addNode(p string, kind device.NodeType, major, minor uint32) {
	t.nodes[p] = &device.Node{
		Path: p, Type: kind, Major: major, Minor: minor, Kernel: base(p), Interface: -1, Index: -1,
	}
}

// problem notes what can't be read; what has gone is none.
func (t *devTree) problem(p string, err error) {
	if !notExist(err) && !errors.Is(err, unix.ENOTDIR) {
		t.problems = append(t.problems, device.Problem{Subject: p, Reason: reason(err)})
	}
}

// sortedNodes returns the nodes by path, with those that only a link leads to
// (on another file system below /dev, such as pts).
func (t *devTree) sortedNodes() []*device.Node {
	for p := range t.links {
		t.resolve(p)
	}
	nodes := make([]*device.Node, 0, len(t.nodes))
	for _, n := range t.nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *device.Node) int { return cmp.Compare(a.Path, b.Path) })
	return nodes
}

// resolveLinks returns by path the links that lead to one of nodes.
func (t *devTree) resolveLinks(nodes []*device.Node) []device.Link {
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
		t.look(next)
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

// look makes p known if the walk did not come there, since it is on another
// file system.
func (t *devTree) look(p string) {
	_, isLink := t.links[p]
	if isLink || t.isDir[p] || t.nodes[p] != nil {
		return
	}
	switch t.stat(p) {
	case unix.S_IFDIR:
		t.isDir[p] = true
	case unix.S_IFLNK:
		if target, err := os.Readlink(t.here(p)); err == nil {
			t.links[p] = target
		}
	}
}
