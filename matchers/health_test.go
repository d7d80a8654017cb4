package matchers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// checked matches one resource and returns its checks and the problems of its
// offers, by ID.
func checked(t *testing.T, snap *device.Snapshot, toml string) (checks map[string]device.Check, problems map[string]string) {
	t.Helper()
	m := matchers.Match(parse(t, toml), snap, nil, matchers.Options{Host: &fakeHost{}, NodeName: "worker-1", Allow: anything}).Resources[0]
	problems = map[string]string{}
	for _, o := range m.Offers {
		problems[o.ID] = o.Problem
	}
	return m.Checks, problems
}

const (
	stickID   = "usb:10c4:ea60:A1B2C3"
	stickPath = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"
)

var stickDirs = []string{
	stickPath + "/1-2:1.0/ttyUSB0/tty/ttyUSB0", stickPath + "/1-2:1.0/ttyUSB0/tty", stickPath + "/1-2:1.0/ttyUSB0", stickPath + "/1-2:1.0", stickPath,
}

// compareWant compares conditions as written.
var compareWant = cmp.Transformer("patterns", func(c device.Condition) []string { return c.Patterns() })

func TestChecks(t *testing.T) {
	t.Parallel()
	got, problems := checked(t, stick(nil), `
match = { usb.id = "10c4:ea60", glob = "/dev/ttyUSB*" }
with = { path = "/dev/ttyUSB0" }
health.open = true
health.attr = { authorized = "1", "power/runtime_status" = ["!error", "!unsupported"] }
health.tcp = "${node_name}.${usb.serial}.example.com:${usb.vendor}"
health.interval = "45s"
`)
	if problems[stickID] != `health.tcp: "worker-1.A1B2C3.example.com:10c4" has no port from 1 to 65535` || len(got) != 0 {
		t.Errorf("problems %q, checks %v", problems, got)
	}
	got, problems = checked(t, stick(nil), `
match = { usb.id = "10c4:ea60", glob = "/dev/ttyUSB*" }
with = { path = "/dev/ttyUSB0" }
health.open = true
health.attr = { authorized = "1", "power/runtime_status" = ["!error", "!unsupported"] }
health.tcp = "${node_name}.${usb.serial}.example.com:8${usb.interface}"
health.interval = "45s"
`)
	values := func(key, written string) device.Condition {
		return parse(t, "match.glob = \"/dev/x\"\nhealth.attr = { "+key+" = "+written+" }").Resources[0].Health.Attr[strings.Trim(key, `"`)]
	}
	want := map[string]device.Check{stickID: {
		Open: []string{"/dev/ttyUSB0"},
		Attrs: []device.AttrCheck{
			{Name: "authorized", Dirs: [][]string{stickDirs}, Want: values("authorized", `"1"`)},
			{Name: "power/runtime_status", Dirs: [][]string{stickDirs}, Want: values(`"power/runtime_status"`, `["!error", "!unsupported"]`)},
		},
		TCP:      "worker-1.A1B2C3.example.com:80",
		Interval: 45 * time.Second,
	}}
	if diff := cmp.Diff(want, got, compareWant); diff != "" || problems[stickID] != "" {
		t.Errorf("problems %q, checks (-want +got):\n%s", problems, diff)
	}
}

func TestNoHealthIsNoCheck(t *testing.T) {
	t.Parallel()
	if got, _ := checked(t, stick(nil), `match.usb = {}`); len(got) != 0 {
		t.Errorf("checks without health: %v", got)
	}
}

// Hardware without nodes has attributes too.
func TestChecksOfHardwareWithoutNodes(t *testing.T) {
	t.Parallel()
	snap := stick(func(h *device.Hardware) { h.Nodes = nil })
	snap.Nodes = nil
	got, _ := checked(t, snap, "match.usb.id = \"10c4:ea60\"\nhealth.attr.authorized = \"1\"")
	equal(t, "directories", [][]string{{stickPath}}, got[stickID].Attrs[0].Dirs)
	_, problems := checked(t, snap, "match.usb.id = \"10c4:ea60\"\nhealth.open = true")
	if want := "health.open: the device has no node"; problems[stickID] != want {
		t.Errorf("problem %q, want %q", problems[stickID], want)
	}
}

// A node without hardware has attributes only in its own directory; one without an
// entry in sysfs has none.
func TestChecksOfNodesWithoutHardware(t *testing.T) {
	t.Parallel()
	snap := &device.Snapshot{Dirs: []string{"/dev"}, Nodes: []*device.Node{
		{Path: "/dev/fuse", Type: device.CharNode, Major: 10, Minor: 229, Kernel: "fuse", SysPath: "devices/virtual/misc/fuse", Subsystem: "misc", Interface: -1, Index: -1},
		{Path: "/dev/hand-made", Type: device.CharNode, Major: 240, Kernel: "hand-made", Interface: -1, Index: -1},
	}}
	got, _ := checked(t, snap, "match.glob = \"/dev/*\"\nhealth.attr.uevent = \"*\"")
	for id, want := range map[string][][]string{"fuse": {{"/sys/devices/virtual/misc/fuse"}}, "hand-made": nil} {
		if diff := cmp.Diff(want, got[id].Attrs[0].Dirs); diff != "" {
			t.Errorf("directories of %s (-want +got):\n%s", id, diff)
		}
	}
}

// A watchdog is not opened, for any name and selection.
func TestWatchdogsAreNotOpened(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]device.Node{
		"of the class": {Path: "/dev/wd", Kernel: "wd", Subsystem: "watchdog", Major: 247},
		"the old node": {Path: "/dev/wd", Kernel: "wd", Subsystem: "misc", Major: 10, Minor: 130},
		"by its name":  {Path: "/dev/watchdog1", Kernel: "watchdog1", Major: 247, Minor: 1},
	} {
		n.Type, n.Interface, n.Index = device.CharNode, -1, -1
		snap := &device.Snapshot{Nodes: []*device.Node{&n}, Dirs: []string{"/dev"}}
		got, problems := checked(t, snap, "match = { glob = \"/dev/w*\", dangerous = true }\nhealth.open = true")
		want := "health.open would arm the watchdog " + n.Path + ", and the host resets if nobody feeds it: use health.attr, which does not open it"
		if id := strings.TrimPrefix(n.Path, "/dev/"); problems[id] != want || len(got) != 0 {
			t.Errorf("%s: problems %q, checks %v", name, problems, got)
		}
		if got, problems := checked(t, snap, "match = { glob = \"/dev/w*\", dangerous = true }\nhealth.attr.timeout = \"*\""); len(got) != 1 {
			t.Errorf("%s: attributes are not checked: %q", name, problems)
		}
	}
	block := &device.Node{Path: "/dev/fd", Type: device.BlockNode, Kernel: "fd", Major: 10, Minor: 130, Interface: -1, Index: -1}
	if got, problems := checked(t, &device.Snapshot{Nodes: []*device.Node{block}, Dirs: []string{"/dev"}}, "match = { glob = \"/dev/f*\", dangerous = true }\nhealth.open = true"); len(got) != 1 {
		t.Errorf("a block device with that number counts as a watchdog: %q", problems)
	}
}

// An address that cannot be completed is a problem of its device, which is not checked.
func TestCheckedAddresses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ tcp, want string }{
		{"10.0.0.5:554", ""},
		{"${kernel}:554", ""},
		{"${usb.manufacturer}:554", "health.tcp: ${usb.manufacturer} has no value for USB device 1-2"},
		{"${id}:554", `health.tcp: "usb:10c4:ea60:A1B2C3:554" is not HOST:PORT`},
		{"${devnode}:554", `health.tcp: "/dev/ttyUSB0:554" is not HOST:PORT`},
	} {
		snap := stick(nil)
		var cfg *config.Config
		if tc.tcp != "${devnode}:554" {
			cfg = parse(t, "match = { usb = {}, glob = \"/dev/ttyUSB*\" }\nhealth.tcp = \""+tc.tcp+"\"")
		} else {
			cfg = parse(t, "match = { usb = {}, glob = \"/dev/ttyUSB*\" }\nhealth.tcp = \"x:1\"")
			cfg.Resources[0].Health.TCP = device.Text{{Var: "devnode"}, {Literal: ":554"}}
		}
		m := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}}).Resources[0]
		if got := m.Offers[0].Problem; got != tc.want || len(m.Checks) == 1 != (tc.want == "") {
			t.Errorf("%s: problem %q, want %q; checks %v", tc.tcp, got, tc.want, m.Checks)
		}
	}
}

// A health check takes as much of the lists as 20 slots, so that a node has no more than 1,000 of them.
func TestManyChecks(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 2500 {
		names = append(names, fmt.Sprintf(`"d%d"`, i))
	}
	cfg := parse(t, "[[resource]]\nname = \"many\"\nmatch.virtual = ["+strings.Join(names, ",")+"]\nhealth.tcp = \"127.0.0.1:9\"\n"+
		"[[resource]]\nname = \"few\"\nmatch.virtual = [\"a\", \"b\"]\nhealth.tcp = \"127.0.0.1:9\"\n")
	result := matchers.Match(cfg, &device.Snapshot{}, nil, matchers.Options{Host: &fakeHost{}})
	many, few := result.Resources[0], result.Resources[1]
	if len(many.Checks) != len(many.Offers) || len(many.Checks) != 474 || len(few.Checks) != 2 {
		t.Errorf("%d and %d checks, want 474 and 2", len(many.Checks), len(few.Checks))
	}
	if note := result.Notes[0]; result.LeftOut != 2026 || !note.Error || !strings.Contains(note.Text, `left out: virtual device "d474" and 2025 more`) {
		t.Errorf("%d devices are left out, note %v", result.LeftOut, note)
	}
}

// The carrier is checked of the interfaces of a function, and for a virtual function of its
// physical one.
func TestLinkChecks(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	pf := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "1572", Class: "020000", TotalVFs: 8})
	h.AddNet(pf, sysfstest.Net{Name: "ens1f0"})
	h.AddPCI(sysfstest.PCI{Address: "0000:3b:02.0", Vendor: "8086", Device: "154c", Class: "020000", PF: "0000:3b:00.0", VF: 0})
	h.AddPCI(sysfstest.PCI{Address: "0000:3c:00.0", Vendor: "8086", Device: "1572", Class: "020000"})
	checks, problems := checked(t, scan(t, h.Tree), "match.pci.class = \"02\"\nhealth.link = true")
	want := map[string][]device.LinkCheck{
		"0000:3b:00.0": {{Of: "ens1f0", Dirs: []string{"/sys/" + pf + "/net/ens1f0"}}},
		"0000:3b:02.0": {{Of: "physical function 0000:3b:00.0", Dirs: []string{"/sys/" + pf + "/net/ens1f0"}}},
	}
	for id, links := range want {
		equal(t, id, links, checks[id].Links)
	}
	if got := problems["0000:3c:00.0"]; got != "health.link: the device has no network interface here" {
		t.Errorf("a function without an interface: problem %q", got)
	}
}
