package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/features"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// lockName is the file in the run directory that elects the instance that writes links, CDI specs
// and state. During a rolling update two instances run: the new one serves and registers, and gets
// the lock when the old one ends. It is an flock(2), which the kernel always releases when the
// process ends.
const lockName = "lock"

// takeLock opens the lock of a run directory. If the lock is free, isHeld is set, and this process
// holds it until the file is closed. It does not wait. The caller closes the file unless err is
// set.
func takeLock(dir string) (lock *os.File, isHeld bool, err error) {
	path := filepath.Join(dir, lockName)
	lock, err = openLock(path)
	if err != nil && !isRegular(path) {
		// No instance can hold a lock on a socket, a directory or a loop of links.
		_ = os.Remove(path) // fails for a directory with files
		lock, err = openLock(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("--run-dir: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch err {
	case nil:
		return lock, true, nil
	// Another process has the lock.
	case unix.EWOULDBLOCK:
		return lock, false, nil
	}
	err = fmt.Errorf("--run-dir: flock %s: %w", lock.Name(), err)
	return nil, false, errors.Join(err, lock.Close())
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

// awaitLock returns a channel that is closed when this process holds the lock. flock(2) cannot be
// interrupted, so its goroutine may only end with the process. The channel stays open if flock
// fails.
func awaitLock(lock *os.File) <-chan struct{} {
	held := make(chan struct{})
	fd := int(lock.Fd()) // the file may be closed while the goroutine waits
	go func() {
		// A signal may end the wait without the lock (EINTR in flock(2)): then it begins again.
		err := error(unix.EINTR)
		for err == unix.EINTR {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		if err == nil {
			close(held)
		}
	}()
	return held
}

// makeRunDir makes the run directory. Without root, the error names every directory that serving
// cannot write. It is no error if the file system of the directory is read-only.
func makeRunDir(p Paths) error {
	err := os.MkdirAll(p.RunDir, 0o755)
	exists := err == nil
	if err == nil {
		err = checkWritable(p.RunDir)
	}
	if err == nil {
		return nil
	}
	uid := os.Geteuid()
	isForbidden := errors.Is(err, fs.ErrPermission)
	if isForbidden && uid != 0 {
		return errNotRoot(uid, p.lacking(isWritable))
	}
	// For root, the error is about the file system, such as a read-only one, and not about
	// privileges. takeLock fails as well, and what needs no link is served.
	if exists || errors.Is(err, unix.EROFS) {
		return nil
	}
	return fmt.Errorf("--run-dir: %w", err)
}

// isWritable reports whether this process can make files in a directory.
func isWritable(dir string) bool {
	return checkWritable(dir) == nil
}

// checkWritable returns why this process cannot make files in a directory. access(2) uses the real
// user and also considers read-only mounts and security modules.
func checkWritable(dir string) error {
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	if err != nil {
		return fmt.Errorf("%s is not writable: %w", dir, err)
	}
	return nil
}

// errServing is why a command refuses to run beside an instance. It names the instance if the lock
// file has its identity.
func errServing(p Paths) error {
	path := filepath.Join(p.RunDir, lockName)
	holder := readInstance(path)
	if holder.PID == 0 {
		return fmt.Errorf("an instance is serving: it holds %s", path)
	}
	return fmt.Errorf("an instance is serving: PID %d on %s holds %s", holder.PID, holder.Hostname, path)
}

// Serving reports whether an instance is serving with these paths. It must not make the lock file,
// whose existence says that an instance has served.
func Serving(p Paths) bool {
	if !present(filepath.Join(p.RunDir, lockName)) {
		return false
	}
	lock, mine, err := takeLock(p.RunDir)
	if err != nil {
		return false
	}
	defer lock.Close()
	return !mine
}

// Clean removes the leftovers of serving: links, CDI specs, device information, state,
// labels, and stale sockets. It refuses while an instance is serving. The directories
// themselves stay, since they may be mounts. removed has the paths of everything that was removed,
// sorted, also after an error.
func Clean(p Paths) (removed []string, err error) {
	if _, err := os.Stat(p.RunDir); err == nil {
		lock, mine, err := takeLock(p.RunDir)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
		if !mine {
			return nil, errServing(p)
		}
	}
	leftovers, err := p.leftovers()
	errs := []error{err}
	for _, path := range leftovers {
		if !present(path) {
			continue
		}
		err := os.RemoveAll(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, path)
	}
	specs, err := p.SpecWriter().Clean()
	removed = append(removed, specs...)
	errs = append(errs, err)
	if present(p.KubeletDir) {
		sockets, err := socket.Sweep(p.KubeletDir)
		for _, name := range sockets {
			removed = append(removed, filepath.Join(p.KubeletDir, name))
		}
		errs = append(errs, err)
	}
	// The lock is removed after everything that it protects.
	for _, name := range []string{lockName, waitingName} {
		path := filepath.Join(p.RunDir, name)
		if present(path) { // the lock may have been made above
			errs = append(errs, os.Remove(path))
		}
	}
	slices.Sort(removed)
	return removed, errors.Join(errs...)
}

// leftovers returns the paths of the files and directories that Clean removes, except CDI specs,
// sockets and the lock. Some may not exist. After an error, it still returns the paths that it knows.
func (p Paths) leftovers() ([]string, error) {
	var all []string
	for _, name := range []string{linksName, healthName, metadataName, exclusiveName} {
		all = append(all, filepath.Join(p.RunDir, name))
	}
	for _, name := range slices.Concat(ledger.Files(), configuration.FileNames()) {
		all = append(all, filepath.Join(p.StateDir, name))
	}
	infos := p.deviceInfos()
	own, err := infos.Own()
	all = append(all, own...)
	if p.NFDDir != "" {
		all = append(all, features.Paths(p.NFDDir)...)
	}
	var withTemporary []string
	for _, path := range all {
		// A process that was killed while it wrote leaves the temporary file.
		withTemporary = append(withTemporary, path, path+atomicfile.TempSuffix)
	}
	return withTemporary, err
}

// present reports whether there is anything at a path, even a dangling link.
func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
