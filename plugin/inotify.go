package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// inotify is one inotify instance that follows one directory (inotify(7)).
type inotify struct {
	file *os.File
	// Watch descriptors of the directory, and of the nearest directory above it
	// that exists; -1 is none.
	dir, above int
	buf        []byte
}

// event is one inotify event, of an entry of the directory or of the one above.
type event struct {
	mask  uint32
	name  string
	above bool
}

const (
	watchMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// eventHeader is wd, mask, cookie and len of struct inotify_event.
	eventHeader = 16
)

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	return &inotify{file: os.NewFile(uintptr(fd), "inotify"), dir: -1, above: -1, buf: make([]byte, 4096)}, nil
}

func (in *inotify) close() { _ = in.file.Close() }

// wake makes a read return.
func (in *inotify) wake() { _ = in.file.SetReadDeadline(time.Unix(1, 0)) }

// watch watches dir, and the nearest directory above it that exists for entry to
// come or go; missing says that dir does not exist. The one above is watched
// first, so that nothing comes in between unseen.
func (in *inotify) watch(dir string) (entry string, missing bool, err error) {
	for {
		above := filepath.Dir(dir)
		wd, err := in.add(above)
		for errors.Is(err, fs.ErrNotExist) && above != filepath.Dir(above) {
			above = filepath.Dir(above)
			wd, err = in.add(above)
		}
		// Without leave to watch the one above, the directory itself must do.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return "", false, fmt.Errorf("inotify: %q: %w", above, err)
		}
		in.replace(&in.above, wd)

		wd, err = in.add(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("inotify: %q: %w", dir, err)
		}
		in.replace(&in.dir, wd)
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
func (in *inotify) add(path string) (int, error) {
	wd := -1
	err := in.control(func(fd int) (err error) {
		wd, err = unix.InotifyAddWatch(fd, path, watchMask)
		return err
	})
	if err != nil {
		return -1, err
	}
	return wd, nil
}

// replace puts wd in the place of *old and ends the watch that was there.
func (in *inotify) replace(old *int, wd int) {
	if was := *old; was != wd {
		*old = wd
		if was != -1 && was != in.dir && was != in.above {
			// One whose directory is gone has ended by itself.
			_ = in.control(func(fd int) error {
				_, err := unix.InotifyRmWatch(fd, uint32(was))
				return err
			})
		}
	}
}

func (in *inotify) control(f func(fd int) error) error {
	raw, err := in.file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// read waits for events of the current watches. It returns none and no error
// when deadline has passed or ctx is cancelled.
func (in *inotify) read(ctx context.Context, deadline time.Time) ([]event, error) {
	for {
		if err := in.file.SetReadDeadline(deadline); err != nil {
			return nil, fmt.Errorf("inotify: %w", err)
		}
		// A cancellation that came before has had its wake undone.
		if ctx.Err() != nil {
			return nil, nil
		}
		n, err := in.file.Read(in.buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("inotify: %w", err)
		}
		if events := in.parse(in.buf[:n]); len(events) > 0 {
			return events, nil
		}
	}
}

// parse takes apart what the kernel wrote: a header, and a name padded with NUL.
func (in *inotify) parse(b []byte) []event {
	var events []event
	for len(b) >= eventHeader {
		wd := int(int32(binary.NativeEndian.Uint32(b)))
		e := event{mask: binary.NativeEndian.Uint32(b[4:])}
		end := min(eventHeader+int(binary.NativeEndian.Uint32(b[12:])), len(b))
		e.name = strings.TrimRight(string(b[eventHeader:end]), "\x00")
		b = b[end:]
		switch {
		case e.mask&unix.IN_Q_OVERFLOW != 0:
		case wd == in.dir:
		case wd == in.above:
			e.above = true
		default:
			continue // of a watch that has ended
		}
		events = append(events, e)
	}
	return events
}
