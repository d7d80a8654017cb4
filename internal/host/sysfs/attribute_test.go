package sysfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFindAttributes(t *testing.T) {
	t.Parallel()
	const card = "devices/pci0000:00/0000:03:00.0"
	sys := tree(t, map[string]string{
		card + "/device":                            "0x154c\n",
		card + "/driver":                            "-> ../../../bus/pci/drivers/amdgpu",
		card + "/of_node":                           "-> ../../../firmware/devicetree/base/gpu@0",
		card + "/out":                               "-> ../../../../etc",
		card + "/absolute":                          "-> /etc",
		card + "/circle":                            "-> circle",
		card + "/passwd":                            "-> ../../../../../../../../../../../../etc/passwd",
		card + "/power/control":                     "auto\n",
		card + "/rom1/other":                        "1\n",
		card + "/rom2/VBNV":                         "113-2\n",
		card + "/rom3/VBNV":                         "113-3\n",
		card + "/class/x/device":                    "-> ../..",
		card + "/class/x/up":                        "-> ../../..",
		card + "/class/x/vendor_link":               "-> ../../device",
		"firmware/devicetree/base":                  "-> real",
		"firmware/devicetree/real":                  "dir",
		"firmware/devicetree/real/gpu":              "dir",
		"firmware/devicetree/real/gpu@0/compatible": "amd,gpu\n",
	})
	for _, c := range []struct{ dir, name, want string }{
		{card, "device", card + "/device"},
		{card, "power/control", card + "/power/control"},
		{card, "rom*/VBNV", card + "/rom2/VBNV " + card + "/rom3/VBNV"},
		{card, "rom[!2]/VBNV", card + "/rom3/VBNV"},
		{card, "rom?/VB*", card + "/rom2/VBNV " + card + "/rom3/VBNV"},
		{card, "dr?ver", card + "/driver"},
		{card, "driver", card + "/driver"},
		{card, "of_node/compatible", "firmware/devicetree/real/gpu@0/compatible"},
		{card + "/class/x", "device/device", card + "/device"},
		{card + "/class/x", "vendor_link", card + "/device"},
		{card + "/class/x", "device/power/control", card + "/power/control"},

		{card + "/class/x", "device", ""}, // a directory: the parent PCI function's is further up
		{card, "power", ""},
		{card, "missing", ""},
		{card, "missing/control", ""},
		{card, "device/control", ""},
		{card, "rom*/missing", ""},
		{card, "[", ""},
		{card, "../0000:03:00.0/device", ""},
		{card, "power/../device", ""},
		{card, "./device", ""},
		{card, "power//control", ""},
		{card, "/device", ""},
		{card, "", ""},
		{card, "out/passwd", ""},
		{card, "absolute/passwd", ""},
		{card, "circle/x", ""},
		{card, "passwd", ""},
		{"devices/missing", "device", ""},
	} {
		var got []string
		found, _ := sys.FindAttributes(c.dir, c.dir, c.name, time.Now().Add(time.Hour))
		for _, file := range found {
			got = append(got, file.Path)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("FindAttributes(%q, %q) = %q; want %q", c.dir, c.name, got, c.want)
		}
	}
}

func TestAttribute(t *testing.T) {
	t.Parallel()
	sys := tree(t, map[string]string{
		"devices/a/state": "enabled \n", "devices/a/driver": "-> ../../bus/pci/drivers/amdgpu", "devices/a/empty": "\n",
		"devices/a/long": strings.Repeat("x", 2*maxAttr),
	})
	for name, want := range map[string]string{"state": "enabled ", "driver": "amdgpu", "empty": "", "long": strings.Repeat("x", maxAttr)} {
		if got, err := sys.Attribute("devices/a/" + name); got != want || err != nil {
			t.Errorf("%s = %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := sys.Attribute("devices/a/missing"); !Gone(err) {
		t.Errorf("a missing attribute: %v; want gone", err)
	}
}

// A read by name is traced, with the links on its path: the trace is a tree that reads
// the same.
// Attributes with passwords and keys are only readable for root, which the program is.
func TestAttributeOfRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	sys := New(root)
	for mode, want := range map[os.FileMode]error{0o444: nil, 0o644: nil, 0o400: errNotPublic, 0o600: errNotPublic, 0o440: errNotPublic} {
		name := fmt.Sprintf("secret%o", mode)
		file := filepath.Join(root, name)
		if err := os.WriteFile(file, []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		got, err := sys.Attribute(name)
		if !errors.Is(err, want) || (got != "") != (want == nil) {
			t.Errorf("mode %o: %q, %v; want the error %v", mode, got, err, want)
		}
	}
}

// Wildcards find the files of the device itself, by one path each. An exact name may also lead to
// another device.
func TestWildcardsStayInTheDevice(t *testing.T) {
	t.Parallel()
	const bus = "devices/pci0000:00"
	const vf = bus + "/0000:03:00.1"
	const pf = bus + "/0000:03:00.0"
	const net = vf + "/net/eth0"
	sys := tree(t, map[string]string{
		pf + "/name":                      "pf\n",
		pf + "/net/eth9/name":             "eth9\n",
		vf + "/name":                      "vf\n",
		vf + "/physfn":                    "-> ../0000:03:00.0",
		vf + "/subsystem":                 "-> ../../../bus/pci",
		vf + "/loop":                      "-> .",
		net + "/name":                     "eth0\n",
		net + "/device":                   "-> ../..",
		net + "/subsystem":                "-> ../../../../../class/net",
		net + "/statistics/name":          "s\n",
		net + "/lower":                    "-> ../../../0000:03:00.0/net/eth9",
		"bus/pci/devices/0000:03:00.0":    "-> ../../../" + pf,
		"bus/pci/devices/0000:03:00.1":    "-> ../../../" + vf,
		"class/net/eth0":                  "-> ../../" + net,
		"devices/pci0000:00/other/x/name": "x\n",
	})
	for _, c := range []struct{ name, want string }{
		{"name", net + "/name"},
		{"*/name", net + "/statistics/name"},
		{"device/name", vf + "/name"},
		{"device/*/*/name", net + "/name"},
		{"device/net/*/device/*/*/name", net + "/name"},
		{"device/net/*/device/net/*/device/net/*/name", net + "/name"},
		{"device/physfn/name", pf + "/name"},
		{"device/physfn/net/eth9/name", pf + "/net/eth9/name"},
		{"lower/name", pf + "/net/eth9/name"},
		{"device/loop/loop/name", vf + "/name"},

		{"device/physfn/*/*/name", pf + "/net/eth9/name"},
		{"device/physfn/net/*/device/subsystem/devices/*/name", ""},
		{"low*/name", ""},
		{"device/loo*/name", ""},
		{"device/subsystem/devices/*/name", ""},
		{"subsystem/*/name", ""},
		{"subsystem/eth0/device/subsystem/devices/*/name", ""},
		{"device/loop/../*/name", ""},
	} {
		var got []string
		found, complete := sys.FindAttributes(vf, net, c.name, time.Now().Add(time.Hour))
		for _, file := range found {
			got = append(got, file.Path)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s = %q; want %q", c.name, got, c.want)
		}
		if !complete {
			t.Errorf("%s is not complete", c.name)
		}
	}
}

// Links to a directory above do not repeat the search of what is below it: that would never end. A search ends
// when its time is over.
func TestSearchEnds(t *testing.T) {
	t.Parallel()
	files := map[string]string{"devices/a/device": "-> ."}
	for i := range 6 {
		for j := range 6 {
			files[fmt.Sprintf("devices/a/%d/%d/x", i, j)] = "1\n"
			files[fmt.Sprintf("devices/a/%d/%d/device", i, j)] = "-> ../.."
		}
	}
	sys := tree(t, files)
	for _, name := range []string{"*/*/nope", "*/*/*/*/*/*/*/nope", strings.Repeat("*/*/device/", 20) + "*/*/nope"} {
		found, complete := sys.FindAttributes("devices/a", "devices/a", name, time.Now().Add(time.Hour))
		if len(found) > 0 || !complete {
			t.Errorf("%s: %v, complete %t", name, found, complete)
		}
	}
	if found, complete := sys.FindAttributes("devices/a", "devices/a", "*/*/x", time.Now()); len(found) > 0 || complete {
		t.Errorf("without any time: %v, complete %t", found, complete)
	}
}

// For any name and any links, the result is a file of the tree whose path contains no
// link.
func FuzzFindAttributes(f *testing.F) {
	f.Add("a/b", "../x")
	f.Add("l*/[!b]", "../../d/l/../..")
	f.Add("driver", "/etc/passwd")
	f.Fuzz(func(t *testing.T, name, target string) {
		root := t.TempDir()
		for _, dir := range []string{"d/a", "d/b"} {
			if err := os.MkdirAll(filepath.Join(root, "tree", dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"outside", "tree/d/a/b", "tree/d/x"} {
			if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if os.Symlink(target, filepath.Join(root, "tree/d/l")) != nil {
			t.Skip("no link can say that")
		}
		sys := New(filepath.Join(root, "tree"))
		found, _ := sys.FindAttributes("d", "d", name, time.Now().Add(time.Hour))
		for _, file := range found {
			real, err := filepath.EvalSymlinks(filepath.Join(root, "tree", file.Path))
			kind, _ := sys.lstat(file.Path)
			if kind != unix.S_IFLNK && (err != nil || real != filepath.Join(root, "tree", file.Path)) {
				t.Errorf("FindAttributes(%q) = %q, which is %q, %v", name, file.Path, real, err)
			}
		}
	})
}
