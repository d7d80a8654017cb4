package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// tree makes a sysfs tree: a value with the prefix "-> " is a link, "dir" a directory,
// any other an attribute.
func tree(t *testing.T, files map[string]string) FS {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, file)
		} else if text == "dir" {
			err = os.MkdirAll(file, 0o755)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sys := New(root)
	sys.magic = 0 // on any file system
	return sys
}

// On the kernel's sysfs a new link has another inode than its predecessor.
func TestLinksAreKnownByTheirInodes(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{"bus/pci/devices/0000:03:00.0": "-> ../../../devices/pci0000:00/0000:03:00.0"})
	sys.magic = unix.TMPFS_MAGIC
	first, err := sys.PCI()
	if err != nil || len(first) != 1 || first[0].Ino == 0 {
		t.Fatal(first, err)
	}
	link := sys.abs("bus/pci/devices/0000:03:00.0")
	// Replaced by rename, so that the new link cannot reuse the inode.
	for _, err := range []error{os.Symlink("../../../devices/pci0000:00/0000:00:1c.0/0000:03:00.0", link+".new"), os.Rename(link+".new", link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	second, err := sys.PCI()
	want := "devices/pci0000:00/0000:00:1c.0/0000:03:00.0"
	if err != nil || len(second) != 1 || second[0].Path != want || second[0].Ino == first[0].Ino {
		t.Errorf("%+v, %v; want %s, and another inode than that of %+v", second, err, want, first)
	}
}

func TestAttrIsSafeToPrint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content, want string }{
		{"one newline goes", "A1B2\n", "A1B2"},
		{"spaces stay", " A1 B2 \n", " A1 B2 "},
		{"control characters go", "A\x00\x1b[1mB\x7f\n\n", "A[1mB"},
		{"C1 control characters go", "A\u0085\u009bB\n", "AB"},
		{"not UTF-8 is replaced", "A\xff\xfeB\n", "A\uFFFDB"},
		{"other scripts stay", "Gerät ½\n", "Gerät ½"},
		{"empty", "\n", ""},
		{"the limit", strings.Repeat("x", 2*maxAttr), strings.Repeat("x", maxAttr)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := tree(t, map[string]string{"devices/a/serial": c.content}).attr("devices/a", "serial")
			if err != nil || got != c.want {
				t.Errorf("attr = %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestAbsentIsNoError(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{"devices/a": "dir", "dev/char": "dir"})
	if s, err := sys.Driver("devices/a"); s != "" || err != nil {
		t.Errorf("Driver = %q, %v; want none", s, err)
	}
	if n, err := sys.NUMANode("devices/a"); n != -1 || err != nil {
		t.Errorf("NUMANode = %d, %v; want -1", n, err)
	}
	if s, err := sys.NodeDir(&device.Node{Type: device.CharNode, Major: 188}); s != "" || err != nil {
		t.Errorf("NodeDir = %q, %v; want none", s, err)
	}
	if _, err := sys.PCI(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PCI without the bus: %v; want one that wraps fs.ErrNotExist", err)
	}
}

func TestUnreadableIsAnError(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{"devices/a/numa_node": "dir", "devices/b/numa_node": "many\n"})
	if n, err := sys.NUMANode("devices/a"); n != -1 || !errors.Is(err, unix.EISDIR) {
		t.Errorf("NUMANode = %d, %v; want EISDIR", n, err)
	}
	n, err := sys.NUMANode("devices/b")
	if want := `numa_node: "many" is not a number`; n != -1 || err == nil || err.Error() != want {
		t.Errorf("NUMANode = %d, %v; want %q", n, err, want)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := tree(t, map[string]string{"devices": "dir", "dev": "dir"}).Check(); err != nil {
		t.Error(err)
	}
	for name, sys := range map[string]FS{
		"missing":      New(t.TempDir() + "/nothing"),
		"empty":        tree(t, nil),
		"not a sysfs":  tree(t, map[string]string{"devices": "dir"}),
		"a plain file": tree(t, map[string]string{"devices": "x", "dev": "dir"}),
	} {
		if err := sys.Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEntries(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{
		"bus/usb/devices/1-2:1.0": "-> ../../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0",
		"bus/usb/devices/1-2":     "-> ../../../devices/pci0000:00/0000:00:14.0/usb1/1-2",
		"bus/usb/devices/usb1":    "-> ../../../devices/pci0000:00/0000:00:14.0/usb1",
		"bus/usb/devices/9-9":     "-> ../../../../etc",
		"bus/usb/devices/9-8":     "-> /devices/x",
	})
	list, err := sys.USB()
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	want := []Entry{
		{Name: "1-2", Path: "devices/pci0000:00/0000:00:14.0/usb1/1-2"},
		{Name: "1-2:1.0", Path: "devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0"},
		{Name: "usb1", Path: "devices/pci0000:00/0000:00:14.0/usb1"},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"9-9", "9-8"} {
		if err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("err = %v; want one that names %s", err, bad)
		}
	}
}

func TestUSBDevice(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{
		"devices/a/idVendor": "10C4\n", "devices/a/idProduct": "EA60\n", "devices/a/serial": "0001\n", "devices/a/speed": "12\n",
		"devices/a/bDeviceClass": "FF\n",
		"devices/half/serial":    "0001\n",
		"devices/bad/idVendor":   "10c4\n", "devices/bad/speed": "dir",
		"devices/early/idVendor": "10c4\n", "devices/moved/idVendor": "10c4\n",
		"bus/usb/devices/a": "-> ../../../devices/a", "bus/usb/devices/half": "-> ../../../devices/half", "bus/usb/devices/bad": "-> ../../../devices/bad",
		"bus/usb/devices/moved": "-> ../../../devices/b/moved",
	})
	got, err := sys.USBDevice("devices/a")
	want := device.USB{Vendor: "10c4", Product: "ea60", Serial: "0001", Class: "ff", Speed: "12"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("USBDevice: %v\n%s", err, diff)
	}
	for dir, what := range map[string]string{"half": "lost its idVendor", "early": "is not on the bus yet", "moved": "is elsewhere on the bus"} {
		if _, err := sys.USBDevice("devices/" + dir); !Gone(err) {
			t.Errorf("a device that %s: %v; want gone", what, err)
		}
	}
	got, err = sys.USBDevice("devices/bad")
	if err == nil || Gone(err) || got.Vendor != "10c4" {
		t.Errorf("USBDevice = %+v, %v; want what could be read and the error of speed", got, err)
	}
}

func TestUSBInterface(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{
		"devices/1-1:1.31/bInterfaceClass": "0E\n", "devices/1-1:1.31/driver": "-> ../../bus/usb/drivers/uvcvideo",
		"devices/1-1:1.x/bInterfaceClass": "0e\n",
		"devices/1-1:1.2":                 "dir",
	})
	got, err := sys.USBInterface("devices/1-1:1.31")
	if want := (device.USBInterface{Number: 31, Class: "0e", Driver: "uvcvideo"}); err != nil || got != want {
		t.Errorf("USBInterface = %+v, %v; want %+v", got, err, want)
	}
	got, err = sys.USBInterface("devices/1-1:1.x")
	if want := (device.USBInterface{Number: -1, Class: "0e"}); err == nil || Gone(err) || got != want {
		t.Errorf("number x: %+v, %v; want %+v and an error", got, err, want)
	}
	if _, err := sys.USBInterface("devices/1-1:1.2"); !Gone(err) {
		t.Errorf("no class: %v; want gone", err)
	}
}

func TestPCIFunction(t *testing.T) {
	t.Parallel()
	const modalias = "pci:v00008086d0000154Csv00001028sd00000000bc02sc00i00"
	sys := tree(t, map[string]string{
		"devices/a/modalias": modalias + "\n", "devices/a/revision": "0x02\n", "devices/a/iommu_group": "-> ../../kernel/iommu_groups/87",
		"devices/a/numa_node": "1\n", "devices/a/sriov_totalvfs": "0\n", "devices/a/driver": "-> ../../bus/pci/drivers/iavf",
		"devices/b/modalias": modalias + "\n", "devices/b/sriov_totalvfs": "64\n", "devices/b/revision": "dir", "devices/b/numa_node": "x",
		"devices/c/revision": "0x02\n",
		"devices/pf/virtfn0": "-> ../0000:3b:02.0", "devices/pf/virtfn12": "-> ../0000:3b:03.4", "devices/pf/virtfnx": "-> ../x",
	})
	got, id, err := sys.PCIFunction("devices/a")
	want := PCIFunction{PCI: device.PCI{Address: "a", Revision: "02", Driver: "iavf", IOMMUGroup: "87", SRIOV: "none", VF: -1}, NUMA: 1}
	if err != nil || got != want || id != modalias {
		t.Errorf("PCIFunction = %+v, %q, %v; want %+v, %q", got, id, err, want, modalias)
	}
	got, id, err = sys.PCIFunction("devices/b")
	if got.SRIOV != "pf" || got.NUMA != -1 || id != modalias || !errors.Is(err, unix.EISDIR) || !strings.Contains(err.Error(), `numa_node: "x" is not a number`) {
		t.Errorf("PCIFunction = %+v, %v; want the rest and both errors", got, err)
	}
	if _, _, err := sys.PCIFunction("devices/c"); !Gone(err) {
		t.Errorf("not on the bus: %v; want gone", err)
	}
	vfs, err := sys.VirtFns("devices/pf")
	if diff := cmp.Diff(map[string]int{"devices/0000:3b:02.0": 0, "devices/0000:3b:03.4": 12}, vfs); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestDevName(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{"devices/a/uevent": "MAJOR=189\nMINOR=1\nDEVNAME=bus/usb/001/002\nDEVTYPE=usb_device\nodd line\n"})
	got, err := sys.DevName("devices/a")
	if want := "bus/usb/001/002"; err != nil || got != want {
		t.Errorf("DevName = %q, %v; want %q", got, err, want)
	}
	if _, err := sys.DevName("devices/b"); !Gone(err) {
		t.Errorf("DevName of nothing: %v; want gone", err)
	}
}

func FuzzDevName(f *testing.F) {
	f.Add("MAJOR=189\nDEVNAME=bus/usb/001/002\n")
	f.Add("DEVNAME=\xff\x00\n=\n")
	f.Fuzz(func(t *testing.T, s string) {
		if name := devName(s); strings.ContainsAny(name, "\n\x00") {
			t.Errorf("control characters: %q", name)
		}
	})
}
