package configuration

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is the number of symbolic links that a path may contain (path_resolution(7)).
const maxLinks = 40

// symlinkDirs are the directories in which a change can make a path mean another file: its
// own directory, and the directories of the symbolic links on the path. In a mounted ConfigMap
// "config.toml" is a link to "..data/config.toml", and "..data" one to a directory
// that is replaced as a whole (k8s.io/kubernetes, pkg/volume/util, AtomicWriter).
type symlinkDirs map[string]bool

// watchedDirs are the directories to watch for a configuration at a path.
func watchedDirs(path string) []string {
	dirs := symlinkDirs{}
	dirs.add(path)
	// Links in a directory may point anywhere.
	entries, _ := os.ReadDir(path) // a file has none
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			dirs.add(filepath.Join(path, e.Name()))
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// add adds the directories of one path, which may not exist yet.
func (t symlinkDirs) add(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // no working directory
	}
	dir := "/"
	rest := path
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		here := filepath.Join(dir, name)
		target, err := os.Readlink(here)
		if err != nil || links == maxLinks {
			dir = here // no link
			continue
		}
		t[dir] = true
		links++
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = target + "/" + rest
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	t[dir] = true
}
