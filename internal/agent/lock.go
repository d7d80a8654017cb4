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
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// makeRunDir makes the run directory. It is no error if the file system of the directory is read-only.
func makeRunDir(p Paths) error {
	err := os.MkdirAll(p.RunDir, 0o755)
	exists := err == nil
	if exists {
		// access(2) uses the real user and also considers read-only mounts and security modules.
		err = unix.Access(p.RunDir, unix.W_OK|unix.X_OK)
	}
	if err == nil {
		return nil
	}
	isForbidden := errors.Is(err, fs.ErrPermission)
	if isForbidden && os.Geteuid() != 0 {
		return fmt.Errorf("--run-dir: %s is not writable for uid %d\n"+
			"  hint: serve runs as root, without any capability; with other directories it also runs as another user, and generic-dp try needs no privileges",
			p.RunDir, os.Geteuid())
	}
	// For root, the error is about the file system, such as a read-only one, and not about
	// privileges. openTurn fails as well, and what needs no link is served.
	if exists || errors.Is(err, unix.EROFS) {
		return nil
	}
	return withHint(fmt.Errorf("--run-dir: %w", err), "run-dir")
}

// errServing is why a command refuses to run beside an instance. The kernel does not say which process has
// an open file description lock, but fuser lists the processes that have the file open.
func errServing(p Paths) error {
	lock := filepath.Join(p.RunDir, lockName)
	return fmt.Errorf("an instance is serving: it holds %s\n  hint: fuser %s names its process", lock, lock)
}

// Serving reports whether an instance is serving with these paths. It must not make the lock file,
// whose existence says that an instance has served.
func Serving(p Paths) bool {
	if !present(filepath.Join(p.RunDir, lockName)) {
		return false
	}
	t, err := openTurn(p.RunDir)
	if err != nil {
		return false
	}
	defer t.close()
	return t.isTaken(writes) || t.isTaken(answers)
}

// Clean removes the leftovers of serving: links, CDI specs, device information, state,
// labels, and stale sockets. It refuses while an instance is serving. The directories
// themselves stay, since they may be mounts. removed has the paths of everything that was removed,
// sorted, also after an error.
func Clean(p Paths) (removed []string, err error) {
	if _, err := os.Stat(p.RunDir); err == nil {
		t, err := openTurn(p.RunDir)
		if err != nil {
			return nil, err
		}
		defer t.close()
		hasWrites, err := t.begin()
		if err != nil {
			return nil, fmt.Errorf("--run-dir: %w", err)
		}
		if !hasWrites || t.isTaken(answers) {
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
		sockets, err := kubelet.Sweep(p.KubeletDir)
		for _, name := range sockets {
			removed = append(removed, filepath.Join(p.KubeletDir, name))
		}
		errs = append(errs, err)
	}
	// The lock is removed after everything that it protects.
	lock := filepath.Join(p.RunDir, lockName)
	if present(lock) { // it may have been made above
		errs = append(errs, os.Remove(lock))
	}
	slices.Sort(removed)
	return removed, errors.Join(errs...)
}

// leftovers returns the paths of the files and directories that Clean removes, except CDI specs,
// sockets and the lock. Some may not exist. After an error, it still returns the paths that it knows.
func (p Paths) leftovers() ([]string, error) {
	var all []string
	for _, name := range []string{linksName, healthName, metadataName, holdsName} {
		all = append(all, filepath.Join(p.RunDir, name))
	}
	for _, name := range slices.Concat(ledger.Files(), configuration.FileNames()) {
		all = append(all, filepath.Join(p.StateDir, name))
	}
	infos := p.deviceInfos()
	own, err := infos.Own()
	all = append(all, own...)
	if p.NFDDir != "" {
		all = append(all, output.FeaturePaths(p.NFDDir)...)
	}
	var withTemporary []string
	for _, path := range all {
		// A process that was killed while it wrote leaves the temporary file.
		withTemporary = append(withTemporary, path, path+files.TempSuffix)
	}
	return withTemporary, err
}

// present reports whether there is anything at a path, even a dangling link.
func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
