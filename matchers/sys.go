package matchers

import (
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// What a match says of driver and attr is read from sysfs, and only where all
// else holds: a read is dear beside a comparison.

// asksNothing reports whether the match looks at no file of sysfs.
func (p *predicate) asksNothing() bool { return p.match.Driver.Empty() && len(p.match.Attr) == 0 }

// sysHolds reports whether directories of sysfs, nearest first, fulfil what
// the match says of driver and attributes.
func (p *predicate) sysHolds(ix *index, dirs []string) bool {
	if !p.match.Driver.Empty() && !p.match.Driver.Match(ix.driver(dirs)) {
		return false
	}
	return p.attrsHold(ix, dirs)
}

func (p *predicate) attrsHold(ix *index, dirs []string) bool {
	for name, v := range p.match.Attr {
		if !v.Match(ix.attr(dirs, name)) {
			return false
		}
	}
	return true
}

// driver is that of the first of the directories that has one.
func (ix *index) driver(dirs []string) string {
	if ix.opts.Driver != nil {
		for _, dir := range dirs {
			if found := ix.opts.Driver(dir); found != "" {
				return found
			}
		}
	}
	return ""
}

// attr is an attribute as the first of the directories has it that does.
func (ix *index) attr(dirs []string, name string) string {
	if ix.opts.Attr != nil {
		for _, dir := range dirs {
			if value, found := ix.opts.Attr(dir, name); found {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// sysDirs is sysDirs of a node, looked up.
func (ix *index) sysDirs(n *device.Node) []string {
	dirs, ok := ix.sys[n]
	if !ok {
		dirs = sysDirs(n)
		ix.sys[n] = dirs
	}
	return dirs
}

// sysDirs lists the directories of sysfs from a node up to its hardware,
// relative as in a snapshot. Where the hardware is not above the node, as that
// of an IOMMU group, it comes second. A node without hardware has its own
// directory alone.
func sysDirs(n *device.Node) []string {
	var dirs []string
	top := hardwarePath(n.Hardware)
	dir := n.SysPath
	if dir != "" && !strings.HasPrefix(dir, top+"/") {
		dirs, dir = []string{dir}, top
	}
	for ; len(dir) > len(top); dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	if top != "" {
		dirs = append(dirs, top)
	}
	return dirs
}

// attrDirs lists for each node and network interface where its attributes may
// be, nearest first. Those of VFIO are looked for in the directories of its
// functions, and so are those of hardware without nodes.
func (s *subject) attrDirs() [][]string {
	var all [][]string
	if !s.vfio {
		for _, p := range s.picks {
			if dirs := sysDirs(p.node); dirs != nil {
				all = append(all, dirs)
			}
		}
	}
	if all == nil {
		for _, h := range s.hardware {
			all = append(all, []string{h.Path})
		}
	}
	return all
}
