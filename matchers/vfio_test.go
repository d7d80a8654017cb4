package matchers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// card is a host whose graphics card is one IOMMU group of two functions, below a port:
// the drivers of both, and other properties.
type card struct {
	video, audio string // drivers
	port         string // likewise; empty is "pcieport"
	group        string // empty is "12"
	noIOMMU      bool
	noGroups     bool // a kernel without VFIO_GROUP
	noContainer  bool
	functions    int // number of the first function's node plus 1; 0 is none
	iommufd      bool
}

func (c card) scan(t testing.TB) *device.Snapshot {
	t.Helper()
	h := sysfstest.New(t)
	if c.group == "" {
		c.group = "12"
	}
	if c.port == "" {
		c.port = "pcieport"
	}
	port := h.AddPCI(sysfstest.PCI{Address: "0000:00:01.0", Vendor: "8086", Device: "1901", Class: "060400", Driver: c.port, IOMMUGroup: c.group})
	nodes := func(driver string, i int) []sysfstest.Node {
		if c.functions == 0 || driver != "vfio-pci" {
			return nil
		}
		return []sysfstest.Node{{Name: fmt.Sprintf("vfio/devices/vfio%d", c.functions-1+i), Subsystem: "vfio-dev"}}
	}
	h.AddPCI(sysfstest.PCI{Address: "0000:01:00.0", Below: port, Vendor: "10de", Device: "2204", Class: "030000", Driver: c.video, IOMMUGroup: c.group, Nodes: nodes(c.video, 0)})
	h.AddPCI(sysfstest.PCI{Address: "0000:01:00.1", Below: port, Vendor: "10de", Device: "1aef", Class: "040300", Driver: c.audio, IOMMUGroup: c.group, Nodes: nodes(c.audio, 1)})
	if !c.noGroups {
		name := c.group
		if c.noIOMMU {
			name = "noiommu-" + name
		}
		h.AddNode("", sysfstest.Node{Name: "vfio/" + name, Subsystem: "vfio"})
	}
	if !c.noContainer {
		h.AddNode("", sysfstest.Node{Name: "vfio/vfio", Subsystem: "misc", Major: 10, Minor: 196})
	}
	if c.iommufd {
		h.AddNode("", sysfstest.Node{Name: "iommu", Subsystem: "misc"})
	}
	return scan(t, h.Tree)
}

const (
	vfio  = "vfio-pci"
	whole = `match = { pci = { id = "10de:*" }, vfio = true }`
	bound = `match = { pci = { id = "10de:*" }, driver = "vfio-pci", vfio = true }`
)

// The node of a group has an owner, but an exclude is about each function.
func TestExcludeFunctionOfGroupByAttribute(t *testing.T) {
	t.Parallel()
	snap := card{video: vfio, audio: vfio}.scan(t)
	opts := matchers.Options{
		Allow: anything,
		Host: &fakeHost{attr: func(dir, _ string) ([]string, bool) {
			if strings.HasSuffix(dir, "/0000:01:00.1") {
				return []string{"0x1aef"}, false
			}
			return nil, false
		}},
	}
	cfg := parse(t, `match = { pci = { id = "10de:1aef" }, vfio = true }`+"\n"+`exclude.attr.device = "0x1aef"`)
	result := matchers.Match(cfg, snap, nil, opts)
	if got := sayAll(result.Resources[0].Offers); got != nil {
		t.Errorf("offers %q; want none", got)
	}
}

func TestVFIO(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		card card
		toml string
		want []string
	}{
		{"functions of a group are one device", card{video: vfio, audio: vfio}, whole, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"several matches", card{video: vfio, audio: vfio}, `match = [{ pci = { id = "10de:1aef" }, vfio = true }, { pci = { id = "10de:2204" }, vfio = true }]`,
			[]string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"with nodes of functions", card{video: vfio, audio: vfio, functions: 1, iommufd: true}, whole,
			[]string{"0000:01:00.0 /dev/vfio/12 /dev/vfio/devices/vfio0 /dev/vfio/devices/vfio1 +/dev/vfio/vfio +/dev/iommu"}},
		{"with nodes of functions alone", card{video: vfio, audio: vfio, functions: 1, iommufd: true, noGroups: true, noContainer: true}, whole,
			[]string{"0000:01:00.0 /dev/vfio/devices/vfio0 /dev/vfio/devices/vfio1 +/dev/iommu"}},
		{"a group does with iommufd", card{video: vfio, audio: vfio, iommufd: true, noContainer: true}, whole, []string{"0000:01:00.0 /dev/vfio/12 +/dev/iommu"}},
		{"nodes of functions without iommufd", card{video: vfio, audio: vfio, functions: 1, noGroups: true}, whole,
			[]string{"0000:01:00.0 /dev/vfio/devices/vfio0 /dev/vfio/devices/vfio1 !/dev/iommu is missing: is the module iommufd loaded?"}},
		{"no container", card{video: vfio, audio: vfio, noContainer: true}, whole, []string{"0000:01:00.0 /dev/vfio/12 !/dev/vfio/vfio is missing: is the module vfio loaded?"}},
		{"no iommu", card{video: vfio, noIOMMU: true}, whole, []string{"0000:01:00.0 +/dev/vfio/vfio !/dev/vfio/noiommu-12 is dangerous: it grants a device without an IOMMU, whose DMA reaches all memory (vfio noiommu-12): it requires dangerous = true in its match, and dangerous in --allow (in the chart: allow)"}},

		// Selected parts of a group.
		{"the second function alone", card{video: vfio, audio: vfio, functions: 1, iommufd: true}, `match = { pci = { id = "10de:1aef" }, vfio = true }`,
			[]string{"0000:01:00.1 /dev/vfio/12 /dev/vfio/devices/vfio1 +/dev/vfio/vfio +/dev/iommu"}},
		{"a bridge gives no ID", card{video: vfio, audio: vfio}, `match = { pci = {}, driver = "*", vfio = true }`, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"the first function is excluded", card{video: vfio, audio: vfio, functions: 1, iommufd: true}, whole + "\n" + `exclude.pci = { class = "03" }`,
			[]string{"0000:01:00.1 /dev/vfio/12 /dev/vfio/devices/vfio1 +/dev/vfio/vfio +/dev/iommu"}},
		{"nodes of functions are excluded", card{video: vfio, audio: vfio, functions: 1, iommufd: true}, whole + "\n" + `exclude.glob = "/dev/vfio/devices/*"`,
			[]string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"all is excluded", card{video: vfio, audio: vfio}, whole + "\nexclude.pci = {}", nil},
		{"beside a match of the functions", card{video: vfio, audio: vfio}, `match = [{ pci = { id = "10de:*" } }, { pci = { id = "10de:*" }, vfio = true }]`,
			[]string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"required", card{video: "nouveau", audio: "snd_hda_intel"}, `match = [{ pci = { id = "10de:*" } }, { pci = { id = "10de:*" }, vfio = true, required = true }]`, nil},

		// Other functions of the group.
		{"not viable", card{video: vfio, audio: "snd_hda_intel"}, bound,
			[]string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio !IOMMU group 12 is not viable: functions are bound to drivers of the host: 0000:01:00.1 to snd_hda_intel"}},
		{"not viable, whatever is selected", card{video: "nouveau", audio: vfio}, `match = { pci = { id = "10de:1aef" }, vfio = true }`,
			[]string{"0000:01:00.1 /dev/vfio/12 +/dev/vfio/vfio !IOMMU group 12 is not viable: functions are bound to drivers of the host: 0000:01:00.0 to nouveau"}},
		{"a bridge may have any driver", card{video: vfio, audio: vfio, port: "shpchp"}, bound, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"no driver, and pci-stub", card{video: vfio, audio: "pci-stub"}, bound, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"no driver yet: the ID is that of the first all the same", card{audio: vfio}, bound, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},
		{"a driver for certain hardware", card{video: "mlx5_vfio_pci", audio: "hisi-acc-vfio-pci"}, whole, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},

		// In the container.
		{"at paths of their own", card{video: vfio, audio: vfio}, `match = { pci = { id = "10de:*" }, vfio = true, container_path = "/dev/vfio/gpu", permissions = "rwm" }`,
			[]string{"0000:01:00.0 /dev/vfio/12>/dev/vfio/gpu:rwm +/dev/vfio/vfio:rwm"}},
		{"the container as a companion too", card{video: vfio, audio: vfio}, whole + "\n" + `with = { path = "/dev/vfio/vfio" }`, []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}},

		// By glob, a node has the ID of its function.
		{"group by glob", card{video: vfio, audio: vfio}, `match.glob = "/dev/vfio/[0-9]*"`, []string{"0000:01:00.0:vfio /dev/vfio/12"}},
		{"group by glob, by the function that is bound", card{video: "nouveau", audio: vfio}, `match.glob = "/dev/vfio/*"`,
			[]string{"0000:01:00.1:vfio /dev/vfio/12", "vfio:vfio /dev/vfio/vfio"}},
		{"group by glob, as the last function is unbound", card{}, `match.glob = "/dev/vfio/[0-9]*"`, []string{"0000:01:00.0:vfio /dev/vfio/12"}},
		{"no iommu, by glob", card{video: vfio, noIOMMU: true}, `match.glob = "/dev/vfio/noiommu-*"`, []string{"0000:01:00.0:noiommu !/dev/vfio/noiommu-12 is dangerous: it grants a device without an IOMMU, whose DMA reaches all memory (vfio noiommu-12): it requires dangerous = true in its match, and dangerous in --allow (in the chart: allow)"}},
		{"functions by glob", card{video: vfio, audio: vfio, functions: 1}, `match.glob = "/dev/vfio/devices/*"`,
			[]string{"0000:01:00.0:vfio-dev /dev/vfio/devices/vfio0", "0000:01:00.1:vfio-dev /dev/vfio/devices/vfio1"}},
		{"group by function and glob", card{video: vfio, audio: vfio}, `match = { pci = { id = "10de:2204" }, glob = "/dev/vfio/*" }`, []string{"0000:01:00.0 /dev/vfio/12"}},
		{"by function alone, the node of the group is left to vfio = true", card{video: vfio, audio: vfio, functions: 1}, `match.pci = { id = "10de:*" }`,
			[]string{"0000:01:00.0 /dev/vfio/devices/vfio0", "0000:01:00.1 /dev/vfio/devices/vfio1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			result := matchers.Match(parse(t, tc.toml+"\ncontainer.cdi = true"), tc.card.scan(t), nil, matchers.Options{Host: &fakeHost{}})
			equal(t, "offers", tc.want, sayAll(result.Resources[0].Offers))
		})
	}
}

// Many functions are a group each; a driver may have an unknown name, like that of
// virtual GPUs: a group with a node and one function belongs to that function.
func TestVFIOVirtualFunctions(t *testing.T) {
	t.Parallel()
	snap := machine(t, server)
	result := matchers.Match(parse(t, `
match = { pci = { sriov = "vf" }, vfio = true }
container.cdi = true`), snap, nil, matchers.Options{Host: &fakeHost{}})
	want := []string{"0000:3b:02.2 /dev/vfio/89 +/dev/vfio/vfio", "0000:3b:02.3 /dev/vfio/90 +/dev/vfio/vfio"}
	equal(t, "offers", want, sayAll(result.Resources[0].Offers))

	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:41:00.4", Vendor: "10de", Device: "26b9", Class: "030200", Driver: "nvidia", IOMMUGroup: "40"})
	h.AddNode("", sysfstest.Node{Name: "vfio/40", Subsystem: "vfio"})
	h.AddNode("", sysfstest.Node{Name: "vfio/vfio", Subsystem: "misc"})
	// The group of a mediated device has no function.
	h.AddNode("", sysfstest.Node{Name: "vfio/41", Subsystem: "vfio"})
	snap = scan(t, h.Tree)
	equal(t, "offers", []string{"0000:41:00.4 /dev/vfio/40 +/dev/vfio/vfio"}, sayAll(offers(t, snap, `match = { pci = {}, vfio = true }`)))
	equal(t, "by glob", []string{"0000:41:00.4:vfio /dev/vfio/40", "vfio:41 /dev/vfio/41"}, sayAll(offers(t, snap, `match.glob = "/dev/vfio/4*"`)))
}

// A group goes to the first resource that reaches it in any manner.
func TestVFIOGroupIsOfferedOnce(t *testing.T) {
	t.Parallel()
	snap := card{video: vfio, audio: vfio, functions: 1, iommufd: true}.scan(t)
	const video = `match = { pci = { id = "10de:2204" }, vfio = true }`
	const audio = `match = { pci = { id = "10de:1aef" }, vfio = true }`
	for _, tc := range []struct{ name, a, b, lost string }{
		{"by different functions", video, audio, "PCI function 0000:01:00.1 of IOMMU group 12"},
		{"by a function that is a device by itself", video, `match.pci = { id = "10de:1aef" }`, "PCI function 0000:01:00.1 of IOMMU group 12"},
		{"after a function that is a device by itself", `match.pci = { id = "10de:1aef" }`, video, "PCI function 0000:01:00.0 of IOMMU group 12"},
		{"by glob", video, `match.glob = "/dev/vfio/12"`, "/dev/vfio/12 of IOMMU group 12"},
		{"after a glob", `match.glob = "/dev/vfio/devices/vfio1"`, video, "PCI function 0000:01:00.0 of IOMMU group 12"},
		{"by two globs", `match.glob = "/dev/vfio/devices/vfio1"`, `match.glob = "/dev/vfio/devices/vfio0"`, "/dev/vfio/devices/vfio0 of IOMMU group 12"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := parse(t, "[[resource]]\nname = \"a\"\ncontainer.cdi = true\n"+tc.a+"\n[[resource]]\nname = \"b\"\ncontainer.cdi = true\n"+tc.b+"\n")
			result := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}})
			if n := len(result.Resources[0].Offers); n != 1 {
				t.Errorf("the first resource offers %q", sayAll(result.Resources[0].Offers))
			}
			if len(result.Resources[1].Offers) > 0 {
				t.Errorf("the second offers %q", sayAll(result.Resources[1].Offers))
			}
			want := []string{`test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: ` + tc.lost}
			equal(t, "notes", want, sayNotes(result.Notes))
		})
	}
}

const (
	small = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
	large = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002"
)

func TestMediatedDevices(t *testing.T) {
	t.Parallel()
	const env = "\ncontainer.env.MDEV = \"${mdev.uuid} ${mdev.type} ${mdev.name} ${mdev.iommu_group}\"\n"
	tell(t, []story{
		{name: "by type", toml: `match = { mdev = { type = "nvidia-222" }, vfio = true }` + cdi + env, want: []string{"x: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio"}},
		{name: "by uuid", toml: `match = { mdev = { uuid = "*1002" }, vfio = true }` + cdi, want: []string{"x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "below a function", toml: `match = { mdev = {}, pci = { id = "10de:*" }, vfio = true }` + cdi, want: []string{"x: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "not below that function", toml: `match = { mdev = {}, pci = { id = "15b3:*" }, vfio = true }` + cdi},
		{name: "without vfio: the device and its node", toml: `match.mdev = { type = "nvidia-222" }` + cdi, want: []string{"x: mdev:" + small + " /dev/vfio/30"}},
		{name: "excluded", toml: `match = { mdev = {}, vfio = true }` + "\nexclude.mdev = { type = \"*-222\" }" + cdi, want: []string{"x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "a function has not the nodes of its mediated devices", toml: `match.pci = { id = "10de:*" }` + cdi, want: []string{"x: 0000:41:00.0 /dev/dri/renderD128"}},
		{name: "by glob", toml: `match.glob = "/dev/vfio/3*"` + cdi, want: []string{"x: mdev:" + small + ":vfio /dev/vfio/30", "x: mdev:" + large + ":vfio /dev/vfio/31"}},
		{name: "a function and its parts", toml: `
[[resource]]
name = "card"
match.pci = { id = "10de:*" }
container.cdi = true
[[resource]]
name = "part"
match = { mdev = {}, vfio = true }
container.cdi = true
[[resource]]
name = "again"
match.glob = "/dev/vfio/30"
container.cdi = true
`, want: []string{"card: 0000:41:00.0 /dev/dri/renderD128", "part: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "part: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"},
			notes: []string{
				`test.toml: resource 3 ("again"): not offered here, because test.toml: resource 2 ("part") has it: /dev/vfio/30 of IOMMU group 30`,
			}},
		{name: "parts and the function, shared", toml: `
[[resource]]
name = "part"
shared = true
match = { mdev = { type = "nvidia-222" }, vfio = true }
container.cdi = true
[[resource]]
name = "card"
shared = true
match.pci = { id = "10de:*" }
container.cdi = true
`, want: []string{"part: shared:example.com:part:mdev:83b8f4f2-509f-38-xc871ppeb8b /dev/vfio/30 +/dev/vfio/vfio", "card: shared:example.com:card:0000:41:00.0 /dev/dri/renderD128"}},
	})
}

// A match of the functions beside one of their group, while a function is not bound: the group is the
// device, whatever the order of the matches.
func TestVFIOBesideItsFunctions(t *testing.T) {
	t.Parallel()
	const bound, whole = `{ pci = { id = "10de:*" }, vfio = true }`, `{ pci = { id = "10de:*" } }`
	for _, matches := range []string{bound + ", " + whole, whole + ", " + bound} {
		r := parse(t, "match = ["+matches+"]\ncontainer.cdi = true")
		result := matchers.Match(r, card{audio: vfio}.scan(t), nil, matchers.Options{Host: &fakeHost{}})
		want := []string{"0000:01:00.0 /dev/vfio/12 +/dev/vfio/vfio"}
		equal(t, matches, want, sayAll(result.Resources[0].Offers))
	}
}
