package matchers_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// The machines of testdata/machines in tests.
const (
	desktop = "desktop-xhci"
	pi      = "raspberry-pi-4"
	server  = "server-two-socket"
	nics    = "mlx5-subfunctions"
)

func machine(t testing.TB, name string) *device.Snapshot {
	t.Helper()
	return scan(t, sysfstest.Load(t, filepath.Join("..", "testdata", "machines", name+".txtar")))
}

// scan scans a host without problems.
func scan(t testing.TB, tree sysfstest.Tree) *device.Snapshot {
	t.Helper()
	snap, _ := scanner(t, tree)
	return snap
}

// scanner scans a host without problems, and also returns the scanner.
func scanner(t testing.TB, tree sysfstest.Tree) (*device.Snapshot, *inventory.Scanner) {
	t.Helper()
	snap, s := sysfstest.Scan(t, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
	for _, p := range snap.Problems {
		t.Errorf("problem: %s: %s", p.Subject, p.Reason)
	}
	return snap, s
}

// parse parses the resources of a configuration; each starts with a line
// "[[resource]]", which is optional for a single one.
func parse(t testing.TB, toml string) *config.Config {
	t.Helper()
	if !strings.Contains(toml, "[[resource]]") {
		toml = "[[resource]]\nname = \"x\"\n" + toml
	}
	cfg, err := config.Parse(config.File{Name: "test.toml", Data: []byte("domain = \"example.com\"\n" + toml)})
	if err != nil {
		t.Fatalf("%v\n%s", err, toml)
	}
	return cfg
}

// say formats an offer as one line:
//
//	ID node[>path in the container][:permissions] +companion net name[>name in the container] mount host>path cdi name !problem
func say(o device.Offer) string {
	words := []string{o.ID}
	for _, n := range o.Nodes {
		word := n.HostPath
		if n.Companion {
			word = "+" + word
		}
		if at := n.Path.String(); at != n.HostPath {
			word += ">" + at
		}
		if n.Permissions != "rw" {
			word += ":" + n.Permissions
		}
		words = append(words, word)
	}
	for _, n := range o.Nets {
		word := "net " + n.HostName
		if n.Name != n.HostName {
			word += ">" + n.Name
		}
		words = append(words, word)
	}
	for _, m := range o.Mounts {
		words = append(words, fmt.Sprintf("mount %s>%s", m.HostPath, m.ContainerPath))
	}
	for _, name := range o.CDIDevices {
		words = append(words, "cdi "+name)
	}
	if o.Problem != "" {
		words = append(words, "!"+o.Problem)
	}
	return strings.Join(words, " ")
}

func sayAll(offers []device.Offer) []string {
	var lines []string
	for _, o := range offers {
		lines = append(lines, say(o))
	}
	return lines
}

// anything grants all privileges.
var anything = config.Allow{Dangerous: true, Env: true, Mounts: []string{"/"}, CDI: []string{"*"}}

// dangerously sets dangerous in every match of a configuration.
func dangerously(cfg *config.Config) *config.Config {
	for _, r := range cfg.Resources {
		for i := range r.Match {
			r.Match[i].Dangerous = true
		}
	}
	return cfg
}

// offers returns the offers of the first resource of a configuration.
func offers(t testing.TB, snap *device.Snapshot, toml string) []device.Offer {
	t.Helper()
	return matchers.Match(dangerously(parse(t, toml)), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: anything}).Resources[0].Offers
}

func TestMatch(t *testing.T) {
	t.Parallel()
	const ftdi = "usb:0403:6001:A10K5XYZ"
	snaps := map[string]*device.Snapshot{}
	for _, name := range []string{desktop, pi, server, nics} {
		snaps[name] = machine(t, name)
	}
	for _, tc := range []struct {
		name    string
		machine string // desktop where empty
		toml    string
		want    []string
	}{
		// Globs.
		{
			name: "glob: each node, by its hardware's ID",
			toml: `match.glob = "/dev/ttyUSB*"`,
			want: []string{
				ftdi + ":if00:ttyUSB /dev/ttyUSB0",
				"usb:0403:6010:port:0000:00:14.0:2.4:if00:ttyUSB /dev/ttyUSB2",
				"usb:0403:6010:port:0000:00:14.0:2.4:if01:ttyUSB /dev/ttyUSB3",
				"usb:10c4:ea60:port:0000:00:14.0:2.3:if00:ttyUSB /dev/ttyUSB1",
			},
		},
		{name: "glob: a node without hardware", toml: `match.glob = "/dev/net/tun"`, want: []string{"net:tun /dev/net/tun"}},
		{name: "glob: a link is the node it leads to, at the node's path", toml: `match.glob = "/dev/serial/by-id/usb-FTDI_FT232R*"`, want: []string{ftdi + ":if00:ttyUSB /dev/ttyUSB0"}},
		{name: "glob: a node reached twice counts once", toml: `match.glob = ["/dev/ttyUSB0", "/dev/serial/by-path/*", "/dev/serial/by-id/*A10K5XYZ*"]`, want: []string{ftdi + ":if00:ttyUSB /dev/ttyUSB0"}},
		{name: "glob: a node reached by two matches counts once", toml: `match = [{ glob = "/dev/ttyUSB0" }, { glob = "/dev/serial/by-path/*" }]`, want: []string{ftdi + ":if00:ttyUSB /dev/ttyUSB0"}},
		{name: "glob: deep", toml: `match.glob = "/dev/**/tun"`, want: []string{"net:tun /dev/net/tun"}},
		{name: "glob: a negative pattern may name the link", toml: `match.glob = ["/dev/ttyUSB[0-2]", "!/dev/serial/by-id/*FTDI*"]`, want: []string{"usb:10c4:ea60:port:0000:00:14.0:2.3:if00:ttyUSB /dev/ttyUSB1"}},
		{name: "glob: nothing there", toml: `match.glob = "/dev/ttyACM*"`},
		{name: "glob: each device", toml: `each = "device"
match.glob = ["/dev/ttyUSB2", "/dev/ttyUSB3", "/dev/fuse"]`, want: []string{"fuse /dev/fuse", "usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2 /dev/ttyUSB3"}},
		{name: "glob: platform hardware", machine: pi, toml: `match.glob = "/dev/ttyAMA0"`, want: []string{"platform:fe201000.serial:ttyAMA0 /dev/ttyAMA0"}},

		// Hardware.
		{name: "usb with a glob", toml: `match = { usb = { id = "0403:6001" }, glob = "/dev/ttyUSB*" }`, want: []string{ftdi + " /dev/ttyUSB0"}},
		{name: "usb with a glob that selects no node of it", toml: `match = { usb = { id = "0403:6001" }, glob = "/dev/ttyACM*" }`},
		{name: "usb without a glob: all nodes, the bus node too", toml: `match.usb = { id = "0403:6001" }`, want: []string{ftdi + " /dev/bus/usb/001/003 /dev/ttyUSB0"}},
		{name: "usb, each node", toml: `each = "node"
match.usb = { id = "0403:6001" }`, want: []string{ftdi + ":bus /dev/bus/usb/001/003", ftdi + ":if00:ttyUSB /dev/ttyUSB0"}},
		{name: "usb: hexadecimal without regard to case and 0x", toml: `match = { usb = { id = "0x10C4:EA60" }, glob = "/dev/ttyUSB*" }`, want: []string{"usb:10c4:ea60:port:0000:00:14.0:2.3 /dev/ttyUSB1"}},
		{name: "usb: a serial has its case", toml: `match = { usb = { serial = "a10k5xyz" }, glob = "/dev/ttyUSB*" }`},
		{name: "usb: serial", toml: `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }`, want: []string{ftdi + " /dev/ttyUSB0"}},
		{name: "usb: an absent value satisfies ! only", toml: `match = { usb = { id = "0403:*", serial = "!*" }, glob = "/dev/ttyUSB*" }`, want: []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2 /dev/ttyUSB3"}},
		{name: "usb: path is that of the ID", toml: `match = { usb = { path = "0000:00:14.0:2.3" }, glob = "/dev/ttyUSB*" }`, want: []string{"usb:10c4:ea60:port:0000:00:14.0:2.3 /dev/ttyUSB1"}},
		{name: "usb: port", toml: `match = { usb = { port = "1-2.3" }, glob = "/dev/ttyUSB*" }`, want: []string{"usb:10c4:ea60:port:0000:00:14.0:2.3 /dev/ttyUSB1"}},
		{name: "usb: hubs are devices, root hubs are not", toml: `match.usb = { class = "09" }`, want: []string{"usb:05e3:0610:port:0000:00:14.0:2 /dev/bus/usb/001/002"}},
		{name: "usb: any", machine: pi, toml: `match = { usb = { class = "!09" }, glob = "/dev/bus/usb/**" }`, want: []string{"usb:0658:0200:port:fe980000.usb:1 /dev/bus/usb/003/002", "usb:10c4:ea60:c83e0bd33a17ec11b5a3d1a47d5ffe3d /dev/bus/usb/001/003"}},
		{name: "usb: interface of the node", toml: `match = { usb = { id = "0403:6010", interface = 1 }, glob = "/dev/ttyUSB*" }`, want: []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB3"}},
		{name: "usb: interface without a glob: its nodes, and the bus node, which has all", toml: `match.usb = { id = "0403:6010", interface = "1" }`, want: []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/bus/usb/001/005 /dev/ttyUSB3"}},
		{name: "usb: interface class of the node", toml: `match = { usb = { interface_class = "01" }, glob = "/dev/**" }`, want: []string{"usb:046d:082d:2B5D3F1F /dev/bus/usb/001/006 /dev/snd/controlC1 /dev/snd/pcmC1D0c"}},
		{name: "usb: no such interface class", toml: `match = { usb = { id = "046d:082d", interface_class = "!0e" }, glob = ["/dev/snd/*", "/dev/video*", "/dev/bus/**"] }`, want: []string{"usb:046d:082d:2B5D3F1F /dev/snd/controlC1 /dev/snd/pcmC1D0c"}},
		{name: "usb: number and class are of one interface", toml: `match = { usb = { id = "046d:082d", interface = 0, interface_class = "01" }, glob = "/dev/**" }`},
		{name: "usb below a pci function", machine: server, toml: `match = { pci = { address = "0000:00:14.0" }, usb = { class = "!09" }, glob = "/dev/hidraw*" }`, want: []string{"usb:1050:0407:port:0000:00:14.0:14.1 /dev/hidraw0"}},
		{name: "usb not below that pci function", machine: server, toml: `match = { pci = { address = "!0000:00:14.0" }, usb = {} }`},
		{name: "pci alone does not reach usb devices", machine: server, toml: `match = { pci = { address = "0000:00:14.0" }, glob = "/dev/hidraw*" }`},
		{name: "usb below no pci function", machine: pi, toml: `match = { usb = { id = "0658:0200" }, pci = {} }`},
		{name: "pci", machine: server, toml: `match = { pci = { id = "1002:*", class = "03" }, driver = "amdgpu", glob = "/dev/dri/renderD*" }`, want: []string{"0000:af:00.0 /dev/dri/renderD128", "0000:d8:00.0 /dev/dri/renderD129"}},
		{name: "pci, but no sub-functions", machine: nics, toml: `match = { pci = { id = "15b3:*" }, driver = "mlx5*" }`, want: []string{"0000:06:00.0 /dev/infiniband/uverbs0", "0000:06:00.1 /dev/infiniband/uverbs1"}},
		{name: "sub-functions", machine: nics, toml: `match.pci = { sriov = "sf", vf = 88 }` + "\n" + `exclude.pci = { pf = "enp6s0f1np1" }`, want: []string{"sf:0000:06:00.0:88 /dev/infiniband/uverbs2"}},
		{name: "no sub-functions by a negated pattern", machine: nics, toml: `match.pci = { id = "15b3:*", sriov = "!vf" }`, want: []string{"0000:06:00.0 /dev/infiniband/uverbs0", "0000:06:00.1 /dev/infiniband/uverbs1"}},
		{name: "pci without a node is a device", machine: server, toml: `match = { pci = { sriov = "vf" }, driver = "vfio-pci" }`, want: []string{"0000:3b:02.2", "0000:3b:02.3"}},
		{name: "pci without a node, each node", machine: server, toml: `each = "node"
match.pci = { sriov = "vf" }`},
		{name: "pci: pf and vf", machine: server, toml: `match.pci = { pf = "0000:3b:00.0", vf = "0,2-7" }`, want: []string{"0000:3b:02.0", "0000:3b:02.2", "0000:3b:02.3"}},
		{name: "pci: slot", machine: server, toml: `match.pci = { slot = "0000:3b:00" }`, want: []string{"0000:3b:00.0", "0000:3b:00.1"}},
		{name: "pci: subsystem", machine: server, toml: `match.pci = { subsystem_id = "1028:1fd8" }`, want: []string{"0000:18:00.0 /dev/ng0n1 /dev/nvme0 /dev/nvme0n1 /dev/nvme0n1p1"}},
		{name: "pci: class by its beginning, and patterns", machine: server, toml: `match.pci = { class = "0200", id = "8086:1?72" }`, want: []string{"0000:3b:00.0", "0000:3b:00.1"}},

		// Several matches, excludes, required.
		{name: "any match selects", toml: `match = [{ usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }, { pci = {}, driver = "i915", glob = "/dev/dri/card*" }]`, want: []string{"0000:00:02.0 /dev/dri/card0", ftdi + " /dev/ttyUSB0"}},
		{name: "the first match that selects a node says how", toml: `match = [{ usb = { id = "046d:082d" }, glob = "/dev/video0", permissions = "r" }, { usb = { id = "046d:082d" }, glob = "/dev/video*", permissions = "rwm" }]`, want: []string{"usb:046d:082d:2B5D3F1F /dev/video0:r /dev/video1:rwm"}},
		{name: "exclude nodes", toml: `match.usb = { id = "046d:082d" }
exclude = [{ glob = ["/dev/bus/**", "/dev/v4l/by-id/*-index1"] }, { usb = { interface_class = "01" }, glob = "/dev/snd/*" }]`, want: []string{"usb:046d:082d:2B5D3F1F /dev/media0 /dev/video0"}},
		{name: "a device left without nodes is none", toml: `match = { usb = { id = "0403:*" }, glob = "/dev/ttyUSB*" }
exclude.glob = "/dev/ttyUSB[23]"`, want: []string{ftdi + " /dev/ttyUSB0"}},
		{name: "matched hardware left without nodes is none", toml: `match.usb = { id = "0403:6001" }
exclude.glob = "/dev/**"`},
		{name: "exclude hardware", toml: `match = { usb = { id = "0403:*" }, glob = "/dev/ttyUSB*" }
exclude.usb = { serial = "*" }`, want: []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2 /dev/ttyUSB3"}},
		{name: "exclude hardware without nodes", machine: server, toml: `match.pci = { sriov = "vf" }
exclude = { pci = {}, driver = "iavf" }`, want: []string{"0000:3b:02.2", "0000:3b:02.3"}},
		{name: "exclude pci does not reach usb devices", toml: `match.glob = "/dev/ttyUSB0"
exclude.pci = {}`, want: []string{ftdi + ":if00:ttyUSB /dev/ttyUSB0"}},
		{name: "an exclude with a glob leaves hardware without nodes", machine: server, toml: `match.pci = { address = "0000:3b:02.2" }
exclude = { pci = {}, glob = "/dev/**" }`, want: []string{"0000:3b:02.2"}},
		{name: "required", machine: server, toml: `match = [{ pci = { class = "03" }, glob = "/dev/dri/card*" }, { pci = { class = "03" }, glob = "/dev/dri/renderD*", required = true }]`, want: []string{"0000:af:00.0 /dev/dri/card1 /dev/dri/renderD128", "0000:d8:00.0 /dev/dri/card2 /dev/dri/renderD129"}},
		{name: "required, and excluded", machine: server, toml: `match = [{ pci = { class = "03" }, glob = "/dev/dri/card*" }, { pci = { class = "03" }, glob = "/dev/dri/renderD*", required = true }]
exclude.glob = "/dev/dri/renderD129"`, want: []string{"0000:af:00.0 /dev/dri/card1 /dev/dri/renderD128"}},
		{name: "required, each node", machine: server, toml: `each = "node"
match = [{ pci = { class = "03" }, glob = "/dev/dri/card*" }, { pci = { class = "03" }, glob = "/dev/dri/renderD*", required = true }]
exclude.glob = "/dev/dri/renderD128"`, want: []string{"0000:d8:00.0:card /dev/dri/card2", "0000:d8:00.0:renderD /dev/dri/renderD129"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			snap := snaps[desktop]
			if tc.machine != "" {
				snap = snaps[tc.machine]
			}
			result := matchers.Match(dangerously(parse(t, tc.toml+"\ncontainer.cdi = true")), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: anything})
			equal(t, "offers", tc.want, sayAll(result.Resources[0].Offers))
			if len(result.Notes) > 0 {
				t.Errorf("notes: %q", sayNotes(result.Notes))
			}
		})
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	const (
		ttys  = "match = { usb = { id = \"0403:6010\" }, glob = \"/dev/ttyUSB*\" }\n"
		lack  = `test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: `
		whole = "USB device 1-2.4 (\"Dual RS232-HS\")"
	)
	resource := func(name string, lines ...string) string {
		return "[[resource]]\nname = \"" + name + "\"\n" + strings.Join(lines, "\n") + "\n"
	}
	for _, tc := range []struct {
		name  string
		a, b  string
		want  []string // of the second resource
		notes []string
	}{
		{
			name: "a device goes to the first", a: ttys, b: ttys,
			notes: []string{lack + whole},
		},
		{
			name: "what the first does not select is free", a: `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }`, b: `match.glob = "/dev/ttyUSB*"`,
			want: []string{
				"usb:0403:6010:port:0000:00:14.0:2.4:if00:ttyUSB /dev/ttyUSB2",
				"usb:0403:6010:port:0000:00:14.0:2.4:if01:ttyUSB /dev/ttyUSB3",
				"usb:10c4:ea60:port:0000:00:14.0:2.3:if00:ttyUSB /dev/ttyUSB1",
			},
			notes: []string{lack + "/dev/ttyUSB0"},
		},
		{
			name: "no node of hardware that is a device is offered, selected or not", a: ttys, b: `match.glob = ["/dev/bus/usb/001/005", "/dev/ttyUSB[23]"]`,
			notes: []string{lack + "/dev/bus/usb/001/005 and 2 more"},
		},
		{
			name: "other nodes of hardware are free where the first took single nodes", a: `match.glob = "/dev/ttyUSB2"`, b: `match.glob = "/dev/ttyUSB[23]"`,
			want:  []string{"usb:0403:6010:port:0000:00:14.0:2.4:if01:ttyUSB /dev/ttyUSB3"},
			notes: []string{lack + "/dev/ttyUSB2"},
		},
		{
			name: "hardware is no device without one of its selected nodes", a: `match.glob = "/dev/ttyUSB2"`, b: ttys,
			notes: []string{lack + whole},
		},
		{
			name: "hardware is a device if its nodes are free", a: `match.glob = "/dev/ttyUSB2"`, b: `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB3" }`,
			want: []string{"usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB3"},
		},
		{
			name: "companions don't count", a: "match.glob = \"/dev/fuse\"\nwith = { path = \"/dev/ttyUSB0\" }", b: `match.glob = "/dev/ttyUSB0"`,
			want: []string{"usb:0403:6001:A10K5XYZ:if00:ttyUSB /dev/ttyUSB0"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			result := matchers.Match(parse(t, resource("a", tc.a)+resource("b", tc.b)), snap, nil, matchers.Options{Host: &fakeHost{}})
			if len(result.Resources[0].Offers) == 0 {
				t.Error("the first resource offers nothing")
			}
			equal(t, "offers", tc.want, sayAll(result.Resources[1].Offers))
			equal(t, "notes", tc.notes, sayNotes(result.Notes))
		})
	}
}

func sayNotes(notes []matchers.Note) []string {
	var lines []string
	for _, n := range notes {
		line := n.Place + ": " + n.Text
		if n.Error {
			line = "error: " + line + " (" + n.Hint + ")"
		}
		lines = append(lines, line)
	}
	return lines
}
