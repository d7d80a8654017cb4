package bed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dirPrefix is the prefix of the names of the beds' directories and cgroups.
const dirPrefix = "gdp-e2e-"

// newDir makes the directory of a bed and removes it with the test. It also removes the
// directories of killed tests: a lock ends with its process.
func newDir(t testing.TB) string {
	t.Helper()
	// Each bed has a /dev of its own, which hides a directory below the real one.
	if strings.HasPrefix(os.TempDir()+"/", "/dev/") {
		t.Fatalf("TMPDIR is %s: set it to a directory outside of /dev", os.TempDir())
	}
	sweep(t)
	// Under another name until it is locked.
	raw, err := os.MkdirTemp("", "."+dirPrefix)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(raw, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(raw), strings.TrimPrefix(filepath.Base(raw), "."))
	if err := os.Rename(raw, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		lock.Close()
	})
	// Containers of other users read files below it.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lockDir locks a bed's directory until the file is closed.
func lockDir(dir string, flag int) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// sweep removes files and empty cgroups of beds whose test was killed. Their processes
// and mounts ended with the test.
func sweep(t testing.TB) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range left {
		lock, err := lockDir(dir, 0)
		if err != nil {
			continue // in use, or another test removes it
		}
		if hs, err := hierarchies(); err == nil {
			_ = removeCgroup(hs, filepath.Base(dir))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("left by a killed test: %v", err)
		}
		lock.Close()
	}
}
