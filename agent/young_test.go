package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
)

// A node that was made a moment before the first look says that its hardware is
// still coming; an old one, one of a clock that was set back, and a file of a
// recording say nothing.
func TestYoungNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := time.Now().Add(-time.Second / 2) // the clock of file systems is coarse
	if err := unix.Mknod(filepath.Join(dir, "node"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("nodes can't be made here: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("char 1:3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here := func(path string) string { return filepath.Join(dir, filepath.Base(path)) }
	for _, c := range []struct {
		what, path string
		now        time.Time
		known      bool
	}{
		{"young", "/dev/node", time.Now(), true},
		{"old", "/dev/node", time.Now().Add(time.Minute), false},
		{"of the future", "/dev/node", before.Add(-time.Minute), false},
		{"of a recording", "/dev/file", time.Now(), false},
		{"gone", "/dev/none", time.Now(), false},
	} {
		h := &device.Hardware{Path: "devices/a"}
		found := youngNodes([]*device.Node{{Path: c.path, Hardware: h}, {Path: c.path}}, here, c.now)
		if got := found.made("devices/a"); got.After(before) != c.known || got.IsZero() == c.known {
			t.Errorf("%s: %v; want a time: %t", c.what, got, c.known)
		}
	}
}
