package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file in the run directory that elects the one instance
// that writes links, CDI specs and state. During a rolling update two
// instances run: the newcomer serves and registers, and inherits the lock
// when the other ends.
const lockName = "lock"

// linksName is the directory of links in the run directory.
const linksName = "links"

// lock is an flock(2) on a file: the kernel lets go of it when the process
// ends, however it ends.
type lock struct{ file *os.File }

func openLock(dir string) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return &lock{file: f}, nil
}

// try takes the lock if nobody holds it.
func (l *lock) try() (bool, error) {
	switch err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
		return true, nil
	case unix.EWOULDBLOCK:
		return false, nil
	default:
		return false, fmt.Errorf("flock %s: %w", l.file.Name(), err)
	}
}

// wait returns when the lock is taken. flock can't be interrupted, so a
// cancelled wait leaves its goroutine to end with the process; only serve,
// which ends then, waits.
func (l *lock) wait(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX)
			if err != unix.EINTR {
				done <- err
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-done:
		return err
	}
}

func (l *lock) close() error { return l.file.Close() }

// writable is an error that names the flag if dir can't be made or written.
func writable(flag, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("--%s: %s can't be written: %w", flag, dir, err)
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}
