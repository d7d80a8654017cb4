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

// Events of the entries of a directory, one or several. There is no IN_MODIFY and no
// IN_ACCESS: in /dev each write to a terminal or to /dev/null would be an event (before
// Linux 6.11, where fsnotify stopped reporting special files).
const (
	// Names: entries of a directory are created, removed or renamed.
	Names = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// Attributes: an entry gets another mode or owner.
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
	// Next waits for events. Close makes it return an error.
	Next() ([]Event, error)
	Close() error
}

// Event is one event.
type Event struct {
	WD   int
	Mask uint32
	Name string // in the directory; empty for the directory itself
}

// instance is an inotify instance. A user has few of them
// (fs.inotify.max_user_instances, 128).
type instance struct {
	fd   int // of file, which owns it
	mask uint32
	file *os.File
	buf  [4 << 10]byte // many events; one takes 272 bytes at most
}

func openInstance(mask uint32) (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &instance{fd: fd, mask: mask | dirEvents, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

func (n *instance) Close() error { return n.file.Close() }

func (n *instance) Add(dir string) (int, error) { return unix.InotifyAddWatch(n.fd, dir, n.mask) }

func (n *instance) Remove(wd int) {
	// It fails if the kernel has already removed the watch.
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
}

func (n *instance) Next() ([]Event, error) {
	size, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, fmt.Errorf("read inotify: %w", err)
	}
	return parse(n.buf[:size]), nil
}

// parse parses the events of one read, up to a truncated one.
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

// dirs keeps watches on directories that may come and go. A watch is on a directory,
// not on a path: any move or removal requires a sync. It is for one goroutine.
type dirs struct {
	source  Source
	watched map[int]*watched
}

// watched selects the events of a directory.
type watched struct {
	whole bool            // of every entry
	names map[string]bool // or only the creation of one of these
}

// sync watches exactly the directories of list, and reports whether an existing one was not
// watched before. For a missing directory, its nearest existing ancestor is watched. The
// error names the first directory that can't be watched; the others are watched.
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
func (d *dirs) add(dir string, fresh map[int]*watched) (wd int, err error) {
	// A missing directory may be created before its ancestor is watched: it is tried
	// once more then. Later changes cause an event.
	for range 2 {
		var missing string
		if wd, missing, err = d.addNearest(dir); err != nil {
			return 0, err
		}
		w := fresh[wd]
		if w == nil {
			w = &watched{names: make(map[string]bool)}
			fresh[wd] = w
		}
		if missing == "" {
			w.whole = true
			break
		}
		w.names[path.Base(missing)] = true
		if _, err := os.Stat(missing); err != nil {
			break
		}
	}
	return wd, nil
}

// addNearest watches dir or its nearest existing ancestor, and returns the missing path
// below that; empty if dir exists.
func (d *dirs) addNearest(dir string) (wd int, missing string, err error) {
	for {
		wd, err = d.source.Add(dir)
		absent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
		if !absent || dir == path.Dir(dir) {
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
	resync bool     // a sync is necessary
}

func (c change) empty() bool { return len(c.names) == 0 && !c.all }

// handle interprets events.
func (d *dirs) handle(events []Event) (c change) {
	for _, e := range events {
		if e.Mask&unix.IN_Q_OVERFLOW != 0 {
			c.all = true
			c.resync = true
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
			c.all = c.all || w.whole
			c.resync = true
			continue
		}
		if w.whole {
			c.names = append(c.names, e.Name)
		}
		c.resync = c.resync || w.names[e.Name] && e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	}
	return c
}
