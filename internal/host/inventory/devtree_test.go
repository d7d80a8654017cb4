package inventory_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func fuse() sysfstest.Node {
	return sysfstest.Node{Name: "fuse", Subsystem: "misc", Major: 10, Minor: 229}
}

func nodePaths(s *device.Snapshot) []string {
	var paths []string
	for _, n := range s.Nodes {
		paths = append(paths, n.Path)
	}
	return paths
}

func findNode(t *testing.T, s *device.Snapshot, p string) *device.Node {
	t.Helper()
	for _, n := range s.Nodes {
		if n.Path == p {
			return n
		}
	}
	t.Fatalf("no node %s", p)
	return nil
}

func TestScanErrors(t *testing.T) {
	t.Parallel()
	good := sysfstest.New(t)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	empty := t.TempDir()
	for _, c := range []struct {
		name string
		o    inventory.Options
		want error
	}{
		{"no sysfs", inventory.Options{Sysfs: empty + "/sys", Dev: good.Dev()}, fs.ErrNotExist},
		{"sysfs not mounted", inventory.Options{Sysfs: empty, Dev: good.Dev()}, fs.ErrNotExist},
		{"no dev", inventory.Options{Sysfs: good.Sysfs(), Dev: empty + "/dev"}, fs.ErrNotExist},
		{"dev is a file", inventory.Options{Sysfs: good.Sysfs(), Dev: file}, unix.ENOTDIR},
	} {
		snap, err := inventory.New(c.o).Scan(t.Context())
		if snap != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want no snapshot and %v", c.name, snap, err, c.want)
		}
	}
}

func TestLinksAreResolvedLikeOnTheHost(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("", fuse())
	h.AddNode("", sysfstest.Node{Name: "snd/timer", Subsystem: "sound"})
	outside := filepath.Join(t.TempDir(), "node")
	must(t, os.WriteFile(outside, []byte("char 1:3\n"), 0o644))
	for name, target := range map[string]string{
		"relative":           "fuse",
		"deep/er/up":         "../../fuse",
		"absolute":           "/dev/fuse",
		"chain":              "deep/er/up",
		"by/way/of":          "/dev/audio/timer",
		"audio":              "snd",
		"round":              "audio/../fuse",
		"out/and/in":         "../../../dev/fuse",
		"slashes":            "//dev//./fuse",
		"self":               "self",
		"tick":               "tock",
		"tock":               "tick",
		"dangling":           "nothing",
		"through-a-node":     "fuse/x",
		"dir":                "snd",
		"outside":            outside,
		"elsewhere-below":    h.Dev() + "/fuse",
		"proc":               "/proc/self/fd/0",
		"above":              "../../..",
		"other-file-systems": "/dev/pts/0",
	} {
		h.AddLink(name, target)
	}
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	got := make(map[string]string)
	for _, l := range snap.Links {
		got[strings.TrimPrefix(l.Path, "/dev/")] = l.Node.Path
	}
	want := map[string]string{
		"relative": "/dev/fuse", "deep/er/up": "/dev/fuse", "absolute": "/dev/fuse", "chain": "/dev/fuse",
		"by/way/of": "/dev/snd/timer", "round": "/dev/fuse", "out/and/in": "/dev/fuse", "slashes": "/dev/fuse",
	}
	equal(t, "result", want, got)
	for _, l := range snap.Links {
		if l.Node != findNode(t, snap, l.Node.Path) {
			t.Errorf("%s leads to another %s than the snapshot's", l.Path, l.Node.Path)
		}
	}
}

func TestLongChainOfLinks(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("", fuse())
	h.AddLink("link40", "fuse")
	for i := 39; i >= 0; i-- {
		h.AddLink("link"+string(rune('0'+i/10))+string(rune('0'+i%10)), "link"+string(rune('0'+(i+1)/10))+string(rune('0'+(i+1)%10)))
	}
	// The kernel rejects link00, with its 41 links, and resolves link01.
	if n := len(scan(t, h.Tree).Links); n != 40 {
		t.Errorf("%d links lead to the node; want 40", n)
	}
}

func TestOtherFileSystemsBelowDev(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("", fuse())
	pts := filepath.Join(h.Dev(), "pts")
	must(t, os.Mkdir(pts, 0o755))
	if err := unix.Mount("tmpfs", pts, "tmpfs", 0, ""); err != nil {
		t.Skipf("mounting is refused here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pts, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"0", "ptmx"} {
		must(t, os.WriteFile(filepath.Join(pts, name), []byte("char 5:2\n"), 0o644))
	}
	h.AddLink("ptmx", "pts/ptmx")
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	equal(t, "want the node that a link leads to, and no other", []string{"/dev/fuse", "/dev/pts/ptmx"}, nodePaths(snap))
	equal(t, "want only directories that were walked", []string{"/dev"}, snap.Dirs)
	if len(snap.Links) != 1 || snap.Links[0].Node.Path != "/dev/pts/ptmx" {
		t.Errorf("links: %+v", snap.Links)
	}
}

func TestPlainFilesAreNodesInRecordingsOnly(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("", fuse())
	for name, text := range map[string]string{
		"fifo": "pipe 1:3\n", "half": "char 1\n", "negative": "char -1:3\n", "large": "char 1:4294967296\n", "long": "char 1:3\n" + strings.Repeat(" ", 100),
	} {
		must(t, os.WriteFile(filepath.Join(h.Dev(), name), []byte(text), 0o644))
	}
	equal(t, "result", []string{"/dev/fuse"}, nodePaths(scan(t, h.Tree)))
	must(t, os.Remove(filepath.Join(h.Dev(), inventory.RecordingMarker)))
	if got := nodePaths(scan(t, h.Tree)); got != nil {
		t.Errorf("nodes without the marker: %q", got)
	}
}

func TestUnreadableDirectoryDegradesItself(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("", fuse())
	h.AddNode("", sysfstest.Node{Name: "secret/key", Subsystem: "misc"})
	must(t, os.Chmod(filepath.Join(h.Dev(), "secret"), 0))
	// The directory of the test may be accessible to its user only.
	must(t, os.Chmod(filepath.Dir(h.Root), 0o755))
	asNobody(t)
	snap := scan(t, h.Tree)
	equal(t, "result", []string{"/dev/fuse"}, nodePaths(snap))
	equal(t, "result", []device.Problem{{Subject: "/dev/secret", Reason: "open: permission denied"}}, snap.Problems)
}

// asNobody drops root's privilege to read every directory, until the test ends. It
// affects the thread of the test.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	runtime.LockOSThread()
	must(t, unix.Setfsuid(65534))
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

func TestCopiesOfANode(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	dir := h.AddPCI(sysfstest.PCI{
		Address: "0000:00:02.0", Vendor: "8086", Device: "3e92", Class: "030000",
		Nodes: []sysfstest.Node{{Name: "dri/card0", Subsystem: "drm", Major: 226}},
	})
	number := []byte("char 226:0\n")
	for _, name := range []string{"a-copy", "z-copy"} {
		must(t, os.WriteFile(filepath.Join(h.Dev(), name), number, 0o644))
	}
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	if n := findNode(t, snap, "/dev/dri/card0"); n.Hardware == nil || n.SysPath != dir+"/drm/card0" {
		t.Errorf("the kernel's node: %+v; want that of the hardware", n)
	}
	for _, p := range []string{"/dev/a-copy", "/dev/z-copy"} {
		if n := findNode(t, snap, p); n.Hardware != nil || n.SysPath != "" || n.Kernel != p[5:] {
			t.Errorf("%s: %+v; want a node without hardware", p, n)
		}
	}
	if len(snap.Hardware[0].Nodes) != 1 {
		t.Errorf("the hardware has %d nodes; want 1", len(snap.Hardware[0].Nodes))
	}

	// Without the kernel's node, as below a manually populated /dev, all belong to the
	// hardware.
	must(t, os.Remove(filepath.Join(h.Dev(), "dri/card0")))
	snap = scan(t, h.Tree)
	if len(snap.Hardware[0].Nodes) != 2 {
		t.Errorf("the hardware has %d nodes; want both copies", len(snap.Hardware[0].Nodes))
	}
	must(t, os.WriteFile(filepath.Join(h.Dev(), "dri/card0"), number, 0o644))
}
