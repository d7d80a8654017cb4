//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mount is one mount of a process, see mountinfo in proc(5).
type Mount struct {
	Path     string
	Writable bool
	// OnDisk is set for a file system of the node, as opposed to one of the kernel or
	// in memory.
	OnDisk bool
}

// find returns the directory in /proc of the process in the bed that runs a program.
func (c *Cluster) find(t testing.TB, program string) string {
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
	text, err := os.ReadFile(filepath.Join(c.find(t, program), "status"))
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

// ProcessRoot lists the mounts of the process of a program.
func (c *Cluster) ProcessRoot(t testing.TB, program string) []Mount {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.find(t, program), "mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	var mounts []Mount
	for line := range strings.Lines(string(text)) {
		m, err := parseMount(line)
		if err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// parseMount parses a line of mountinfo: the fifth field is the mount point, the sixth
// its options; after " - " follow the type and the options of the file system.
func parseMount(line string) (Mount, error) {
	own, super, ok := strings.Cut(strings.TrimSpace(line), " - ")
	fields, above := strings.Fields(own), strings.Fields(super)
	if !ok || len(fields) < 6 || len(above) < 3 {
		return Mount{}, errors.New("not a line of mountinfo: " + line)
	}
	readOnly := func(options string) bool { return strings.HasPrefix(options+",", "ro,") }
	kernel := map[string]bool{"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devpts": true, "mqueue": true}
	// A file system in memory is mounted by its root, a directory of the node by a path
	// below it.
	private := above[0] == "tmpfs" && fields[3] == "/" && !strings.HasPrefix(fields[4], "/var/lib/")
	// The runtime covers some files of /proc with /dev/null.
	private = private || strings.HasPrefix(fields[4], "/proc/")
	return Mount{
		Path:     fields[4],
		Writable: !readOnly(fields[5]) && !readOnly(above[2]),
		OnDisk:   !kernel[above[0]] && !private,
	}, nil
}

func (m Mount) String() string { return fmt.Sprintf("%s (writable: %v)", m.Path, m.Writable) }
