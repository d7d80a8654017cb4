package catalog

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// wildcards are the characters with a meaning in a pattern.
const wildcards = `*?[{\!`

// matches reports whether a path matches one of the globs. A glob that is not a valid pattern, such
// as the path of a strange node, matches nothing.
func (c *Catalog) matches(path string, globs ...string) bool {
	for _, glob := range globs {
		end := strings.IndexAny(glob, wildcards)
		if end < 0 {
			end = len(glob)
		}
		// Nearly all paths differ in the text before the first wildcard. A host may have
		// 300,000 nodes, and to parse a pattern takes longer than to match it.
		if strings.HasPrefix(path, glob[:end]) && c.pattern(glob).Match(path) {
			return true
		}
	}
	return false
}

// pattern returns the parsed pattern of a glob, and caches it. An invalid glob returns noPath.
func (c *Catalog) pattern(glob string) pattern.Values {
	values, known := c.patterns[glob]
	if !known {
		parsed, err := pattern.Parse(pattern.Path, glob)
		if err != nil {
			parsed = noPath
		}
		values = parsed
		c.patterns[glob] = values
	}
	return values
}

// noPath matches no path of a node, which are absolute.
var noPath, _ = pattern.Parse(pattern.Path, "none")

// hasNode reports whether hardware has a node that matches one of the globs.
func (c *Catalog) hasNode(h *device.Hardware, globs []string) bool {
	return slices.ContainsFunc(h.Nodes, func(n *device.Node) bool {
		return c.matches(n.Path, globs...)
	})
}

// nodesOf returns the nodes of hardware that match one of the globs.
func (c *Catalog) nodesOf(h *device.Hardware, globs []string) []*device.Node {
	var found []*device.Node
	for _, n := range h.Nodes {
		if c.matches(n.Path, globs...) {
			found = append(found, n)
		}
	}
	return found
}
