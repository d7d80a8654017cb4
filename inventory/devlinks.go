package inventory

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
)

// maxLinks is how many links one path may lead through, the kernel's own
// limit (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

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
