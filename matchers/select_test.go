package matchers_test

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

func TestCDIDevices(t *testing.T) {
	t.Parallel()
	tell(t, []story{
		{name: "wildcards never mean all", toml: `match.cdi_device = "nvidia.com/gpu=*"`, want: []string{"x: cdi:nvidia.com:gpu:0 cdi nvidia.com/gpu=0", "x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1"}, notes: []string{}},
		{name: "all by its name", toml: `match.cdi_device = ["nvidia.com/gpu=all", "nvidia.com/gpu=1"]`, want: []string{"x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1", "x: cdi:nvidia.com:gpu:all cdi nvidia.com/gpu=all"}},
		{name: "without one", toml: `match.cdi_device = ["nvidia.com/gpu=*", "!nvidia.com/gpu=0"]`, want: []string{"x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1"}},
		{name: "without hardware of a kind", toml: `match.cdi_device = ["nvidia.com/gpu=*", "nvidia.com/gpu=all"]` + "\nexclude.pci.id = \"10de:2235\"", want: []string{"x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1"}},
		{name: "without a node", toml: `match.cdi_device = "nvidia.com/gpu=*"` + "\nexclude.glob = \"/dev/dri/*\"", want: []string{"x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1"}},
		{name: "none there", toml: `match.cdi_device = "nvidia.com/gpu=*"`, opts: func(o *matchers.Options) { o.CDIDevices = nil }},
		{name: "variables", toml: "match.cdi_device = \"nvidia.com/gpu=0\"\nwith = { path = \"/opt/${cdi.kind}/${cdi.device}\", container_path = \"/opt/${cdi.name}\" }",
			want: []string{"x: cdi:nvidia.com:gpu:0 mount /opt/nvidia.com/gpu/0>/opt/nvidia.com/gpu=0 cdi nvidia.com/gpu=0"}},
		{name: "what its nodes belong to", toml: "match.cdi_device = \"nvidia.com/gpu=*\"\nwith = { path = \"/opt/${pci.device}-${numa}\" }", want: []string{
			"x: cdi:nvidia.com:gpu:0 mount /opt/2235-0>/opt/2235-0 cdi nvidia.com/gpu=0",
			"x: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1 !path of a mount: ${pci.device} has no value for CDI device nvidia.com/gpu=1",
		}},
		{name: "a device goes to the first", toml: `
[[resource]]
name = "a"
match.cdi_device = "nvidia.com/gpu=1"
[[resource]]
name = "b"
match.cdi_device = "nvidia.com/gpu=*"`, want: []string{"a: cdi:nvidia.com:gpu:1 cdi nvidia.com/gpu=1", "b: cdi:nvidia.com:gpu:0 cdi nvidia.com/gpu=0"},
			notes: []string{`test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: CDI device nvidia.com/gpu=1`}},
	})
}

func TestVirtual(t *testing.T) {
	t.Parallel()
	tell(t, []story{
		{name: "names", toml: "match.virtual = [\"lic-0\", \"lic-1\"]\nwhen.node_name = \"*\"", want: []string{"x: virtual:example.com:x:lic-0", "x: virtual:example.com:x:lic-1"}, notes: []string{}},
		{name: "variables", toml: "match.virtual = [{ name = \"door\", vars = { host = \"10.0.0.5\" } }, { name = \"gate\", vars = { host = \"10.0.0.6\", opt = \"x\" } }]\nwhen.node_name = \"*\"\nwith = { path = \"/opt/${virtual}/${var:host}/${var:opt}\" }",
			want: []string{
				`x: virtual:example.com:x:door !path of a mount: ${var:opt} has no value for virtual device "door"`,
				"x: virtual:example.com:x:gate mount /opt/gate/10.0.0.6/x>/opt/gate/10.0.0.6/x",
			}},
		{name: "names with variables", toml: named("cam-${virtual}", "match.virtual = [\"a\", \"b\"]", "when.node_name = \"*\""), want: []string{"cam-a: virtual:example.com:cam-a:a", "cam-b: virtual:example.com:cam-b:b"}},
		{name: "beside hardware", toml: "each = \"device\"\nwhen.node_name = \"*\"\nmatch = [{ virtual = [\"a\"] }, { usb = { serial = \"CAN-A*\" } }]" + cdi + "container.env.A = \"${id}\"",
			want: []string{"x: " + canA + " /dev/bus/usb/001/002", "x: virtual:example.com:x:a"}},
	})
	snap, opts := scanned(t, rig(t))
	m := matchers.Match(parse(t, "match.virtual = [{ name = \"door\", vars = { host = \"cam.example.com\" } }]\nhealth.tcp = \"${var:host}:554\"\nnuma = [1]"), snap, nil, opts).Resources[0]
	if check := m.Checks["virtual:example.com:x:door"]; check.TCP != "cam.example.com:554" || !slices.Equal(m.Offers[0].NUMA, []int{1}) {
		t.Errorf("check %+v, NUMA nodes %v", check, m.Offers[0].NUMA)
	}
}

func TestMountedPaths(t *testing.T) {
	t.Parallel()
	glob := func(o *matchers.Options) { host(o).glob = files("/run/b.sock", "/run/a.sock") }
	const sockets = `match = { glob = "/run/*.sock" }`
	tell(t, []story{
		{name: "each is a device", toml: sockets, opts: glob, want: []string{"x: path:run:a.sock mount /run/a.sock>/run/a.sock", "x: path:run:b.sock mount /run/b.sock>/run/b.sock"}, notes: []string{}},
		{name: "negative patterns, and one reached twice", toml: `match = { glob = ["/run/a.sock", "/run/*.sock", "!/run/b*"] }`, opts: glob, want: []string{"x: path:run:a.sock mount /run/a.sock>/run/a.sock"}},
		{name: "hidden", toml: `match = { glob = ["/run/*", "/run/?a.tmp", "/run/[.]*", "/run/.b*", "/run/{.c,d}", "/opt/**"] }`, opts: func(o *matchers.Options) {
			host(o).glob = files("/run/.a.tmp", "/run/.b.tmp", "/run/.c", "/run/d", "/run/.d", "/opt/.x")
			o.Allow.Mounts = []string{"/run", "/opt"}
		}, want: []string{"x: path:run-.b.tmp-xjrrval1ih4 mount /run/.b.tmp>/run/.b.tmp", "x: path:run-.c-x6eo4f3jgh9 mount /run/.c>/run/.c", "x: path:run:d mount /run/d>/run/d"}},
		{name: "where it goes", toml: sockets + "\ncontainer.path = \"/sockets/x-${1}\"\ncontainer.env.AT = \"${container_path}\"", opts: glob,
			want: []string{"x: path:run:a.sock mount /run/a.sock>/sockets/x-a", "x: path:run:b.sock mount /run/b.sock>/sockets/x-b"}},
		{name: "excluded", toml: sockets + "\nexclude.glob = \"/run/b*\"", opts: glob, want: []string{"x: path:run:a.sock mount /run/a.sock>/run/a.sock"}},
		{name: "companions below dev", toml: `match.virtual = "d"` + "\nwith = [{ path = \"/dev/log\" }, { path = \"/dev/infiniband\" }]", want: []string{
			`x: virtual:example.com:x:d !mount /dev/log requires mount:/dev/log or a directory above it in --allow (in the chart: allow); companion /dev/infiniband is a directory: path = "/dev/infiniband/*" selects the nodes in it, and mounting it requires mount:/dev/infiniband in --allow (in the chart: allow)`}},
		{name: "not allowed", toml: sockets, opts: func(o *matchers.Options) { glob(o); o.Allow = config.Allow{Mounts: []string{"/run/a.sock"}} }, want: []string{
			"x: path:run:a.sock mount /run/a.sock>/run/a.sock", "x: path:run:b.sock !mount /run/b.sock requires mount:/run/b.sock or a directory above it in --allow (in the chart: allow)"}},
		{name: "a path goes to the first", toml: "[[resource]]\nname = \"a\"\n" + `match = { glob = "/run/a*" }` + "\n[[resource]]\nname = \"b\"\n" + sockets, opts: glob,
			want:  []string{"a: path:run:a.sock mount /run/a.sock>/run/a.sock", "b: path:run:b.sock mount /run/b.sock>/run/b.sock"},
			notes: []string{`test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: /run/a.sock`}},
		{name: "variables lead nowhere else", toml: "match = { usb = { serial = \"CAN-B*\" }, glob = \"/dev/ttyACM*\" }\nwith = [{ path = \"/${usb.vendor}/fw\", container_path = \"/fw\" }]",
			want: []string{"x: " + canB + " /dev/ttyACM0 !mount /1d50/fw requires mount:/1d50/fw or a directory above it in --allow (in the chart: allow)"}},
	})
	snap, opts := scanned(t, rig(t))
	glob(&opts)
	for toml, want := range map[string]bool{sockets: true, `match = { glob = "/run/*.sock", permissions = "rw" }`: false} {
		if m := matchers.Match(parse(t, toml), snap, nil, opts).Resources[0].Offers[0].Mounts[0]; m.ReadOnly != want || m.Optional {
			t.Errorf("%s: %+v", toml, m)
		}
	}
}

// Edits that require CDI, and a node without a link.
func TestContainerEdits(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	gid, mode := uint32(44), uint32(0o660)
	o := matchers.Match(parse(t, `
match = { usb = { serial = "CAN-B*" }, glob = "/dev/ttyACM*" }
container.cdi = true
container.owner = { gid = 44, mode = "0660" }
container.hooks = [{ hook_name = "createContainer", path = "/opt/hook", args = ["hook", "x"] }]
`), snap, nil, opts).Resources[0].Offers[0]
	want := device.Offer{
		ID: canB, Slots: 1, Hardware: o.Hardware, CDI: true,
		Places: []string{o.Hardware, "usb:1d50:606f:CAN-B-78"},
		Names:  []string{"usb:1d50:606f:CAN-B-78"},
		Nodes:  []device.OfferedNode{{HostPath: "/dev/ttyACM0", Type: device.CharNode, Major: 240, Minor: o.Nodes[0].Minor, Key: "if00:ttyACM", Path: device.Literal("/dev/ttyACM0"), Permissions: "rw", Follow: true}},
		Owner:  &device.Owner{GID: &gid, Mode: &mode},
		Hooks:  []device.Hook{{Name: "createContainer", Path: "/opt/hook", Args: []string{"hook", "x"}}},
	}
	equal(t, "offer", want, o)
}
