package matchers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/matchers"
)

func TestWhen(t *testing.T) {
	t.Parallel()
	const fuse = "match.glob = \"/dev/fuse\"\n"
	offered := []string{"x: fuse /dev/fuse"}
	sys := func(o *matchers.Options) { host(o).glob = files("/sys/module/nvidia", "/sys/module/nvidia_uvm") }
	inactive := func(why string) []string { return []string{`test.toml: resource 1 ("x"): not active here: ` + why} }
	tell(t, []story{
		{name: "node name", toml: fuse + `when.node_name = "worker-*"`, want: offered, notes: []string{}},
		{name: "another node", toml: fuse + `when.node_name = ["worker-*", "!worker-1"]`, notes: inactive(`when.node_name: this is "worker-1"`)},
		{name: "no name of the node", toml: fuse + `when.node_name = "!x"`, opts: func(o *matchers.Options) { o.NodeName = "" },
			notes: []string{`error: test.toml: resource 1 ("x"): not active here: when.node_name: the name of the node is not known: set --node-name ()`}},
		{name: "a node exists", toml: fuse + `when.exists = "/dev/ttyACM*"`, want: offered},
		{name: "a directory exists", toml: fuse + `when.exists = "/dev/bus/usb"`, want: offered},
		{name: "a socket exists", toml: fuse + `when.exists = "/dev/hdirq/sock"`, opts: func(o *matchers.Options) { host(o).glob = files("/dev/hdirq/sock") }, want: offered},
		{name: "nothing exists", toml: fuse + `when.exists = ["/dev/ttyACM*", "/dev/ttyUSB*"]`, notes: inactive(`when.exists: nothing matches "/dev/ttyUSB*"`)},
		{name: "something is not wanted", toml: fuse + `when.exists = ["!/dev/ttyUSB*", "!/dev/tty*"]`, notes: inactive(`when.exists: "/dev/ttyACM0" exists`)},
		{name: "below sys", toml: fuse + `when.exists = "/sys/module/nvid*"`, opts: sys, want: offered},
		{name: "not below sys", toml: fuse + `when.exists = ["!/sys/module/amdgpu", "!/sys/module/nvid*"]`, opts: sys, notes: inactive(`when.exists: "/sys/module/nvidia" exists`)},
		{name: "nothing below sys", toml: fuse + `when.exists = "/sys/module/amdgpu"`, opts: sys, notes: inactive(`when.exists: nothing matches "/sys/module/amdgpu"`)},
		{name: "too much to search", toml: fuse + `when.exists = "!/sys/**/x"`, opts: func(o *matchers.Options) { host(o).glob = func(pattern.Values) ([]string, bool) { return nil, false } },
			notes: []string{`error: test.toml: resource 1 ("x"): not active here: when.exists: "!/sys/**/x": reading it takes too long: a search may take half a second, and all resources together some seconds ()`}},
		{name: "both have to hold", toml: fuse + "when.node_name = \"worker-1\"\nwhen.exists = \"/dev/kfd\"", notes: inactive(`when.exists: nothing matches "/dev/kfd"`)},
		{name: "what is not active takes nothing, and has no name", toml: `
[[resource]]
name = "x"
when.exists = "/dev/kfd"
match.glob = "/dev/fuse"
[[resource]]
name = "x"
when.exists = "!/dev/kfd"
match.glob = "/dev/fu*"`, want: offered, notes: inactive(`when.exists: nothing matches "/dev/kfd"`)},
		{name: "two are active", toml: `
[[resource]]
name = "x"
when.exists = "/dev/fuse"
match.glob = "/dev/fuse"
[[resource]]
name = "x"
when.exists = "/dev/null"
match.glob = "/dev/null"
[[resource]]
name = "y"
match.glob = "/dev/null"`, want: []string{"x: fuse /dev/fuse", "y: null /dev/null"},
			notes: []string{`error: test.toml: resource 2 ("x"): left out: test.toml: resource 1 ("x") has the same name and is active here, too (at most one resource with a name may be active on a node: use when to distinguish them)`}},
	})
}

func TestInactive(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
[[resource]]
name = "a"
when.exists = "/dev/kfd"
match.glob = "/dev/fuse"
[[resource]]
name = "b"
match.glob = "/dev/fuse"
`)
	snap, opts := scanned(t, rig(t))
	var got []string
	for _, r := range matchers.Match(cfg, snap, nil, opts).Inactive {
		got = append(got, r.Name)
	}
	equal(t, "inactive", []string{"example.com/a"}, got)
}

func TestShared(t *testing.T) {
	t.Parallel()
	two := func(a, b string) string {
		return "[[resource]]\nname = \"a\"\n" + a + "\n[[resource]]\nname = \"b\"\n" + b + "\n"
	}
	const lack = `test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: `
	tell(t, []story{
		{name: "both", toml: two("shared = true\nmatch.glob = \"/dev/fuse\"", "shared = true\nmatch.glob = \"/dev/fuse\""),
			want: []string{"a: shared:example.com:a:fuse /dev/fuse", "b: shared:example.com:b:fuse /dev/fuse"}, notes: []string{}},
		{name: "the first alone", toml: two("shared = true\nmatch.glob = \"/dev/fuse\"", "match.glob = \"/dev/fuse\""),
			want: []string{"a: shared:example.com:a:fuse /dev/fuse"}, notes: []string{lack + "/dev/fuse"}},
		{name: "the second alone", toml: two("match.glob = \"/dev/fuse\"", "shared = true\nmatch.glob = \"/dev/fuse\""),
			want: []string{"a: fuse /dev/fuse"}, notes: []string{lack + "/dev/fuse"}},
		{name: "hardware and one of its nodes", toml: two("shared = true\nmatch = { usb = {}, glob = \"/dev/ttyACM*\" }", "shared = true\nmatch.glob = \"/dev/ttyACM0\""),
			want: []string{"a: shared:example.com:a:" + canB + " /dev/ttyACM0", "b: shared:example.com:b:" + canB + ":if00:ttyACM /dev/ttyACM0"}},
		{name: "a third that does not share", toml: two("shared = true\nmatch.glob = \"/dev/fuse\"", "shared = true\nmatch.glob = \"/dev/fuse\"") + "[[resource]]\nname = \"c\"\nmatch.glob = \"/dev/fuse\"",
			want:  []string{"a: shared:example.com:a:fuse /dev/fuse", "b: shared:example.com:b:fuse /dev/fuse"},
			notes: []string{`test.toml: resource 3 ("c"): not offered here, because test.toml: resource 1 ("a") has it: /dev/fuse`}},
		{name: "pools", toml: two("shared = true\neach = \"all\"\nmatch.glob = \"/dev/fuse\"", "shared = true\neach = \"all\"\nmatch.glob = [\"/dev/fuse\", \"/dev/null\"]"),
			want: []string{"a: all:example.com:a /dev/fuse", "b: all:example.com:b /dev/fuse /dev/null"}},
		{name: "CDI devices and paths", toml: two("shared = true\nmatch = [{ cdi_device = \"nvidia.com/gpu=0\" }, { glob = \"/opt/*\" }]", "shared = true\nmatch = [{ cdi_device = \"nvidia.com/gpu=*\" }, { glob = \"/opt/*\" }]"),
			opts: func(o *matchers.Options) { host(o).glob = files("/opt/a") },
			want: []string{
				"a: shared:example.com:a:cdi:nvidia.com:gpu:0 cdi nvidia.com/gpu=0", "a: shared:example.com:a:path:opt:a mount /opt/a>/opt/a",
				"b: shared:example.com:b:cdi:nvidia.com:gpu:0 cdi nvidia.com/gpu=0", "b: shared:example.com:b:cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1", "b: shared:example.com:b:path:opt:a mount /opt/a>/opt/a",
			}},
	})
}

// A container with one function of an IOMMU group reaches the others.
func TestSharedGroup(t *testing.T) {
	t.Parallel()
	snap := card{video: vfio, audio: vfio, functions: 1, iommufd: true}.scan(t)
	const video, audio = `match = { pci = { id = "10de:2204" }, vfio = true }`, `match = { pci = { id = "10de:1aef" }, vfio = true }`
	cfg := parse(t, "[[resource]]\nname = \"a\"\nshared = true\ncontainer.cdi = true\n"+video+"\n[[resource]]\nname = \"b\"\nshared = true\ncontainer.cdi = true\n"+audio+"\n")
	result := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}})
	if diff := cmp.Diff([]string{"shared:example.com:b:0000:01:00.1 /dev/vfio/12 /dev/vfio/devices/vfio1 +/dev/vfio/vfio +/dev/iommu"}, sayAll(result.Resources[1].Offers)); diff != "" || len(result.Notes) > 0 {
		t.Errorf("notes %q, offers (-want +got):\n%s", sayNotes(result.Notes), diff)
	}
	result = matchers.Match(parse(t, "container.cdi = true\nmatch = { pci = { id = \"10de:*\" } }"), snap, nil, matchers.Options{Host: &fakeHost{}})
	want := []string{`test.toml: resource 1 ("x"): PCI function 0000:01:00.0 of IOMMU group 12 and PCI function 0000:01:00.1 of IOMMU group 12 can't be used by two containers at once, because the first one has the whole group`}
	equal(t, "notes", want, sayNotes(result.Notes))
}
