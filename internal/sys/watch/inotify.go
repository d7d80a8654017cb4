package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Events of the entries of a directory, which can be combined. IN_MODIFY and IN_ACCESS are missing
// because in /dev every write to a terminal or to /dev/null would be an event (before Linux 6.11, in
// which fsnotify stopped reporting special files).
const (
	// Names: entries of a directory are created, removed or renamed.
	Names = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// Attributes: the mode or the owner of an entry changes.
	Attributes = unix.IN_ATTRIB
	// Writes: a file that was open for writing was closed. Before that, its content is
	// incomplete.
	Writes = unix.IN_CLOSE_WRITE

	// dirEvents are the events required to follow a directory.
	dirEvents = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// Source is a source of events: inotify.
type Source interface {
	// Add watches a directory and returns the watch descriptor, the same one for the
	// same directory.
	Add(dir string) (wd int, err error)
	// Remove ends the watch with that descriptor, if it still exists.
	Remove(wd int)
	// Next waits for events. It returns an error after Close.
	Next() ([]Event, error)
	Close() error
}

// Event is one event.
type Event struct {
	WD   int
	Mask uint32
	Name string // in the directory, or empty for the directory itself
}

// instance is an inotify instance. A user has few of them
// (fs.inotify.max_user_instances, 128).
type instance struct {
	fd   int // of file, which owns it
	mask uint32
	file *os.File
	buf  [4 << 10]byte // several events, which have at most 272 bytes each
}

// openInstance opens an inotify instance for the events of mask.
func openInstance(mask uint32) (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &instance{
		fd:   fd,
		mask: mask | dirEvents,
		file: os.NewFile(uintptr(fd), "inotify"),
	}, nil
}

// Close implements Source.
func (n *instance) Close() error { return n.file.Close() }

// Add implements Source.
func (n *instance) Add(dir string) (int, error) {
	return unix.InotifyAddWatch(n.fd, dir, n.mask)
}

// Remove implements Source.
func (n *instance) Remove(wd int) {
	// The call fails if the kernel has already removed the watch, because the directory is gone.
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
}

// Next implements Source.
func (n *instance) Next() ([]Event, error) {
	size, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, fmt.Errorf("read inotify: %w", err)
	}
	return parse(n.buf[:size]), nil
}

// parse parses the events of one read: struct inotify_event of inotify(7). It stops at a truncated
// event.
func parse(b []byte) []Event {
	var events []Event
	for len(b) >= unix.SizeofInotifyEvent {
		e := Event{
			WD:   int(int32(binary.NativeEndian.Uint32(b))),
			Mask: binary.NativeEndian.Uint32(b[4:]),
		}
		size := uint64(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > uint64(len(b)) {
			break
		}
		name, _, _ := bytes.Cut(b[:size], []byte{0})
		e.Name = string(name)
		events = append(events, e)
		b = b[size:]
	}
	return events
}

// dirs keeps watches on directories that may appear and disappear. A watch is on an inode, not on a
// path, so that each move or removal requires a sync. Only one goroutine may use it.
type dirs struct {
	source Source
	// isListed has the watches. It is false for an ancestor that is watched in place of a missing directory.
	isListed map[int]bool
}

// sync watches exactly the directories of list, and reports whether an existing directory was not
// watched before. In place of a missing directory, it watches the nearest existing ancestor. The
// error names the first directory that cannot be watched. The other directories are watched.
func (d *dirs) sync(list []string) (added bool, err error) {
	fresh := make(map[int]bool, len(list))
	for _, dir := range list {
		addErr := d.add(dir, fresh)
		if addErr != nil && err == nil {
			err = fmt.Errorf("watch %q: %w", dir, addErr)
		}
	}
	for wd, isListed := range fresh {
		if isListed && !d.isListed[wd] {
			added = true
		}
	}
	for wd := range d.isListed {
		if _, isNeeded := fresh[wd]; !isNeeded {
			d.source.Remove(wd)
		}
	}
	d.isListed = fresh
	return added, err
}

// add watches dir or its nearest existing ancestor.
func (d *dirs) add(dir string, fresh map[int]bool) error {
	// A missing directory may be created before its ancestor is watched, so that it is tried once
	// more. Later changes cause an event.
	for range 2 {
		wd, missing, err := d.addNearest(dir)
		if err != nil {
			return err
		}
		fresh[wd] = fresh[wd] || missing == ""
		if _, err := os.Stat(missing); err != nil {
			break // there is no missing one, or it is still missing
		}
	}
	return nil
}

// addNearest watches dir or its nearest existing ancestor. It returns the missing path directly below
// the ancestor, or an empty path if dir exists.
func (d *dirs) addNearest(dir string) (wd int, missing string, err error) {
	for {
		wd, err = d.source.Add(dir)
		isAbsent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
		isRoot := dir == path.Dir(dir)
		if !isAbsent || isRoot {
			return wd, missing, err
		}
		missing = dir
		dir = path.Dir(dir)
	}
}

// change is the effect of events.
type change struct {
	names  []string // of entries of the directories
	all    bool     // anything may have changed
	resync bool     // a sync is necessary at once
}

// empty reports whether nothing changed that a reader must know.
func (c change) empty() bool { return len(c.names) == 0 && !c.all }

// lost are the events after which a watch is useless: the directory was removed, moved or
// unmounted, or the kernel removed the watch.
const lost = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED

// handle returns the effect of events.
func (d *dirs) handle(events []Event) change {
	var c change
	for _, e := range events {
		isListed, isWatched := d.isListed[e.WD]
		isOverflow := e.Mask&unix.IN_Q_OVERFLOW != 0
		switch {
		case isOverflow:
			c.all = true
			c.resync = true
		case !isWatched: // the watch has ended
		case e.Mask&lost != 0:
			// A watch stays on a directory that was moved.
			d.source.Remove(e.WD)
			delete(d.isListed, e.WD)
			c.all = c.all || isListed
			c.resync = true
		case isListed:
			// A sync precedes the signal.
			c.names = append(c.names, e.Name)
		default:
			c.resync = true
		}
	}
	return c
}
