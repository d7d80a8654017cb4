package matchers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// named is the head of a resource whose name has variables.
func named(name string, lines ...string) string {
	return "[[resource]]\nname = \"" + name + "\"\n" + strings.Join(lines, "\n") + "\n"
}

func TestNames(t *testing.T) {
	t.Parallel()
	const (
		mdevs  = `match = { mdev = {}, vfio = true }` + cdi
		sticks = `match = { usb = {}, glob = "/dev/bus/usb/**" }` + cdi
	)
	tell(t, []story{
		{name: "one for each value", toml: named("vgpu-${mdev.type}", mdevs), want: []string{
			"vgpu-nvidia-222: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "vgpu-nvidia-223: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}, notes: []string{}},
		{name: "nicer names", toml: named("vgpu-${mdev.type}", `names = { "vgpu-nvidia-222" = "vgpu-small" }`, mdevs), want: []string{
			"vgpu-nvidia-223: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio", "vgpu-small: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio"}},
		{name: "what is illegal in a nicer name is replaced", toml: named("vgpu-${mdev.type}", `names = { "vgpu-nvidia-222" = "A40 (1Q)", "vgpu-nvidia-223" = "`+strings.Repeat("x", 64)+`" }`, mdevs), want: []string{
			"A40--1Q: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", strings.Repeat("x", 51) + "-xfjgg15ovcj: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"},
			notes: []string{
				`test.toml: resource 1 ("vgpu-${mdev.type}"): names: "A40 (1Q)" becomes "A40--1Q": a name has at most 63 letters, digits, "-", "_" and "."`,
				`test.toml: resource 1 ("vgpu-${mdev.type}"): names: "` + strings.Repeat("x", 64) + `" becomes "` + strings.Repeat("x", 51) + `-xfjgg15ovcj": a name has at most 63 letters, digits, "-", "_" and "."`,
			}},
		{name: "several values of one name", toml: named("vgpu-${mdev.type}", `names = { "vgpu-nvidia-222" = "vgpu", "vgpu-nvidia-223" = "vgpu" }`, mdevs), want: []string{
			"vgpu: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "vgpu: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "patterns: the key itself, then the first in the file", toml: named("vgpu-${mdev.type}", `names = { "*-[!3]??" = "first", "vgpu-*" = "second", "vgpu-nvidia-22{2,9}" = "third", "vgpu-nvidia-223" = "exact" }`, mdevs), want: []string{
			"exact: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio", "first: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio"}},
		{name: "no pattern matches", toml: named("vgpu-${mdev.type}", `names = { "*-221" = "a", "vgpu-nvidia-222" = "b" }`, mdevs), want: []string{
			"b: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "vgpu-nvidia-223: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "what is illegal is replaced", toml: named("d${devnode}", sticks), want: []string{
			"d-dev-bus-usb-001-002: " + canA + " /dev/bus/usb/001/002", "d-dev-bus-usb-001-003: " + canB + " /dev/bus/usb/001/003"}},
		{name: "the ends are letters and digits", toml: named("${attr:bDeviceProtocol}${attr:idVendor}x.${usb.manufacturer}", sticks),
			opts: func(o *matchers.Options) { host(o).attr = attrValues("(_a") },
			notes: []string{`error: test.toml: resource 1 ("${attr:bDeviceProtocol}${attr:idVendor}x.${usb.manufacturer}"): left out: USB device 1-1: name "example.com/${attr:bDeviceProtocol}${attr:idVendor}x.${usb.manufacturer}": ${usb.manufacturer} has no value for USB device 1-1 ()`,
				`error: test.toml: resource 1 ("${attr:bDeviceProtocol}${attr:idVendor}x.${usb.manufacturer}"): left out: USB device 1-2: name "example.com/${attr:bDeviceProtocol}${attr:idVendor}x.${usb.manufacturer}": ${usb.manufacturer} has no value for USB device 1-2 ()`}},
		{name: "trimmed", toml: named("${attr:x}", sticks), opts: func(o *matchers.Options) { host(o).attr = attrValues("(_a%") },
			want: []string{"a: " + canA + " /dev/bus/usb/001/002", "a: " + canB + " /dev/bus/usb/001/003"}},
		{name: "cut", toml: named("a-${attr:x}", sticks), opts: func(o *matchers.Options) {
			host(o).attr = func(dir, _ string) ([]string, bool) {
				return []string{strings.Repeat("x", 60) + ".y" + dir[len(dir)-1:]}, false
			}
		}, want: []string{"a-" + strings.Repeat("x", 49) + "-xg08521ji0o: " + canA + " /dev/bus/usb/001/002", "a-" + strings.Repeat("x", 49) + "-xi3ais8cov8: " + canB + " /dev/bus/usb/001/003"}},
		{name: "nothing is left", toml: named("${attr:x}", sticks), opts: func(o *matchers.Options) { host(o).attr = attrValues("?!") },
			notes: []string{`error: test.toml: resource 1 ("${attr:x}"): left out: USB device 1-1 and 1 more: name "example.com/${attr:x}": "?!" has no character that a name may have ()`}},
		{name: "several values", toml: named("x-${kernel}", `match = { usb = {}, glob = ["/dev/ttyACM*", "/dev/bus/**"] }`+cdi), want: []string{"x-1-1: " + canA + " /dev/bus/usb/001/002"},
			notes: []string{`error: test.toml: resource 1 ("x-${kernel}"): left out: USB device 1-2: name "example.com/x-${kernel}": ${kernel} has several values: "1-2" and "ttyACM0" ()`}},
		{name: "in variables it is complete, and in IDs", toml: named("gpu-${pci.device}", "each = \"all\"\nmatch = { pci = { id = \"10de:*\" } }\ncontainer.path = \"/dev/${RESOURCE}/\""+cdi),
			want: []string{"gpu-2235: all:example.com:gpu-2235 /dev/dri/renderD128>/dev/EXAMPLE_COM_GPU_2235/renderD128"}},
		{name: "a name without variables goes first, wherever it is", toml: named("can-${usb.product}", sticks) + named("can-606f", `match.glob = "/dev/fuse"`),
			want:  []string{"can-606f: fuse /dev/fuse"},
			notes: []string{`error: test.toml: resource 1 ("can-${usb.product}"): left out: USB device 1-1 and 1 more: test.toml: resource 2 ("can-606f") has the name "example.com/can-606f" ()`}},
		{name: "names with variables are of the first", toml: named("can-${usb.product}", `match = { usb = { serial = "CAN-A*" }, glob = "/dev/bus/usb/**" }`+cdi) + named("can-${usb.product}-${usb.vendor}", `names = { "can-606f-1d50" = "can-606f" }`, sticks),
			want: []string{"can-606f: " + canA + " /dev/bus/usb/001/002"},
			notes: []string{
				`test.toml: resource 2 ("can-${usb.product}-${usb.vendor}"): not offered here, because test.toml: resource 1 ("can-${usb.product}") has it: USB device 1-1`,
				`error: test.toml: resource 2 ("can-${usb.product}-${usb.vendor}"): left out: USB device 1-2: test.toml: resource 1 ("can-${usb.product}") has the name "example.com/can-606f" ()`,
			}},
	})
}

func TestTooManyNames(t *testing.T) {
	t.Parallel()
	snap := &device.Snapshot{Dirs: []string{"/dev"}}
	for i := range 66 {
		snap.Nodes = append(snap.Nodes, &device.Node{Path: fmt.Sprintf("/dev/tty%02d", i), Type: device.CharNode, Major: 4, Minor: uint32(i), Kernel: fmt.Sprintf("tty%02d", i), Interface: -1, Index: -1})
	}
	result := matchers.Match(parse(t, named("t-${1}", `match.glob = "/dev/tty*"`)), snap, nil, matchers.Options{Host: &fakeHost{}})
	if n := len(result.Resources); n != 64 || result.Resources[63].Name != "example.com/t-63" {
		t.Errorf("%d names", n)
	}
	want := []string{`error: test.toml: resource 1 ("t-${1}"): left out: /dev/tty64 and 1 more: name "example.com/t-${1}" makes 66 names: at most 64 are allowed, and names maps several values to one name ()`}
	equal(t, "notes", want, sayNotes(result.Notes))
}

func TestMakes(t *testing.T) {
	t.Parallel()
	const names = `names = { "gpu-2204" = "rtx 3090" }`
	long := strings.Repeat("x", 63)
	for _, tc := range []struct {
		name, made string
		want       bool
	}{
		{"gpu-${pci.device}", "example.com/gpu-2204", true},
		{"gpu-${pci.device}", "example.com/rtx-3090", true},
		{"gpu-${pci.device}", "example.org/gpu-2204", false},
		{"gpu-${pci.device}", "example.com/xpu-2204", false},
		{"gpu-${pci.device}", "example.com/gpu-2204-", false},
		{"gpu-${pci.device}", "gpu-2204", false},
		{"gpu", "example.com/gpu", false},
		{"vendor.example/${pci.device}-gpu", "vendor.example/2204-gpu", true},
		{"vendor.example/${pci.device}-gpu", "vendor.example/2204-gpus", false},
		{"a${pci.device}b${pci.vendor}c", "example.com/a1b2c", true},
		{"a${pci.device}b${pci.vendor}c", "example.com/a1c", false},
		{"a.${pci.device}", "example.com/a.b", true},
		{"a.${pci.device}", "example.com/axb", false},
		// It was cut.
		{"x${pci.device}-gpu", "example.com/" + long, true},
		{"x${pci.device}-gpu", "example.com/" + long[1:], false},
		{"y${pci.device}-gpu", "example.com/" + long, false},
	} {
		nicer := ""
		if strings.HasPrefix(tc.name, "gpu-$") {
			nicer = names
		}
		cfg := parse(t, named(tc.name, nicer, `match.pci = {}`, `container.path = "/dev/x/"`))
		if got := matchers.Makes(&cfg.Resources[0], tc.made); got != tc.want {
			t.Errorf("%s makes %s: %v", tc.name, tc.made, got)
		}
	}
}
