package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is how many symbolic links a path may lead through, as the kernel
// has it (path_resolution(7)).
const maxLinks = 40

// trail gathers the directories in which a change can make something else of a
// path: the one that it is in, and each that has a link on the way there. In a
// mounted ConfigMap "config.toml" is a link to "..data/config.toml", and
// "..data" one to a directory that is replaced by the next (k8s.io/kubernetes,
// pkg/volume/util, AtomicWriter).
type trail map[string]bool

// configDirs are the directories to watch for a configuration at path.
func configDirs(path string) []string {
	dirs := trail{}
	dirs.follow(path)
	// Links in a directory may lead anywhere.
	entries, _ := os.ReadDir(path) // a file has none
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			dirs.follow(filepath.Join(path, e.Name()))
		}
	}
	return dirs.sorted()
}

// follow adds the directories of one path. What is not there is a directory
// that may come.
func (t trail) follow(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // no working directory
	}
	dir, rest := "/", strings.TrimPrefix(path, "/")
	for links := 0; rest != "" && links <= maxLinks; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." {
			continue
		}
		here := filepath.Join(dir, name)
		info, err := os.Lstat(here)
		switch {
		case err != nil:
			t[filepath.Dir(filepath.Join(here, rest))] = true
			return
		case info.Mode()&fs.ModeSymlink != 0:
			t[dir] = true
			links++
			target, err := os.Readlink(here)
			if err != nil {
				return // it is gone, and dir tells what comes
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = target + "/" + rest
		case info.IsDir():
			dir = here
		default:
			t[dir] = true // a file
			return
		}
	}
	t[dir] = true
}

func (t trail) sorted() []string {
	dirs := make([]string, 0, len(t))
	for dir := range t {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}
