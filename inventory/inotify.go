package inventory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileEvents are the events of watched directories.
type fileEvents interface {
	// add watches a directory and returns its number, the same one for the
	// same directory.
	add(dir string) (wd int, err error)
	remove(wd int)
	next() ([]fileEvent, error)
	Close() error
}

// fileEvent is one event of inotify(7).
type fileEvent struct {
	wd   int
	mask uint32
	name string // in the directory; empty where it is the directory itself
}

// inotifyMask has no IN_MODIFY and no IN_ACCESS: each write to a terminal or
// to /dev/null would be an event (before Linux 6.11, where fsnotify stopped
// to tell of special files).
const inotifyMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

type inotify struct {
	fd   int // of file, which owns it
	file *os.File
	buf  [16 << 10]byte
}

func openInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

func (n *inotify) Close() error { return n.file.Close() }

func (n *inotify) add(dir string) (int, error) {
	return unix.InotifyAddWatch(n.fd, dir, inotifyMask)
}

func (n *inotify) remove(wd int) {
	// It fails for a watch that the kernel has removed already.
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
}

func (n *inotify) next() ([]fileEvent, error) {
	size, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, fmt.Errorf("reading inotify: %w", err)
	}
	return parseFileEvents(n.buf[:size]), nil
}

// parseFileEvents reads the events of one read, up to one that is cut.
func parseFileEvents(b []byte) []fileEvent {
	var events []fileEvent
	for len(b) >= unix.SizeofInotifyEvent {
		e := fileEvent{
			wd:   int(int32(binary.NativeEndian.Uint32(b))),
			mask: binary.NativeEndian.Uint32(b[4:]),
		}
		size := uint64(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > uint64(len(b)) {
			break
		}
		name, _, _ := bytes.Cut(b[:size], []byte{0})
		e.name = string(name)
		events = append(events, e)
		b = b[size:]
	}
	return events
}
