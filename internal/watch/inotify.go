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
	// Writes: a file that was open for writing was closed. Before that, reading it
	// makes no sense.
	Writes = unix.IN_CLOSE_WRITE

	// always are the events required to follow a directory.
	always = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
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
	return &instance{fd: fd, mask: mask | always, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

func (n *instance) Close() error { return n.file.Close() }

func (n *instance) Add(dir string) (int, error) { return unix.InotifyAddWatch(n.fd, dir, n.mask) }

func (n *instance) Remove(wd int) {
	// It fails for a watch that the kernel has already removed.
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

// watched is what to watch in a directory.
type watched struct {
	whole bool            // every entry
	names map[string]bool // or only the creation of one of these
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
