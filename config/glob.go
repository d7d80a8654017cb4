package config

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// devDir is where device nodes are. Paths are the host's, wherever its /dev
// is mounted.
const devDir = "/dev/"

// nodeGlob selects device nodes by their paths.
var nodeGlob = kind{
	mode: pathMode, want: `a path below /dev or a pattern such as "/dev/ttyUSB*", or a list of them`,
	check: func(a alternative) (rule, hint string) {
		elements := shape(a.tokens)
		if strings.HasPrefix(elements, devDir) && path.Clean(elements) == elements {
			return "", ""
		}
		switch before, after, below := strings.Cut(a.written, devDir); {
		case slices.Contains(strings.Split(elements, "/"), ".."):
			return `has "..": want a path below /dev without it`, ""
		case strings.HasPrefix(elements, devDir) && strings.HasSuffix(elements, "/"):
			return "names a directory: want the nodes in it", didYouMean(strings.TrimRight(a.written, "/") + "/*")
		case strings.HasPrefix(elements, devDir):
			return "is not a clean path: want single slashes and no \".\"", ""
		case below && before != "":
			return "is not below /dev: want the host's own path", didYouMean(devDir + after)
		case strings.HasPrefix(elements, "/sys/"):
			return "is not below /dev: want the path of a device node", "hardware is selected by usb and pci"
		case strings.HasPrefix(elements, "/"):
			return "is not below /dev: want the path of a device node", ""
		default:
			return `is not below /dev: want a path such as "/dev/ttyUSB*"`, didYouMean(devDir + strings.TrimPrefix(a.written, "dev/"))
		}
	},
}

// pathGlob selects any paths: files and directories to mount.
var pathGlob = kind{
	mode: pathMode, want: "an absolute path or pattern",
	check: func(a alternative) (rule, hint string) {
		elements := shape(a.tokens)
		if !strings.HasPrefix(elements, "/") || path.Clean(elements) != elements {
			return `is not an absolute, clean path: want one such as "/opt/vendor/*.so"`, ""
		}
		return "", ""
	},
}

// ParseGlob reads one pattern of absolute paths, such as Companion.Glob. The
// error says what the pattern breaks.
func ParseGlob(pattern string) (Values, error) {
	patterns, not, rule, _ := pathGlob.parse(pattern)
	if not {
		rule = `begins with "!": want a pattern that selects`
	}
	if rule != "" {
		return Values{}, errors.New(quote(pattern) + " " + rule)
	}
	return Values{mode: pathMode, positive: patterns, written: []string{strings.TrimSpace(pattern)}}, nil
}

// Glob is one pattern of paths, its alternatives written out. It matches the
// paths whose directory and whose name it matches, so that a reader of sorted
// directories needs to look at few paths.
type Glob struct {
	p       *pattern
	written string
}

// Globs lists the positive patterns of a condition on paths. No path fulfils
// the condition that none of them matches, but for a condition without any.
func (v Values) Globs() []Glob {
	globs := make([]Glob, 0, len(v.positive))
	for i := range v.positive {
		p := &v.positive[i]
		globs = append(globs, Glob{p, v.written[p.place]})
		if p.wild != nil && p.wild.above != nil {
			globs = append(globs, Glob{p.wild.above, v.written[p.place]})
		}
	}
	return globs
}

// Negated reports whether v has patterns with a leading "!".
func (v Values) Negated() bool { return len(v.negative) > 0 }

// Pattern is what the configuration has, of which g is an alternative.
func (g Glob) Pattern() string { return g.written }

// Path returns the path that g matches if it has no wildcards.
func (g Glob) Path() (path string, literal bool) { return g.p.literal, g.p.wild == nil }

// Dir returns the directory of all that g matches if there is one alone. It
// is that of a Glob with wildcards.
func (g Glob) Dir() (dir string, alone bool) { return g.p.wild.dir, g.p.wild.dirs == nil }

// MatchDir reports whether g, which has wildcards, matches paths in a
// directory.
func (g Glob) MatchDir(dir string) bool {
	w := g.p.wild
	return w.dirs == nil && dir == w.dir || w.dirs != nil && strings.HasPrefix(dir, g.p.prefix) && matchElements(w.dirs, dir)
}

// NamePrefix is what the last elements of all paths begin with that g, which
// has wildcards, matches, and whether it matches all names that begin so.
func (g Glob) NamePrefix() (prefix string, all bool) {
	runs := g.p.wild.name.runs
	return runs[0].literal, len(runs) == 2 && len(runs[0].tokens) == 0 && runs[1].empty()
}

// NameLetters are characters that the last elements of all paths have that g,
// which has wildcards, matches.
func (g Glob) NameLetters() string {
	letters := ""
	for _, r := range g.p.wild.name.runs {
		letters += r.literal
	}
	return letters
}

// MatchName reports whether g, which has wildcards, matches paths with the
// last element name in the directories that it matches.
func (g Glob) MatchName(name string) bool { return g.p.wild.name.match(name) }
