package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/inotify"
)

// dirWatch follows one directory.
type dirWatch struct {
	instance *inotify.Instance
	// Watch descriptors of the directory, and of the nearest directory above it
	// that exists; -1 is none.
	dir, above int
}

// event is one event, of an entry of the directory or of the one above.
type event struct {
	mask  uint32
	name  string
	above bool
}

func newDirWatch() (*dirWatch, error) {
	instance, err := inotify.Open(inotify.Names)
	if err != nil {
		return nil, err
	}
	return &dirWatch{instance: instance, dir: -1, above: -1}, nil
}

func (w *dirWatch) close() { _ = w.instance.Close() }

// wake makes a read return.
func (w *dirWatch) wake() { _ = w.instance.SetDeadline(time.Unix(1, 0)) }

// watch watches dir, and the nearest directory above it that exists for entry to
// come or go; missing says that dir does not exist. The one above is watched
// first, so that nothing comes in between unseen.
func (w *dirWatch) watch(dir string) (entry string, missing bool, err error) {
	for {
		above := filepath.Dir(dir)
		wd, err := w.add(above)
		for errors.Is(err, fs.ErrNotExist) && above != filepath.Dir(above) {
			above = filepath.Dir(above)
			wd, err = w.add(above)
		}
		// Without leave to watch the one above, the directory itself must do.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return "", false, fmt.Errorf("inotify: %q: %w", above, err)
		}
		w.replace(&w.above, wd)

		wd, err = w.add(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("inotify: %q: %w", dir, err)
		}
		w.replace(&w.dir, wd)
		missing = err != nil
		entry, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dir, above), "/"), "/")
		if _, err := os.Stat(filepath.Join(above, entry)); err == nil && missing {
			continue // it came meanwhile
		}
		return entry, missing, nil
	}
}

// add watches path and returns -1 where that fails. One that is watched already
// keeps its descriptor.
func (w *dirWatch) add(path string) (int, error) {
	wd, err := w.instance.Add(path)
	if err != nil {
		return -1, err
	}
	return wd, nil
}

// replace puts wd in the place of *old and ends the watch that was there.
func (w *dirWatch) replace(old *int, wd int) {
	if was := *old; was != wd {
		*old = wd
		if was != -1 && was != w.dir && was != w.above {
			w.instance.Remove(was)
		}
	}
}

// read waits for events of the current watches. It returns none and no error
// when deadline has passed or ctx is cancelled.
func (w *dirWatch) read(ctx context.Context, deadline time.Time) ([]event, error) {
	for {
		if err := w.instance.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("inotify: %w", err)
		}
		// A cancellation that came before has had its wake undone.
		if ctx.Err() != nil {
			return nil, nil
		}
		all, err := w.instance.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if events := w.own(all); len(events) > 0 {
			return events, nil
		}
	}
}

// own leaves out events of watches that have ended.
func (w *dirWatch) own(all []inotify.Event) []event {
	var events []event
	for _, e := range all {
		if e.Mask&unix.IN_Q_OVERFLOW != 0 || e.WD == w.dir || e.WD == w.above {
			events = append(events, event{e.Mask, e.Name, e.WD == w.above && e.WD != w.dir})
		}
	}
	return events
}
