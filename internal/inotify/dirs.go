package inotify

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Dirs keeps watches on directories that may come and go. Its watches are of
// directories, not of paths: whatever moves or removes one makes a Sync
// necessary. It is for one goroutine; Source.Next may be called in another.
type Dirs struct {
	Source  Source
	watched map[int]*watched
}

// watched is why a directory is watched.
type watched struct {
	whole bool            // everything in it counts
	names map[string]bool // or only that one of these appears
}

// Sync makes the watches those of dirs, and reports whether there is a
// directory now that was not watched before. A directory that is missing is
// waited for in the nearest one above it. The error names the first directory
// that can't be watched; the others are.
func (d *Dirs) Sync(dirs []string) (added bool, err error) {
	fresh := make(map[int]*watched, len(dirs))
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
			d.Source.Remove(wd)
		}
	}
	d.watched = fresh
	return added, err
}

// add watches dir or the nearest directory above it.
func (d *Dirs) add(dir string, fresh map[int]*watched) (int, error) {
	missing := ""
	// What is missing may appear before the directory above it is watched,
	// so it is tried once more then. Something that comes and goes faster
	// than that makes an event.
	tries := 0
	for p := dir; ; {
		wd, err := d.Source.Add(p)
		if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) && p != path.Dir(p) {
			missing, p = path.Base(p), path.Dir(p)
			continue
		}
		if err != nil {
			return 0, err
		}
		w := fresh[wd]
		if w == nil {
			w = &watched{names: make(map[string]bool)}
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

// Handle says whether events tell of a change in one of the directories, and
// whether they make a Sync necessary.
func (d *Dirs) Handle(events []Event) (changed, moved bool) {
	for _, e := range events {
		if e.Mask&unix.IN_Q_OVERFLOW != 0 {
			changed, moved = true, true
			continue
		}
		w := d.watched[e.WD]
		if w == nil {
			continue
		}
		if e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0 {
			// The watch may still be on a directory that is elsewhere now.
			d.Source.Remove(e.WD)
			delete(d.watched, e.WD)
			changed, moved = changed || w.whole, true
			continue
		}
		changed = changed || w.whole
		moved = moved || w.names[e.Name] && e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	}
	return changed, moved
}
