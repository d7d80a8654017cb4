package bed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const cgroupRoot = "/sys/fs/cgroup"

// newCgroup makes a cgroup for a kubelet in every hierarchy, and removes it with the
// test. A kubelet treats unknown pod cgroups below its root as leftovers, so that two
// kubelets of one machine need two roots. It requires its root to exist.
func newCgroup(t testing.TB, name string) {
	t.Helper()
	hierarchies, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroup(hierarchies, name); err != nil {
			t.Errorf("remove cgroup %s: %v", name, err)
		}
	})
	if err := makeCgroup(hierarchies, name); err != nil {
		t.Fatal(err)
	}
}

// hierarchies lists the roots of the cgroup trees: one with version 2; with version 1
// one per controller, and possibly one of version 2 without controllers.
func hierarchies() ([]string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil {
		return nil, err
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		if err := unix.Statfs(dir, &st); err != nil || !e.IsDir() { // some are links to others
			continue
		}
		if st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

func makeCgroup(hierarchies []string, name string) error {
	for _, h := range hierarchies {
		dir := filepath.Join(h, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Version 2 delegates controllers one by one; the kubelet reports missing ones.
		for _, c := range []string{"+cpuset", "+cpu", "+io", "+memory", "+pids"} {
			_ = os.WriteFile(filepath.Join(h, "cgroup.subtree_control"), []byte(c), 0)
		}
		// A version 1 cpuset starts without processors and memory.
		if filepath.Base(h) == "cpuset" {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				text, err := os.ReadFile(filepath.Join(h, file))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, file), text, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// removeCgroup removes a cgroup and everything below it. The kernel may not have reaped
// its killed processes yet.
func removeCgroup(hierarchies []string, name string) error {
	return wait.Try(time.Minute, func() error {
		var errs []error
		for _, h := range hierarchies {
			var dirs []string
			_ = filepath.WalkDir(filepath.Join(h, name), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(b, a) })
			for _, dir := range dirs {
				if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	})
}
