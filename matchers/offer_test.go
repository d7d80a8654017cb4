package matchers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// stick is a host with one USB stick behind a controller, modified by a test.
func stick(change func(h *device.Hardware)) *device.Snapshot {
	pci := &device.Hardware{Bus: device.PCIBus, Path: "devices/pci0000:00/0000:00:14.0", Name: "0000:00:14.0", NUMA: 1,
		PCI: &device.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", SRIOV: "none", VF: -1}}
	h := &device.Hardware{Bus: device.USBBus, Path: pci.Path + "/usb1/1-2", Name: "1-2", NUMA: 1, Parent: pci,
		USB: &device.USB{Vendor: "10c4", Product: "ea60", Serial: "A1B2C3", Class: "00", Port: "1-2", Controller: pci.Name, Chain: "2", Speed: "12",
			Interfaces: []device.USBInterface{{Number: 0, Class: "ff", Driver: "cp210x"}}}}
	tty := &device.Node{Path: "/dev/ttyUSB0", Type: device.CharNode, Major: 188, Minor: 0, Kernel: "ttyUSB0", SysPath: h.Path + "/1-2:1.0/ttyUSB0/tty/ttyUSB0",
		Subsystem: "tty", Hardware: h, Interface: 0, Index: 0}
	h.Nodes = []*device.Node{tty}
	if change != nil {
		change(h)
	}
	return &device.Snapshot{Hardware: []*device.Hardware{pci, h}, Nodes: []*device.Node{tty}, Dirs: []string{"/dev"}}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	got := offers(t, machine(t, server), `
count = 4
match = { pci = { class = "03" }, driver = "amdgpu", glob = "/dev/dri/renderD*" }
with = [{ path = "/dev/kfd" }, { path = "/opt/${pci.id}", container_path = "/opt/fw", optional = true }]
container.path = "/dev/gpu${index}"
container.cdi = false
container.env.GPU = "${container_path}"
container.env.NUMA = "${numa}"
container.annotations."example.com/gpus" = "${pci.address}"
`)
	node := func(host string, minor uint32) device.OfferedNode {
		return device.OfferedNode{HostPath: host, Type: device.CharNode, Major: 226, Minor: minor, Key: "renderD", Path: device.Text{{Literal: "/dev/gpu"}, {Var: "index"}}, Permissions: "rw", Follow: true}
	}
	kfd := device.OfferedNode{HostPath: "/dev/kfd", Type: device.CharNode, Major: 234, Key: "kfd", Path: device.Literal("/dev/kfd"), Permissions: "rw", Companion: true}
	entry := func(key string, value ...device.Part) []device.Entry {
		return []device.Entry{{Key: device.Literal(key), Value: value, PerDevice: true}}
	}
	env := slices.Concat(entry("GPU", device.Part{Literal: "/dev/gpu"}, device.Part{Var: "index"}), entry("NUMA", device.Part{Literal: "1"}))
	mounts := []device.Mount{{HostPath: "/opt/1002:740f", ContainerPath: "/opt/fw", ReadOnly: true, Optional: true}}
	want := []device.Offer{
		{ID: "0000:af:00.0", Slots: 4, NUMA: []int{1}, Nodes: []device.OfferedNode{node("/dev/dri/renderD128", 128), kfd}, Mounts: mounts, Env: env,
			Annotations: entry("example.com/gpus", device.Part{Literal: "0000:af:00.0"})},
		{ID: "0000:d8:00.0", Slots: 4, NUMA: []int{1}, Nodes: []device.OfferedNode{node("/dev/dri/renderD129", 129), kfd}, Mounts: mounts, Env: env,
			Annotations: entry("example.com/gpus", device.Part{Literal: "0000:d8:00.0"})},
	}
	for i := range got {
		if !strings.HasSuffix(got[i].Hardware, "/"+got[i].ID) {
			t.Errorf("hardware of %s = %q", got[i].ID, got[i].Hardware)
		}
		if !slices.Equal(got[i].Places, []string{got[i].Hardware}) {
			t.Errorf("places of %s = %q", got[i].ID, got[i].Places)
		}
		got[i].Hardware = ""
		got[i].Places = nil
		for j := range got[i].Nodes {
			if n := &got[i].Nodes[j]; n.Companion {
				n.Major = 234 // a number of a real class
				n.Minor = 0
			}
		}
	}
	equal(t, "offers", want, got)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	const tty = "usb:0403:6001:A10K5XYZ /dev/ttyUSB0"
	for _, tc := range []struct {
		name, toml string
		want       []string
	}{
		{"fixed", `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"`, []string{tty + ">/dev/zigbee"}},
		{"of the match", `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*", container_path = "/dev/other" }
container.path = "/dev/zigbee"`, []string{tty + ">/dev/other"}},
		{"directory", `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/serial/"`, []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2>/dev/serial/ttyUSB2 /dev/ttyUSB3>/dev/serial/ttyUSB3"}},
		{"variables", `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/${kernel}-${usb.interface}of${count}"`, []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2>/dev/ttyUSB2-0of${count} /dev/ttyUSB3>/dev/ttyUSB3-1of${count}"}},
		{"wildcards", `match = { usb = { id = "0403:6010" }, glob = ["/dev/tty*2", "/dev/tty[A-Z]*3"] }
container.path = "/dev/x-${1}"`, []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2>/dev/x-USB /dev/ttyUSB3>/dev/x-U"}},
		{"wildcard of a link", `match.glob = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_*-if00-port0"
container.path = "/dev/x-${1}"`, []string{"usb:0403:6001:A10K5XYZ:if00:ttyUSB /dev/ttyUSB0>/dev/x-A10K5XYZ"}},
		{"the resource has a slash", `match.glob = "/dev/fuse"
container.path = "/dev/${resource}"`, []string{"fuse /dev/fuse>/dev/example.com/x"}},

		{"two nodes of different interfaces at one path", `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/x"`, []string{`usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2>/dev/x !/dev/ttyUSB2 and /dev/ttyUSB3 would both be at /dev/x in the container: usb.interface = "0" selects only /dev/ttyUSB2, and a path that ends with "/" keeps both`}},
		{"two nodes of different names at one path", `match.usb = { id = "10c4:ea60" }
container.path = "/dev/x"`, []string{`usb:10c4:ea60:port:0000:00:14.0:2.3 /dev/bus/usb/001/004>/dev/x !/dev/bus/usb/001/004 and /dev/ttyUSB1 would both be at /dev/x in the container: glob = "/dev/ttyUSB*" selects only /dev/ttyUSB1, and a path that ends with "/" keeps both`}},
		{"two nodes of a camera at one path", `match = { usb = { id = "046d:082d" }, glob = "/dev/video*" }
container.path = "/dev/x"`, []string{`usb:046d:082d:2B5D3F1F /dev/video0>/dev/x !/dev/video0 and /dev/video1 would both be at /dev/x in the container: attr.index = "0" selects only /dev/video0, and a path that ends with "/" keeps both`}},
		{"two nodes that only links tell apart at one path", `match = { pci = { class = "0106" }, glob = "/dev/sda*" }
container.path = "/dev/x"`, []string{`0000:00:17.0 /dev/sda>/dev/x !/dev/sda and /dev/sda1 would both be at /dev/x in the container: glob = "/dev/disk/by-id/ata-Samsung_SSD_860_EVO_500GB_S3Z1NB0K123456A" selects only /dev/sda, and a path that ends with "/" keeps both`}},
		{"no value", `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB2" }
container.path = "/dev/${usb.serial}"`, []string{`usb:0403:6010:port:0000:00:14.0:2.4 !path of /dev/ttyUSB2 in the container: ${usb.serial} has no value for USB device 1-2.4 ("Dual RS232-HS")`}},
		{"a name of the environment that cannot be one", `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }
container.env."${usb.product_name}" = "x"`, []string{tty + ` !container.env: "FT232R USB UART" is not a valid environment variable name: it must consist of letters, digits and "_", and not begin with a digit`}},
		{"an annotation that cannot be one", `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }
container.annotations."x/${usb.product_name}" = "x"`, []string{tty + ` !container.annotations: "x/FT232R USB UART" is not a valid annotation key: want a key such as "example.com/name" with at most 63 characters after the domain`}},
		{"a name of the environment twice", `match.glob = "/dev/fuse"
container.env."${RESOURCE}" = "1"
container.env.EXAMPLE_COM_X = "2"`, []string{`fuse /dev/fuse !container.env: "EXAMPLE_COM_X" is set twice`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			equal(t, "offers", tc.want, sayAll(offers(t, snap, tc.toml)))
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	const serial, port = "usb:10c4:ea60:A1B2C3", "usb:10c4:ea60:port:0000:00:14.0:2"
	for _, tc := range []struct {
		identity string
		serial   string
		form     device.Form // of the ledger; empty: undecided
		want     string
	}{
		{"auto", "A1B2C3", "", serial},
		{"auto", "A1B2C3", device.PortForm, port},
		{"auto", "0001", "", port},
		{"port", "A1B2C3", device.SerialForm, port},
		{"serial", "A1B2C3", "", serial},
		{"serial", "A1B2C3", device.PortForm, port + ` !USB device 1-2 has the serial number "A1B2C3" of another device, which identity = "serial" can't distinguish from it`},
		{"serial", "", "", port + ` !USB device 1-2 has no serial number, which identity = "serial" requires`},
		{"serial", "0001", "", port + ` !USB device 1-2 has no serial number of its own, which identity = "serial" requires: many devices have "0001"`},
	} {
		t.Run(tc.identity+" "+tc.serial+" "+string(tc.form), func(t *testing.T) {
			t.Parallel()
			snap := stick(func(h *device.Hardware) { h.USB.Serial = tc.serial })
			forms := device.Forms{}
			if tc.form != "" {
				forms[snap.Hardware[1]] = tc.form
			}
			cfg := parse(t, "identity = \""+tc.identity+"\"\nmatch = { usb = {}, glob = \"/dev/ttyUSB*\" }")
			o := matchers.Match(cfg, snap, forms, matchers.Options{Host: &fakeHost{}}).Resources[0].Offers[0]
			o.Nodes = nil
			if got := say(o); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	snap := machine(t, server)
	want := []string{`0000:3b:02.2 !PCI function 0000:3b:02.2 of IOMMU group 89 has no serial number, which identity = "serial" requires`}
	equal(t, "pci", want, sayAll(offers(t, snap, "identity = \"serial\"\nmatch.pci = { address = \"0000:3b:02.2\" }")))
	want = []string{`fuse /dev/fuse !/dev/fuse has no serial number, which identity = "serial" requires`}
	equal(t, "node", want, sayAll(offers(t, snap, "identity = \"serial\"\nmatch.glob = \"/dev/fuse\"")))
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	snap := stick(nil)
	first := snap.Hardware[1]
	usb := *first.USB
	usb.Port, usb.Chain = "1-3", "3"
	second := &device.Hardware{Bus: device.USBBus, Path: "devices/pci0000:00/0000:00:14.0/usb1/1-3", Name: "1-3", NUMA: -1, Parent: first.Parent, USB: &usb}
	snap.Hardware = append(snap.Hardware, second)
	cfg := parse(t, "match.usb = {}")

	// Decided: both are offered.
	forms := device.Forms{first: device.SerialForm, second: device.PortForm}
	result := matchers.Match(cfg, snap, forms, matchers.Options{Host: &fakeHost{}})
	equal(t, "decided", []string{"usb:10c4:ea60:A1B2C3 /dev/ttyUSB0", "usb:10c4:ea60:port:0000:00:14.0:3"}, sayAll(result.Resources[0].Offers))
	// Undecided: one ID is one device.
	result = matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}})
	equal(t, "undecided", []string{"usb:10c4:ea60:A1B2C3 /dev/ttyUSB0"}, sayAll(result.Resources[0].Offers))
	if want := []string{`error: test.toml: resource 1 ("x"): left out: USB device 1-3: another device has its ID "usb:10c4:ea60:A1B2C3" ()`}; !slices.Equal(want, sayNotes(result.Notes)) {
		t.Errorf("notes = %q, want %q", sayNotes(result.Notes), want)
	}
}

func TestNUMA(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		toml string
		numa int
		want []int
	}{
		{"", 1, []int{1}},
		{"", -1, nil},
		{`numa = "none"`, 1, nil},
		{"numa = [1, 0]", -1, []int{0, 1}},
	} {
		snap := stick(func(h *device.Hardware) { h.NUMA = tc.numa })
		o := offers(t, snap, tc.toml+"\nmatch.usb = {}")[0]
		if !slices.Equal(o.NUMA, tc.want) {
			t.Errorf("%s: NUMA = %v, want %v", tc.toml, o.NUMA, tc.want)
		}
	}
}

// With identity = "name", the ID of a CDI device is only its name.
func TestIdentityOfCDIDevices(t *testing.T) {
	t.Parallel()
	const uuid, long = "GPU-9a41e0c3-52d7-4b86-8e1f-77c0d2b6f9a8", "cdi:nvidia.com:gpu:GPU-9a41e0c3-52d7-4b86-8e1-xe5h5gc4m3t"
	opts := matchers.Options{Host: &fakeHost{}, CDIDevices: []device.CDIDevice{{Name: "nvidia.com/gpu=" + uuid}}, Allow: config.Allow{CDI: []string{"nvidia.com/gpu"}}}
	for identity, want := range map[string]string{"auto": long, "name": uuid} {
		o := matchers.Match(parse(t, "identity = \""+identity+"\"\nmatch.cdi_device = \"nvidia.com/gpu=*\""), &device.Snapshot{}, nil, opts).Resources[0].Offers[0]
		if o.ID != want {
			t.Errorf("identity = %q: %q, want %q", identity, o.ID, want)
		}
	}
}

// Attributes are for claims, only with DRA: the hardware's, and the configured ones.
func TestAttributes(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	for _, tc := range []struct {
		match string
		want  map[string]string
	}{
		{`match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }`, map[string]string{
			"vendor": "0403", "product": "6001", "serial": "A10K5XYZ", "port": "0000:00:14.0:2.1", "driver": "ftdi_sio",
			"resource.kubernetes.io/pcieRoot": "pci0000:00", "kernel": "x-ttyUSB0",
		}},
		{`match = { pci = {}, driver = "i915", glob = "/dev/dri/card*" }`, map[string]string{
			"vendor": "8086", "product": "3e92", "driver": "i915", "resource.kubernetes.io/pciBusID": "0000:00:02.0",
			"resource.kubernetes.io/pcieRoot": "pci0000:00", "kernel": "x-card0",
		}},
		{`match.glob = "/dev/fuse"`, map[string]string{"kernel": "x-fuse"}},
	} {
		cfg := parse(t, "[[resource]]\nname = \"x\"\napi = \"dra\"\nattributes.kernel = \"x-${kernel}\"\n"+tc.match)
		o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}, NodeName: "worker-1"}).Resources[0].Offers[0]
		if diff := cmp.Diff(tc.want, texts(o.Attributes)); diff != "" || !o.CDI || o.Problem != "" {
			t.Errorf("%s: cdi %v, problem %q, %s", tc.match, o.CDI, o.Problem, diff)
		}
	}
	cfg := parse(t, "[[resource]]\nname = \"x\"\nmatch.glob = \"/dev/fuse\"\nattributes.a = \"b\"")
	if o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}}).Resources[0].Offers[0]; o.Attributes != nil {
		t.Errorf("a device plugin's device has attributes: %v", o.Attributes)
	}
	cfg = parse(t, "[[resource]]\nname = \"x\"\napi = \"dra\"\nmatch.glob = \"/dev/fuse\"\nattributes.a = \"${usb.serial}\"\ncontainer.annotations.\"example.com/a\" = \"b\"")
	result := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}})
	if o := result.Resources[0].Offers[0]; len(o.Attributes) > 0 || o.Problem != "" {
		t.Errorf("an attribute without a value: %v, problem %q, want a device without the attribute", o.Attributes, o.Problem)
	}
	found := false
	for _, n := range result.Notes {
		found = found || strings.Contains(n.Text, "left out are example.com/a")
	}
	if !found {
		t.Errorf("no note about annotations: %v", result.Notes)
	}
}

// texts are the values of attributes, which must all be strings.
func texts(attributes map[string]device.Typed) map[string]string {
	all := map[string]string{}
	for name, v := range attributes {
		all[name] = v.Text
		if v.Type != device.StringType {
			all[name] = "not a string"
		}
	}
	return all
}

// Typed attributes are values of their type. A device whose value is of no such type is Unhealthy,
// and keeps its other attributes.
func TestTypedAttributes(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	host(&opts).attr = attrValues("0x28\n")
	cfg := parse(t, `[[resource]]
name = "x"
api = "dra"
match.glob = "/dev/dri/*"
attributes.hex = { int = "0x${pci.vendor}" }
attributes.number = { int = "${attr:speed}" }
attributes.literal = 7
attributes.fixed = true
attributes.absent = { int = "${usb.speed}" }
attributes.word = { bool = "${attr:speed}" }
attributes.version = { version = "${kernel}" }
`)
	o := matchers.Match(cfg, snap, nil, opts).Resources[0].Offers[0]
	want := map[string]device.Typed{
		"hex":     {Type: device.IntType, Text: "4318"},
		"number":  {Type: device.IntType, Text: "40"},
		"literal": {Type: device.IntType, Text: "7"},
		"fixed":   {Type: device.BoolType, Text: "true"},
	}
	for name := range o.Attributes {
		if _, configured := want[name]; !configured && o.Attributes[name].Type == device.StringType {
			delete(o.Attributes, name) // an attribute of the hardware
		}
	}
	equal(t, "attributes", want, o.Attributes)
	if !o.Mistyped {
		t.Error("the device does not count as mistyped")
	}
	for _, reason := range []string{`attributes.version: "renderD128" is not a version: `, `attributes.word: "0x28" is not a bool: `} {
		if !strings.Contains(o.Problem, reason) {
			t.Errorf("problem %q, want %q", o.Problem, reason)
		}
	}
}

// Many nodes at one path are one problem of one sentence.
func TestManyNodesAtOnePath(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	card := sysfstest.PCI{Address: "0000:03:00.0", Vendor: "1131", Device: "7160", Class: "048000"}
	for i := range 20 {
		card.Nodes = append(card.Nodes, sysfstest.Node{Name: fmt.Sprintf("dvb/adapter%d/frontend0", i), Subsystem: "dvb", Dir: fmt.Sprintf("dvb/dvb%d.frontend0", i)})
	}
	h.AddPCI(card)
	got := offers(t, scan(t, h.Tree), "match.pci.id = \"1131:*\"\ncontainer.path = \"/dev/dvb/adapter0/frontend0\"")
	if len(got) != 1 {
		t.Fatalf("%d offers", len(got))
	}
	why := got[0].Problem
	if !strings.Contains(why, "would both be at") || strings.Contains(why, ";") {
		t.Errorf("problem %q", why)
	}
}
