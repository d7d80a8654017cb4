package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// lockName is the file in the run directory by which the instances on a host take turns.
const lockName = "lock"

// maxSignature is the maximum length of what an instance writes into the file.
const maxSignature = 1 << 10

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
	file, err := openLock(path)
	if err != nil && !isRegular(path) {
		// No instance can hold a lock on a socket, a directory or a loop of links.
		_ = os.Remove(path) // fails for a directory with files
		file, err = openLock(path)
	}
	if err != nil {
		return turn{}, fmt.Errorf("--run-dir: %w", err)
	}
	return turn{file: file}, nil
}

// openLock opens the lock file, and makes it if it is missing.
func openLock(path string) (*os.File, error) {
	const flags = os.O_CREATE | os.O_RDWR | unix.O_CLOEXEC
	return os.OpenFile(path, flags, 0o600)
}

// isRegular reports whether there is a regular file at a path.
func isRegular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// sign writes into the file whose rights these are, for messages. The locks are on the file itself, so
// that it cannot be replaced. A reader may find an empty file in between.
func (t turn) sign() {
	if t.file == nil {
		return
	}
	// In a pod, every PID is 1, and the host name is the name of the pod.
	hostname, _ := os.Hostname()
	text := fmt.Sprintf("PID %d on %s", os.Getpid(), hostname)
	_ = t.file.Truncate(0)
	_, _ = t.file.WriteAt([]byte(text), 0)
}

// signature returns who has signed the lock file of a run directory, "unknown" if nobody has.
func signature(dir string) string {
	text, _ := files.Read(filepath.Join(dir, lockName), maxSignature)
	return cmp.Or(string(text), "unknown")
}

// take takes a right if no other instance has it. It does not wait.
func (t turn) take(r right) (isOurs bool, err error) {
	_, err = t.control(unix.F_OFD_SETLK, unix.F_WRLCK, r)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// begin takes waits, and then writes. It does not wait. hasWrites is not set if another instance has one
// of them.
func (t turn) begin() (hasWrites bool, err error) {
	isNext, err := t.take(waits)
	if err != nil || !isNext {
		return false, err
	}
	return t.take(writes)
}

// await returns a channel that is closed when this instance has a right. The call cannot be
// interrupted, so its goroutine may only end with the process, or with the other instance.
func (t turn) await(r right) <-chan struct{} { return t.awaitAs(r, unix.F_WRLCK) }

// awaitShared returns a channel that is closed when no other instance has the right alone.
func (t turn) awaitShared(r right) <-chan struct{} { return t.awaitAs(r, unix.F_RDLCK) }

// awaitAs returns a channel that is closed when this instance has a lock. It stays open after an error.
func (t turn) awaitAs(r right, kind int16) <-chan struct{} {
	taken := make(chan struct{})
	_, err := t.control(unix.F_OFD_SETLK, kind, r)
	if err == nil {
		close(taken)
		return taken
	}
	go func() {
		_, err := t.control(unix.F_OFD_SETLKW, kind, r)
		if err == nil {
			close(taken)
		}
	}()
	return taken
}

// share lets the predecessor know that the kubelet calls this instance, see awaitShared. The right
// stays with this instance: a third one cannot take it. After an error, the predecessor waits until
// its time is over.
func (t turn) share(r right) { t.change(r, unix.F_RDLCK) }

// release gives up a right. After an error, it is released with the end of the process.
func (t turn) release(r right) { t.change(r, unix.F_UNLCK) }

// change changes a lock that this instance has to a weaker one, which needs no waiting.
func (t turn) change(r right, kind int16) {
	_, _ = t.control(unix.F_OFD_SETLK, kind, r)
}

// isTaken reports whether another instance has a right.
func (t turn) isTaken(r right) bool {
	lock, err := t.control(unix.F_OFD_GETLK, unix.F_WRLCK, r)
	return err == nil && lock.Type != unix.F_UNLCK
}

// close releases all rights. A goroutine that waits keeps the file open, so they are released first.
func (t turn) close() {
	if t.file == nil {
		return
	}
	for _, r := range []right{writes, answers, waits} {
		t.release(r)
	}
	_ = t.file.Close()
}

// control calls fcntl for a lock, and returns the lock that it describes. Without a file every lock is
// free. A signal may end the wait without the lock (EINTR): then it begins again.
func (t turn) control(command int, kind int16, r right) (unix.Flock_t, error) {
	lock := unix.Flock_t{
		Type:   kind,
		Whence: unix.SEEK_SET,
		Start:  int64(r),
		Len:    1,
	}
	if t.file == nil {
		lock.Type = unix.F_UNLCK
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
