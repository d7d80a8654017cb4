package inventory

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// dirSet keeps watches on directories that may come and go. Its watches are
// of directories, not of paths: whatever moves or removes one makes a sync
// necessary.
type dirSet struct {
	files   fileEvents
	watched map[int]*watchedDir
}

// watchedDir is why a directory is watched.
type watchedDir struct {
	whole bool            // everything in it counts
	names map[string]bool // or only that one of these appears
}

// sync makes the watches those of dirs, and reports whether there is a
// directory now that was not watched before. A directory that is missing is
// waited for in the nearest one above it. The error names the first directory
// that can't be watched; the others are.
func (d *dirSet) sync(dirs []string) (added bool, err error) {
	fresh := make(map[int]*watchedDir, len(dirs))
	for _, dir := range dirs {
		wd, addErr := d.add(dir, fresh)
		if addErr != nil {
			if err == nil {
				err = fmt.Errorf("watching %q: %w", dir, addErr)
			}
			continue
		}
		if old := d.watched[wd]; fresh[wd].whole && (old == nil || !old.whole) {
			added = true
		}
	}
	for wd := range d.watched {
		if fresh[wd] == nil {
			d.files.remove(wd)
		}
	}
	d.watched = fresh
	return added, err
}

// add watches dir or the nearest directory above it.
func (d *dirSet) add(dir string, fresh map[int]*watchedDir) (int, error) {
	missing := ""
	// What is missing may appear before the directory above it is watched,
	// so it is tried once more then. Something that comes and goes faster
	// than that makes an event.
	tries := 0
	for p := dir; ; {
		wd, err := d.files.add(p)
		if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) && p != path.Dir(p) {
			missing, p = path.Base(p), path.Dir(p)
			continue
		}
		if err != nil {
			return 0, err
		}
		w := fresh[wd]
		if w == nil {
			w = &watchedDir{names: make(map[string]bool)}
			fresh[wd] = w
		}
		if missing == "" {
			w.whole = true
			return wd, nil
		}
		w.names[missing] = true
		if _, err := os.Stat(p + "/" + missing); err != nil || tries > 0 {
			return wd, nil
		}
		tries++
		missing, p = "", dir
	}
}

// handle says whether events tell of a change, and whether they make a sync
// necessary.
func (d *dirSet) handle(events []fileEvent) (changed, moved bool) {
	for _, e := range events {
		if e.mask&unix.IN_Q_OVERFLOW != 0 {
			changed, moved = true, true
			continue
		}
		w := d.watched[e.wd]
		if w == nil {
			continue
		}
		if e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0 {
			// The watch may still be on a directory that is elsewhere now.
			d.files.remove(e.wd)
			delete(d.watched, e.wd)
			changed, moved = changed || w.whole, true
			continue
		}
		changed = changed || w.whole
		moved = moved || w.names[e.name] && e.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	}
	return changed, moved
}
