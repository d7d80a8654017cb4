package kubelettest

import (
	"os"
	"path/filepath"
	"testing"
)

// Cgroups is a fake cgroup tree of a host with version 2 and the cgroupfs driver.
type Cgroups struct {
	tb  testing.TB
	dir string
}

// NewCgroups makes a tree without pods.
func NewCgroups(tb testing.TB) *Cgroups {
	tb.Helper()
	c := &Cgroups{tb: tb, dir: tb.TempDir()}
	c.write("cgroup.controllers", "pids\n")
	c.write("kubepods/cgroup.events", "populated 0\nfrozen 0\n")
	return c
}

// Dir is the directory of the tree.
func (c *Cgroups) Dir() string { return c.dir }

// Start starts a process of the pod.
func (c *Cgroups) Start(uid string) {
	c.tb.Helper()
	c.write(filepath.Join(podCgroup(uid), "cgroup.events"), "populated 1\nfrozen 0\n")
}

// Wait makes the cgroup of a pod without a process, as for a pod that waits for a volume.
func (c *Cgroups) Wait(uid string) {
	c.tb.Helper()
	c.write(filepath.Join(podCgroup(uid), "cgroup.events"), "populated 0\nfrozen 0\n")
}

// End ends the processes of the pod and removes its cgroup.
func (c *Cgroups) End(uid string) {
	c.tb.Helper()
	if err := os.RemoveAll(filepath.Join(c.dir, podCgroup(uid))); err != nil {
		c.tb.Fatal(err)
	}
}

func podCgroup(uid string) string { return filepath.Join("kubepods", "burstable", "pod"+uid) }

// write replaces a file at once, as the kernel does.
func (c *Cgroups) write(name, text string) {
	c.tb.Helper()
	path := filepath.Join(c.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".next", []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".next", path)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
}
