package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// glob lists the nodes that v selects by their paths or those of their links,
// each once.
func (ix *index) glob(v config.Values) []*device.Node {
	globs := v.Globs()
	if len(globs) == 0 { // all but what is excluded
		return slices.DeleteFunc(slices.Clone(ix.snap.Nodes), func(n *device.Node) bool { return !ix.globHolds(v, n) })
	}
	var found []*device.Node
	twice := len(globs) > 1 // a node may be found
	for _, g := range globs {
		var links bool
		found, links = ix.tree().look(g, found)
		twice = twice || links
	}
	if twice {
		seen := make(map[*device.Node]bool, len(found))
		found = slices.DeleteFunc(found, func(n *device.Node) bool {
			again := seen[n]
			seen[n] = true
			return again
		})
	}
	if v.Negated() {
		found = slices.DeleteFunc(found, func(n *device.Node) bool { return !ix.globHolds(v, n) })
	}
	return found
}

// globHolds reports whether a glob selects a node: by its path, or by the
// path of a link that leads to it. All its names count at once: a "!" pattern
// that matches a link takes the node out.
func (ix *index) globHolds(v config.Values, n *device.Node) bool {
	own := v.Match(n.Path)
	if own && !v.Negated() || len(ix.snap.Links) == 0 || !ix.links().has(n) {
		return own
	}
	return v.Match(ix.links().names(n)...)
}

// linksTo lists the links that lead to a node.
func (ix *index) linksTo(n *device.Node) []string { return slices.Clone(ix.links().names(n)[1:]) }

// captures is what the wildcards of a glob stood for where it selects a node:
// in the node's own path if that matches, else in the first link that does.
func (ix *index) captures(v config.Values, n *device.Node) []string {
	if found := v.Captures(n.Path); found != nil {
		return found
	}
	for _, link := range ix.linksTo(n) {
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
	look := func(place string, v config.Values) {
		for globs := v.Globs(); len(globs) > 0; {
			pattern := globs[0].Pattern()
			n := slices.IndexFunc(globs, func(g config.Glob) bool { return g.Pattern() != pattern })
			if n < 0 {
				n = len(globs)
			}
			if dir := ix.namesDirectory(pattern, globs[:n]); dir != "" {
				notes = append(notes, Note{
					Place: place,
					Text:  fmt.Sprintf("glob: %q is a directory: want the nodes in it", dir),
					Hint:  fmt.Sprintf("did you mean %q?", pattern+"/*"),
					Error: true,
				})
			}
			globs = globs[n:]
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
		if c := &r.With[i]; c.Glob != "" && !c.Mount {
			if v, err := config.ParseGlob(c.Glob); err == nil {
				look(c.Place, v)
			}
		}
	}
	return notes
}

// namesDirectory returns the first directory that a pattern, of which globs
// are the alternatives, matches if it matches directories and no node. "**"
// matches directories on its way and is not looked at.
func (ix *index) namesDirectory(pattern string, globs []config.Glob) string {
	if strings.Contains(pattern, "**") {
		return ""
	}
	first := ""
	for _, g := range globs {
		if dir := ix.tree().matchedDir(g); first == "" || dir != "" && dir < first {
			first = dir
		}
	}
	if first == "" {
		return ""
	}
	for _, g := range globs {
		if nodes, _ := ix.tree().look(g, nil); len(nodes) > 0 {
			return ""
		}
	}
	return first
}
