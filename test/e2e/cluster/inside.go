//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/inspect"
)

// processDir returns the directory in /proc of the process in the bed that runs a program.
func (c *Cluster) processDir(t testing.TB, program string) string {
	t.Helper()
	dirs, err := filepath.Glob(c.Path("/proc") + "/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.HasPrefix(string(cmdline), program+"\x00") {
			return dir
		}
	}
	t.Fatalf("no process of %s in the bed", program)
	return ""
}

// ProcessStatus is /proc/PID/status of the process of a program.
func (c *Cluster) ProcessStatus(t testing.TB, program string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.processDir(t, program), "status"))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		status[key] = strings.TrimSpace(value)
	}
	return status
}

// ProcessWrites returns the sorted paths of the mounts that the process of a program may
// write to, of the node's file systems and below /host.
func (c *Cluster) ProcessWrites(t testing.TB, program string) (paths []string) {
	t.Helper()
	mounts, err := inspect.Mounts(c.processDir(t, program))
	if err != nil {
		t.Fatal(err)
	}
	kernel := map[string]bool{"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devpts": true, "mqueue": true}
	for _, m := range mounts {
		// A file system in memory is mounted by its root, a directory of the node by a
		// path below it.
		private := m.Type == "tmpfs" && m.Root == "/" && !strings.HasPrefix(m.Path, "/var/lib/")
		// The runtime covers some files of /proc with /dev/null.
		private = private || strings.HasPrefix(m.Path, "/proc/")
		onDisk := !kernel[m.Type] && !private
		if !m.ReadOnly && !m.SuperReadOnly && (onDisk || strings.HasPrefix(m.Path, "/host/")) {
			paths = append(paths, m.Path)
		}
	}
	slices.Sort(paths)
	return paths
}
