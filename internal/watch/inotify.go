package watch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

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
