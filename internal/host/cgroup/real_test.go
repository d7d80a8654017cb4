package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// hierarchy returns the writable hierarchy of this machine that the package reads, or skips
// the test.
func hierarchy(t *testing.T) (tree, base string) {
	t.Helper()
	const dir = "/sys/fs/cgroup"
	l, err := detect(dir)
	if err != nil {
		t.Skip(err)
	}
	base = filepath.Join(dir, l.base)
	if os.Getuid() != 0 || unix.Access(base, unix.W_OK) != nil {
		t.Skipf("%s is not writable", base)
	}
	return dir, base
}

// A pod of the kernel's own cgroups runs while one of its processes runs in a cgroup below
// it, as that of a container.
func TestRealCgroup(t *testing.T) {
	t.Parallel()
	tree, base := hierarchy(t)
	root := filepath.Join(base, "generic-dp-test-"+strconv.Itoa(os.Getpid()))
	uid := fmt.Sprintf("real-%d", os.Getpid())
	pod := filepath.Join(root, "kubepods", "besteffort", "pod"+uid)
	container := filepath.Join(pod, "container")
	if err := os.MkdirAll(container, 0o755); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for dir := container; dir != base; dir = filepath.Dir(dir) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	check := func(when string, want PodState) {
		t.Helper()
		if got := New(tree).PodState(uid); got != want {
			t.Errorf("%s: pod is %v, want %v", when, got, want)
		}
	}
	if err := New(tree).Visible(); err != nil {
		t.Fatal(err)
	}
	checkEvents(t, New(tree), filepath.Dir(pod))
	check("without a process", Ended)
	process := exec.Command("cat")
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = process.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(process.Process.Pid)
	if err = os.WriteFile(filepath.Join(container, "cgroup.procs"), []byte(pid), 0); err != nil {
		t.Error(err)
	}
	check("with a process", Running)
	input.Close()
	if err = process.Wait(); err != nil {
		t.Error(err)
	}
	check("after its end", Ended)
}

// checkEvents checks that the kernel announces a new cgroup in a parent of pods.
func checkEvents(t *testing.T, tree *Tree, parent string) {
	t.Helper()
	if !slices.Contains(tree.PodParents(), parent) {
		t.Fatalf("parents of pods are %q, want also %s", tree.PodParents(), parent)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, parent, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(parent, "podnext")
	if err := os.Mkdir(next, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(next)
	var event [unix.SizeofInotifyEvent + unix.NAME_MAX + 1]byte
	if n, err := unix.Read(fd, event[:]); n <= 0 {
		t.Errorf("no event of a new cgroup: %v", err)
	}
}
