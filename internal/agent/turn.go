package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file in the run directory by which the instances on a host take turns.
const lockName = "lock"

// right is what one instance at a time may do: the number of a byte of the lock file. Each is an
// open file description lock (F_OFD_SETLK in fcntl(2)), which the kernel releases when the process
// ends in any way.
type right int64

const (
	// writes is the right to run passes: to change lists, links, specs, slices and the state.
	writes right = iota
	// answers is the right to answer the calls by which the kubelet allocates and releases devices.
	answers
	// waits is the right to be the next instance. It is kept until the kubelet calls this instance
	// and no longer its predecessor.
	waits
)

// turn is the place of an instance among the instances that use one run directory. During a rolling
// update there are two. The second one takes waits, then writes, and then answers. The first one
// ends when it may: it releases writes, and answers as soon as the kubelet calls the second one.
//
//	first   ── writes ──────────┐ SIGTERM
//	        ── answers ─────────┼───────────────────┐         ends its streams
//	second  ── waits ───────────┼───────────────────┤ shared
//	                            └ writes ───────────┼─────────────────────────
//	                              loads, registers  └ answers ────────────────
type turn struct {
	// file is nil if the run directory cannot be used: then this instance does not know of others.
	file *os.File
}

// openTurn opens the lock file of a run directory, and makes it if it is missing. The caller closes
// the turn unless err is set.
func openTurn(dir string) (turn, error) {
	path := filepath.Join(dir, lockName)
	const flags = os.O_CREATE | os.O_RDWR | unix.O_CLOEXEC
	file, err := os.OpenFile(path, flags, 0o600)
	if info, statErr := os.Lstat(path); err != nil && statErr == nil && !info.Mode().IsRegular() {
		// No instance can hold a lock on a socket, a directory or a loop of links.
		_ = os.Remove(path) // fails for a directory with files
		file, err = os.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return turn{}, fmt.Errorf("--run-dir: %w", err)
	}
	return turn{file: file}, nil
}

// claim is how an instance has a right.
type claim = int16

const (
	alone  claim = unix.F_WRLCK
	shared claim = unix.F_RDLCK
	none   claim = unix.F_UNLCK
)

// set changes the claim to a right, and reports whether other instances permit that. It does not wait.
// After an error, a right that should be given up is released with the end of the process.
func (t turn) set(r right, c claim) (isOurs bool, err error) {
	_, err = t.control(unix.F_OFD_SETLK, c, r)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// begin takes waits, and then writes. It does not wait. hasWrites is not set if another instance has one
// of them.
func (t turn) begin() (hasWrites bool, err error) {
	isNext, err := t.set(waits, alone)
	if err != nil || !isNext {
		return false, err
	}
	return t.set(writes, alone)
}

// await returns a channel that is closed when this instance has a right. It stays open after an error. The
// call cannot be interrupted, so its goroutine may only end with the process, or with the other instance.
func (t turn) await(r right, c claim) <-chan struct{} {
	taken := make(chan struct{})
	isOurs, _ := t.set(r, c)
	if isOurs {
		close(taken)
		return taken
	}
	go func() {
		_, err := t.control(unix.F_OFD_SETLKW, c, r)
		if err == nil {
			close(taken)
		}
	}()
	return taken
}

// isTaken reports whether another instance has a right.
func (t turn) isTaken(r right) bool {
	lock, err := t.control(unix.F_OFD_GETLK, alone, r)
	return err == nil && lock.Type != none
}

// errLost is why an instance ends whose rights are worth nothing.
var errLost = errors.New("the lock file in --run-dir was removed or replaced, so that another instance may serve: the program ends, to be started again")

// isLost reports whether the lock file is not the one that this instance has locked: somebody has removed the
// run directory, and another instance may have the rights in a new one.
func (t turn) isLost() bool {
	if t.file == nil {
		return false
	}
	own, err := t.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(t.file.Name())
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now)
}

// close releases all rights. A goroutine that waits keeps the file open, so they are released first.
func (t turn) close() {
	if t.file == nil {
		return
	}
	for _, r := range []right{writes, answers, waits} {
		_, _ = t.set(r, none)
	}
	_ = t.file.Close()
}

// control calls fcntl for a lock, and returns the lock that it describes. Without a file every lock is
// free. A signal may end the wait without the lock (EINTR): then it begins again.
func (t turn) control(command int, c claim, r right) (unix.Flock_t, error) {
	lock := unix.Flock_t{
		Type:   c,
		Whence: unix.SEEK_SET,
		Start:  int64(r),
		Len:    1,
	}
	if t.file == nil {
		lock.Type = none
		return lock, nil
	}
	// The connection keeps the descriptor from being closed and used again during the call.
	conn, err := t.file.SyscallConn()
	if err != nil {
		return lock, err
	}
	failed := conn.Control(func(fd uintptr) {
		err = unix.EINTR
		for errors.Is(err, unix.EINTR) {
			err = unix.FcntlFlock(fd, command, &lock)
		}
	})
	return lock, errors.Join(failed, err)
}
