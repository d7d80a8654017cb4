package matchers

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Dirs lists the directories of the host to watch, sorted, for the globs and paths of the
// configuration. Files, links and nodes made by hand may appear or disappear there, and uevents
// cover only the nodes of the kernel. For each glob, Dirs lists the directory before the first
// wildcard. Below /dev, where here lists the existing directories, it lists the nearest existing
// ancestor, and all directories that the glob crosses. There are no events below /sys.
//
// The agent calls it after each scan, because here changes with the host.
func Dirs(cfg *config.Config, here []string) []string {
	w := dirWatch{here: here, dirs: map[string]bool{}}
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		for _, m := range slices.Concat(r.Match, r.Exclude) {
			w.add(m.Glob)
		}
		if r.When != nil {
			w.add(r.When.Exists)
		}
		for _, c := range r.With {
			w.add(c.Glob)
			isCheckedAtAllocate := c.Mount && c.Optional
			if c.Glob.Empty() && !isCheckedAtAllocate {
				w.addText(c.Path)
			}
		}
	}
	return slices.Sorted(maps.Keys(w.dirs))
}

// Crossed lists conditions on directories that globs cross outside of /dev and /sys, one for each
// alternative: "/run/vendor/*" for "/run/vendor/*/api.sock". Dirs cannot list them without searching the host,
// and a file that is made after its directory causes no event in the directory above.
func Crossed(cfg *config.Config) []pattern.Values {
	var conditions []pattern.Values
	for i := range cfg.Resources {
		var globs []pattern.Values
		for _, m := range cfg.Resources[i].Match {
			globs = append(globs, m.Glob)
		}
		for _, c := range cfg.Resources[i].With {
			globs = append(globs, c.Glob)
		}
		for _, glob := range globs {
			for _, a := range glob.Alternatives() {
				shape := a.Shape()
				isWatched := strings.HasPrefix(shape, "/dev/") || strings.HasPrefix(shape, "/sys/")
				_, isLiteral := a.Literal()
				if !isWatched && !isLiteral {
					conditions = append(conditions, a.Through())
				}
			}
		}
	}
	return conditions
}

// dirWatch gathers directories for Dirs.
type dirWatch struct {
	here []string // existing directories of /dev, sorted
	dirs map[string]bool
}

// addText adds the directory of a path, up to its first variable.
func (w *dirWatch) addText(t device.Text) {
	if len(t) == 0 {
		return
	}
	fixed, _, open := strings.Cut(t.String(), "${")
	// The last element is incomplete. Any character makes it one that path.Dir removes.
	if open {
		fixed += "x"
	}
	w.addDir(path.Dir(fixed))
}

// add adds the directories of globs, with or without "!".
func (w *dirWatch) add(globs pattern.Values) {
	for _, a := range globs.Positive().Alternatives() {
		// The prefix may end with "/" or within an element: the appended character is removed
		// with it.
		dir := path.Dir(a.Prefix() + "x")
		if a.Prefix() == "/dev" { // of "/dev/**"
			dir = "/dev"
		}
		w.addDir(dir)
		through := a.Through()
		for _, d := range w.here {
			if strings.HasPrefix(d, dir+"/") && through.Match(d) {
				w.dirs[d] = true
			}
		}
	}
}

// addDir adds a directory; below /dev the nearest existing one above.
func (w *dirWatch) addDir(dir string) {
	for strings.HasPrefix(dir, "/dev/") {
		// A missing directory cannot be watched. Its creation is an event in the directory above.
		if _, found := slices.BinarySearch(w.here, dir); found {
			break
		}
		dir = path.Dir(dir)
	}
	// There are no events below /sys, see Dirs.
	if !strings.HasPrefix(dir+"/", "/sys/") {
		w.dirs[dir] = true
	}
}

// UsesNets reports whether a configuration needs network interfaces. A physical function is named
// by its address or by an interface, whose name has no colon (dev_valid_name in net/core/dev.c).
// The agent scans again if a new configuration needs the interfaces that the last scan left out.
func UsesNets(cfg *config.Config) bool {
	needsNets := func(m config.Match) bool {
		return m.Has("net") || slices.ContainsFunc(m.Hardware["pci"]["pf"].Patterns(), func(pf string) bool {
			return !strings.Contains(pf, ":")
		})
	}
	return slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool {
		checksLink := r.Health != nil && r.Health.Link
		hasVariable := slices.ContainsFunc(r.Variables, func(name string) bool {
			return strings.HasPrefix(name, "net.")
		})
		return checksLink || hasVariable || slices.ContainsFunc(slices.Concat(r.Match, r.Exclude), needsNets)
	})
}

// UsesCDIDevices reports whether a configuration needs the CDI devices of the host. If not,
// matching does not read the specs of the host.
func UsesCDIDevices(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool {
		return slices.ContainsFunc(r.Match, func(m config.Match) bool {
			return !m.CDIDevice.Empty()
		})
	})
}
