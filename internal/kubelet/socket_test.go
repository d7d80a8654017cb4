package kubelet

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const gpu = "example.com/gpu"

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckDir(t *testing.T) {
	t.Parallel()
	if err := CheckDir("/var/lib/kubelet/device-plugins"); err != nil {
		t.Error(err)
	}
	if err := CheckDir("/" + strings.Repeat("d", 71)); err != nil {
		t.Error(err)
	}
	err := CheckDir("/" + strings.Repeat("d", 72))
	if err == nil || !strings.HasPrefix(err.Error(), "--kubelet-dir: ") || !strings.Contains(err.Error(), "may have 72") {
		t.Errorf("got %v", err)
	}
}

// A reason that differs with every attempt would be logged with every attempt.
func TestListenFailsAlike(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	_, first := Listen(dir, gpu)
	_, second := Listen(dir, gpu)
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), dir) {
		t.Errorf("errors of two attempts: %v, %v, want the same one with the directory", first, second)
	}
}

func TestRemoveOnlyOwnSocket(t *testing.T) {
	t.Parallel()
	dir := kubelettest.TempDir(t)
	s, err := Listen(dir, gpu)
	must(t, err)
	must(t, os.Remove(s.Path))
	other, err := net.Listen("unix", s.Path)
	must(t, err)
	defer other.Close()
	s.Remove()
	if _, err := os.Lstat(s.Path); err != nil {
		t.Errorf("another one's socket was removed: %v", err)
	}
	s, err = Listen(dir, gpu)
	must(t, err)
	s.Remove()
	if _, err := os.Lstat(s.Path); err == nil {
		t.Error("the own socket is still there")
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	dir := kubelettest.TempDir(t)
	add := func(name string, alive bool) string {
		path := filepath.Join(dir, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		must(t, err)
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		if !alive {
			must(t, l.Close())
		}
		return name
	}
	dead := []string{add(socketName(gpu), false), add(socketName(gpu), false)}
	slices.Sort(dead)
	keep := []string{
		add(socketName(gpu), true),          // served
		add("nvidia-gpu.sock", false),       // foreign
		add("gdp-ZXhhbXBsZQ-1.sock", false), // foreign
		add("gdp-0123abcd-xyz.sock", false), // another form
		add(socketName(gpu)+"x", false),     // another form
		socketName("regular"),               // no socket
	}
	must(t, os.WriteFile(filepath.Join(dir, keep[5]), nil, 0o600))
	removed, err := Sweep(dir)
	must(t, err)
	if !slices.Equal(removed, dead) {
		t.Errorf("removed %q, want %q", removed, dead)
	}
	for _, name := range keep {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Sweep(filepath.Join(dir, "absent")); err == nil {
		t.Error("a directory that is absent: want an error")
	}
}

// A socket that is bound, and about to listen, stays.
func TestSweepDuringListen(t *testing.T) {
	t.Parallel()
	dir := kubelettest.TempDir(t)
	path := filepath.Join(dir, socketName(gpu))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	if !Dead(path) {
		t.Fatal("the socket accepts connections before it listens")
	}
	// In a bubble, time passes only while Sweep sleeps between its two checks.
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(listenWithin/4, func() {
			if err := unix.Listen(fd, 1); err != nil {
				t.Error(err)
			}
		})
		removed, err := Sweep(dir)
		must(t, err)
		if len(removed) > 0 {
			t.Errorf("removed %q", removed)
		}
	})
}
