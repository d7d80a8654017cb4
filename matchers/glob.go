package matchers

import (
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// globHolds reports whether a glob selects a node: by its path, or by the
// path of a link that leads to it. All its names count at once: a "!" pattern
// that matches a link takes the node out.
func (ix *index) globHolds(v config.Values, n *device.Node) bool {
	links := ix.links[n]
	if len(links) == 0 {
		return v.Match(n.Path)
	}
	return v.Match(append([]string{n.Path}, links...)...)
}

// captures is what the wildcards of a glob stood for where it selects a node:
// in the node's own path if that matches, else in the first link that does.
func (ix *index) captures(v config.Values, n *device.Node) []string {
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
	look := func(place string, patterns ...string) {
		for _, p := range patterns {
			if dir := ix.namesDirectory(p); dir != "" {
				notes = append(notes, Note{
					Place: place,
					Text:  fmt.Sprintf("glob: %q is a directory: want the nodes in it", dir),
					Hint:  fmt.Sprintf("did you mean %q?", p+"/*"),
					Error: true,
				})
			}
		}
	}
	for _, m := range r.Match {
		look(m.Place, m.Glob.Patterns()...)
	}
	for _, m := range r.Exclude {
		look(m.Place, m.Glob.Patterns()...)
	}
	for _, c := range r.With {
		if c.Glob != "" && !c.Mount {
			look(c.Place, c.Glob)
		}
	}
	return notes
}

// namesDirectory returns the first directory that a pattern matches if it
// matches directories and no node. "**" matches directories on its way and is
// not looked at.
func (ix *index) namesDirectory(pattern string) string {
	if strings.HasPrefix(pattern, "!") || strings.Contains(pattern, "**") {
		return ""
	}
	if !strings.ContainsAny(pattern, `*?[{\`) {
		if ix.dirs[pattern] {
			return pattern
		}
		return ""
	}
	v, err := config.ParseGlob(pattern)
	if err != nil {
		return ""
	}
	for _, dir := range ix.snap.Dirs {
		if v.Match(dir) {
			if len(ix.glob(v)) > 0 {
				return ""
			}
			return dir
		}
	}
	return ""
}
