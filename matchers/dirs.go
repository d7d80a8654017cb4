package matchers

import (
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// Dirs lists the directories of the host, sorted, in which something may
// appear or go that the configuration asks for with a glob or a path: what to
// watch besides the kernel's events, which do not tell of links, of nodes made
// by hand and of files. Of each pattern it is the directory that the pattern
// names up to its first wildcard, or, below /dev, of whose directories here are
// those that are there, the nearest one above and every one below it that the
// pattern goes through. What a pattern goes through elsewhere is not known here,
// and /sys tells of nothing.
func Dirs(cfg *config.Config, here []string) []string {
	w := dirWatch{here: here, dirs: map[string]bool{}, done: map[string]bool{}}
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		for _, m := range slices.Concat(r.Match, r.Exclude) {
			for _, p := range m.Glob.Patterns() {
				w.add(positive(p))
			}
		}
		if r.When != nil {
			for _, p := range r.When.Exists {
				w.add(positive(p))
			}
		}
		for _, c := range r.With {
			w.add(c.Glob)
			w.addText(c.Path)
		}
		for _, m := range r.Container.Mounts {
			if !m.Optional { // those are looked for when a container asks
				w.addText(m.HostPath)
			}
		}
	}
	found := make([]string, 0, len(w.dirs))
	for d := range w.dirs {
		found = append(found, d)
	}
	slices.Sort(found)
	return found
}

// dirWatch gathers directories.
type dirWatch struct {
	here []string // directories of /dev that are there, sorted
	dirs map[string]bool
	done map[string]bool // patterns
}

// positive is a pattern without the "!" that turns it around.
func positive(pattern string) string { return strings.TrimSpace(strings.TrimPrefix(pattern, "!")) }

// addText adds where a path with variables is: up to the first of them it is
// as it is written.
func (w *dirWatch) addText(t device.Text) {
	if fixed, open, _ := strings.Cut(t.String(), "${"); open != "" {
		w.add(path.Dir(fixed+"x") + "/*")
	} else {
		w.add(fixed)
	}
}

func (w *dirWatch) add(pattern string) {
	if w.done[pattern] || pattern == "" || strings.HasPrefix(pattern, hostSys) {
		return
	}
	w.done[pattern] = true
	v, err := config.ParseGlob(pattern)
	if err != nil {
		return
	}
	if !strings.HasPrefix(pattern, "/dev/") {
		for _, prefix := range v.Prefixes() {
			w.dirs[path.Dir(prefix+"x")] = true
		}
		return
	}
	for _, prefix := range v.Prefixes() {
		w.dirs[w.above(prefix)] = true
	}
	// What the pattern goes through: "/dev/bus/*" of "/dev/bus/*/*".
	for i := range pattern {
		if pattern[i] == '/' {
			w.through(pattern[:i])
		}
	}
	if strings.HasSuffix(pattern, "**") {
		w.through(pattern)
	}
}

// through adds the directories that a pattern with wildcards matches.
func (w *dirWatch) through(pattern string) {
	if !strings.ContainsAny(pattern, `*?[{\`) {
		return
	}
	v, err := config.ParseGlob(pattern)
	if err != nil { // cut within {a/b,c}, whose alternatives are prefixes
		return
	}
	for _, dir := range w.here {
		if v.Match(dir) {
			w.dirs[dir] = true
		}
	}
}

// above is the nearest directory above a path that is there.
func (w *dirWatch) above(p string) string {
	for dir := path.Dir(p); strings.HasPrefix(dir, "/dev/"); dir = path.Dir(dir) {
		if _, found := slices.BinarySearch(w.here, dir); found {
			return dir
		}
	}
	return "/dev"
}
