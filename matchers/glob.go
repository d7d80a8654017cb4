package matchers

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// globbed yields the nodes that v selects by their paths or those of their
// links, once for each of these.
func (ix *index) globbed(v pattern.Values) iter.Seq[*device.Node] {
	return func(yield func(*device.Node) bool) {
		for _, prefix := range v.Prefixes() {
			for _, n := range ix.beginning(prefix) {
				if v.Match(n.path) && (!v.Negative() || ix.globHolds(v, n.node)) && !yield(n.node) {
					return
				}
			}
		}
	}
}

// glob lists the nodes that v selects, each once.
func (ix *index) glob(v pattern.Values) []*device.Node {
	var found []*device.Node
	seen := map[*device.Node]bool{}
	for n := range ix.globbed(v) {
		if !seen[n] {
			seen[n] = true
			found = append(found, n)
		}
	}
	return found
}

// globHolds reports whether a glob selects a node: by its path, or by the
// path of a link that leads to it. All its names count at once: a "!" pattern
// that matches a link takes the node out.
func (ix *index) globHolds(v pattern.Values, n *device.Node) bool {
	links := ix.links[n]
	if own := v.Match(n.Path); len(links) == 0 || own && !v.Negative() {
		return own
	}
	return v.Match(append(links[:len(links):len(links)], n.Path)...)
}

// captures is what the wildcards of a glob stood for where it selects a node:
// in the node's own path if that matches, else in the first link that does.
func (ix *index) captures(v pattern.Values, n *device.Node) []string {
	if found := v.Captures(n.Path); found != nil {
		return found
	}
	for _, link := range ix.links[n] {
		if found := v.Captures(link); found != nil {
			return found
		}
	}
	return nil
}

// directoryNotes reports the globs of a resource that name directories, which
// select nothing: what is meant is what is in them.
func (ix *index) directoryNotes(r *config.Resource) []Note {
	var notes []Note
	look := func(place string, v pattern.Values) {
		for _, p := range v.Parsed() {
			if p.Negated() {
				continue
			}
			if dir := ix.namesDirectory(p.Positive()); dir != "" {
				notes = append(notes, Note{
					Place: place,
					Text:  fmt.Sprintf("glob: %q is a directory: want the nodes in it", dir),
					Hint:  fmt.Sprintf("did you mean %q?", p.String()+"/*"),
					Error: true,
				})
			}
		}
	}
	for i := range r.Match {
		if m := &r.Match[i]; !m.Mount {
			look(m.Place, m.Glob)
		}
	}
	for i := range r.Exclude {
		look(r.Exclude[i].Place, r.Exclude[i].Glob)
	}
	for i := range r.With {
		if c := &r.With[i]; !c.Mount {
			look(c.Place, c.Glob)
		}
	}
	return notes
}

// namesDirectory returns the first directory that a glob matches if it matches
// directories and no node. "**" matches directories on its way and is not
// looked at.
func (ix *index) namesDirectory(v pattern.Values) string {
	if strings.Contains(v.Patterns()[0], "**") {
		return ""
	}
	i := slices.IndexFunc(ix.snap.Dirs, func(dir string) bool { return v.Match(dir) })
	if i < 0 || len(ix.glob(v)) > 0 {
		return ""
	}
	return ix.snap.Dirs[i]
}
