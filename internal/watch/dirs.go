package watch

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// dirs keeps watches on directories that may come and go. A watch is on a directory,
// not on a path: any move or removal requires a sync. It is for one goroutine.
type dirs struct {
	source  Source
	watched map[int]*watched
}

// watched is what to watch in a directory.
type watched struct {
	whole bool            // every entry
	names map[string]bool // or only that one of these is created
}

// sync makes the watches those of list, and reports whether a directory exists now that
// was not watched before. A missing directory is awaited in its nearest existing
// ancestor. The error names the first directory that can't be watched; the others are.
func (d *dirs) sync(list []string) (added bool, err error) {
	fresh := make(map[int]*watched, len(list))
	for _, dir := range list {
		wd, addErr := d.add(dir, fresh)
		if addErr != nil {
			if err == nil {
				err = fmt.Errorf("watch %q: %w", dir, addErr)
			}
			continue
		}
		if old := d.watched[wd]; fresh[wd].whole && (old == nil || !old.whole) {
			added = true
		}
	}
	for wd := range d.watched {
		if fresh[wd] == nil {
			d.source.Remove(wd)
		}
	}
	d.watched = fresh
	return added, err
}

// add watches dir or its nearest existing ancestor.
func (d *dirs) add(dir string, fresh map[int]*watched) (int, error) {
	missing := ""
	// The missing directory may be created before its ancestor is watched, so it is
	// tried once more then. Faster changes cause an event.
	tries := 0
	for p := dir; ; {
		wd, err := d.source.Add(p)
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

// change is what some events mean.
type change struct {
	names []string // of entries of the directories
	all   bool     // anything may have changed
	moved bool     // a sync is necessary
}

func (c change) empty() bool { return len(c.names) == 0 && !c.all }

// handle interprets an event.
func (d *dirs) handle(events []Event) (c change) {
	for _, e := range events {
		if e.Mask&unix.IN_Q_OVERFLOW != 0 {
			c.all, c.moved = true, true
			continue
		}
		w := d.watched[e.WD]
		if w == nil {
			continue
		}
		if e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0 {
			// The watch may still be on a directory that was moved.
			d.source.Remove(e.WD)
			delete(d.watched, e.WD)
			c.all, c.moved = c.all || w.whole, true
			continue
		}
		if w.whole {
			c.names = append(c.names, e.Name)
		}
		c.moved = c.moved || w.names[e.Name] && e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	}
	return c
}
