package matchers_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// class is a kind of nodes below hardware, with their directories.
type class struct {
	name  string
	nodes []derived
	// attrs are attributes of devices between them, relative to the hardware.
	attrs map[string]string
	// virtual are nodes of the same kind without hardware, with their directories below
	// devices/virtual; key is their ID.
	virtual []derived
}

// derived is a node: its path below /dev, its directory below the hardware's, its
// subsystem and its expected key. {0}, {1} are kernel counters over the machine, {a},
// {b} letters of disks.
type derived struct {
	name, dir, subsystem, key string
	block                     bool
}

// The kernel's counters: in this boot, in another boot, and of other hardware present
// at the same time. Numbers keep their order and cross ten; letters are in the order in
// which disks respond.
var (
	thisBoot = strings.NewReplacer("{0}", "0", "{1}", "1", "{2}", "2", "{a}", "a", "{b}", "b", "{c}", "c")
	nextBoot = strings.NewReplacer("{0}", "8", "{1}", "9", "{2}", "10", "{a}", "aa", "{b}", "z", "{c}", "y")
	another  = strings.NewReplacer("{0}", "5", "{1}", "6", "{2}", "7", "{a}", "m", "{b}", "n", "{c}", "o")
)

func (c class) put(h *sysfstest.Host, hardware string, counters *strings.Replacer, interfaces string) {
	for i, n := range c.nodes {
		node := sysfstest.Node{
			Name: counters.Replace(n.name), Dir: counters.Replace(n.dir), Subsystem: n.subsystem, Block: n.block,
		}
		// Interfaces are named after the port.
		node.Dir = strings.ReplaceAll(node.Dir, "if:", interfaces+":")
		if i == 0 {
			node.Attrs = map[string]string{}
			for name, value := range c.attrs {
				node.Attrs[strings.ReplaceAll(counters.Replace(name), "if:", interfaces+":")] = value
			}
		}
		h.AddNode(hardware, node)
	}
}

// bus is the hardware for the test of a class.
type bus struct {
	// add adds the tested hardware to the host, or another one.
	add func(h *sysfstest.Host, c class, counters *strings.Replacer, other bool)
	// toml selects the hardware with all its nodes, given by path.
	toml func(paths []string) string
	id   string
	// own are nodes that the hardware has for any class, with keys.
	own map[string]string
}

var onPCI = bus{
	add: func(h *sysfstest.Host, c class, counters *strings.Replacer, other bool) {
		p := sysfstest.PCI{Address: "0000:05:00.0", Vendor: "1d0f", Device: "0001", Class: "ff0000", Driver: "x", IOMMUGroup: "12"}
		if other {
			p.Address, p.Device = "0000:04:00.0", "0002"
		}
		c.put(h, h.AddPCI(p), counters, "")
	},
	toml: func([]string) string { return `match.pci.id = "1d0f:0001"` },
	id:   "0000:05:00.0",
}

var onUSB = bus{
	add: func(h *sysfstest.Host, c class, counters *strings.Replacer, other bool) {
		u := sysfstest.USB{Port: "1-4", Vendor: "1d0f", Product: "0001", Serial: "A1B2C3"}
		if other {
			// A hub owns no nodes of the devices in it.
			h.AddRootHub(h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"}), 1, "480")
			h.AddUSB(sysfstest.USB{Port: "1-3", Vendor: "1d0f", Product: "0001", Serial: "HUB123", Class: "09"})
			u.Port, u.Product = "1-3.1", "0002"
		}
		for number := range 5 {
			u.Interfaces = append(u.Interfaces, sysfstest.Interface{Number: number, Class: "ff"})
		}
		c.put(h, h.AddUSB(u), counters, u.Port)
	},
	toml: func([]string) string { return `match.usb = { id = "1d0f:0001", class = "!09" }` },
	id:   "usb:1d0f:0001:A1B2C3",
	own:  map[string]string{"/dev/bus/usb/001/004": "bus"},
}

// Platform devices can be matched only by their nodes.
var onPlatform = bus{
	add: func(h *sysfstest.Host, c class, counters *strings.Replacer, other bool) {
		if !other {
			c.put(h, h.AddPlatform(sysfstest.Platform{Path: "soc/fe201000.thing", Driver: "x"}), counters, "")
		}
	},
	toml: func(paths []string) string {
		return "each = \"device\"\nmatch.glob = [\"" + strings.Join(paths, `", "`) + `"]`
	},
	id: "platform:fe201000.thing",
}

// Hardware owns all nodes below it, at any depth: a match by hardware alone offers
// exactly these nodes, their keys are the same in the next boot, and each of them has
// its hardware's ID when only a glob selects it.
func TestNodesBelowHardware(t *testing.T) {
	t.Parallel()
	for _, on := range []struct {
		name    string
		bus     bus
		classes []class
	}{{"pci", onPCI, pciClasses}, {"usb", onUSB, usbClasses}, {"platform", onPlatform, platformClasses}} {
		for _, c := range on.classes {
			t.Run(on.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				boots := map[string]*strings.Replacer{"this boot": thisBoot, "next boot": nextBoot}
				for _, name := range slices.Sorted(maps.Keys(boots)) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						checkClass(t, on.bus, c, boots[name])
					})
				}
			})
		}
	}
}

func checkClass(t *testing.T, on bus, c class, counters *strings.Replacer) {
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	on.add(h, c, another, true)
	on.add(h, c, counters, false)
	want := maps.Clone(on.own)
	if want == nil {
		want = map[string]string{}
	}
	for _, n := range c.nodes {
		want["/dev/"+counters.Replace(n.name)] = n.key
	}
	for _, n := range c.virtual {
		h.AddNode("devices/virtual", sysfstest.Node{Name: counters.Replace(n.name), Dir: counters.Replace(n.dir), Subsystem: n.subsystem, Block: n.block})
	}
	snap := scan(t, h.Tree)

	found := offers(t, snap, on.toml(slices.Sorted(maps.Keys(want))))
	if len(found) != 1 || found[0].ID != on.id {
		t.Fatalf("offers: %q; want %s", sayAll(found), on.id)
	}
	got := map[string]string{}
	for _, n := range found[0].Nodes {
		got[n.HostPath] = n.Key
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of nodes (-want +got):\n%s", diff)
	}
	for p, key := range want {
		byGlob(t, snap, p, on.id+":"+key)
	}
	for _, n := range c.virtual {
		byGlob(t, snap, "/dev/"+counters.Replace(n.name), counters.Replace(n.key))
	}
}

// byGlob checks the ID of the one node at a path.
func byGlob(t *testing.T, snap *device.Snapshot, p, id string) {
	t.Helper()
	single := offers(t, snap, `match.glob = "`+p+`"`)
	if len(single) != 1 || single[0].ID != id {
		t.Errorf("%s by glob: %q; want %s", p, sayAll(single), id)
	}
}

// The same on recorded machines.
func TestRecordedNodesBelowHardware(t *testing.T) {
	t.Parallel()
	snap := machine(t, "qemu-q35-nodes")
	const disk = "usb:46f4:0001:1-0000_00_0c.0-2-xm491bc2v7q"
	for _, tc := range []struct {
		name, toml string
		want       []string
	}{
		{"vfio", `match = { pci = { id = "8086:100e" }, vfio = true }`, []string{
			"0000:01:01.0 /dev/vfio/7 +/dev/vfio/vfio",
			"0000:02:01.0 /dev/vfio/10 +/dev/vfio/vfio !IOMMU group 10 is not viable: functions are bound to drivers of the host: 0000:02:02.0 to serial",
		}},
		{"nvme, with several paths and with one", `match.pci = { class = "0108" }`, []string{
			"0000:00:01.0 /dev/nvme0", "0000:00:02.0 /dev/nvme1", "0000:00:03.0 /dev/ng2n1 /dev/nvme2 /dev/nvme2n1",
		}},
		{"nvme by glob", `match.glob = "/dev/nvme*n1"`, []string{"0000:00:03.0:nvmen1 /dev/nvme2n1", "nvme0n1 /dev/nvme0n1"}},
		{"disks", `match.pci = { id = "8086:2922", address = "0000:00:0d.0" }`, []string{"0000:00:0d.0 /dev/bsg/2:0:0:0 /dev/bsg/4:0:0:0 /dev/sda /dev/sdb /dev/sg0 /dev/sg1"}},
		{"disks by glob, by their ports", `match.glob = "/dev/sd*"`, []string{"0000:00:0d.0:sd.1 /dev/sda", "0000:00:0d.0:sd.3 /dev/sdb", disk + ":if00:sd /dev/sdc"}},
		{"both root hubs", `match = { pci = { address = "0000:00:0c.0" }, usb = {}, glob = ["/dev/ttyUSB*", "/dev/sd*", "/dev/input/*"] }`, []string{
			"usb:0403:6001:1-0000_00_0c.0-1.3-xnq2cfcfi7n /dev/ttyUSB0",
			"usb:0627:0001:68284-0000_00_0c.0-1.1-xjln2ammq02 /dev/input/event1",
			"usb:0627:0001:89126-0000_00_0c.0-1.2-xvouf5d0o3j /dev/input/event2 /dev/input/mouse0",
			disk + " /dev/sdc",
		}},
		{"watchdog", `match.pci = { class = "0601" }`, []string{"0000:00:1f.0 /dev/watchdog /dev/watchdog0"}},
		{"graphics", `match.pci = { class = "03" }`, []string{"0000:00:05.0 /dev/dri/card0 /dev/fb0"}},
		{"virtio console", `match.pci = { id = "1af4:*" }`, []string{"0000:00:06.0 /dev/vport0p1"}},
		{"serial ports", `match.pci = { class = "0700" }`, []string{"0000:02:02.0 /dev/ttyS1 /dev/ttyS2 /dev/ttyS3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, sayAll(offers(t, snap, tc.toml))); diff != "" {
				t.Errorf("offers (-want +got):\n%s", diff)
			}
		})
	}
}

// The two root hubs of an xHCI controller, for USB 2 and for SuperSpeed, share its
// directory and number their ports from 1 each: the places of two devices without a
// serial number still differ.
func TestBothRootHubsOfOneController(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, controller string
		add              func(h *sysfstest.Host) string
	}{
		{"pci", "0000:00:14.0", func(h *sysfstest.Host) string {
			return h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
		}},
		{"platform", "fe980000.usb", func(h *sysfstest.Host) string {
			return h.AddPlatform(sysfstest.Platform{Path: "soc/fe980000.usb", Driver: "xhci-hcd"})
		}},
		// dwc3 makes a platform device for its xHCI, whose number depends on the order
		// of probing.
		{"dual-role controller on a platform", "fe900000.usb", func(h *sysfstest.Host) string {
			h.AddPlatform(sysfstest.Platform{Path: "soc/fe900000.usb", Driver: "dwc3"})
			return h.AddPlatform(sysfstest.Platform{Path: "soc/fe900000.usb/xhci-hcd.3.auto", Driver: "xhci-hcd"})
		}},
		{"dual-role controller on PCI", "0000:00:0d.1", func(h *sysfstest.Host) string {
			dir := h.AddPCI(sysfstest.PCI{Address: "0000:00:0d.1", Vendor: "8086", Device: "9a15", Class: "0c03fe", Driver: "dwc3-pci"})
			return path.Join(dir, "dwc3.4.auto/xhci-hcd.5.auto")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := sysfstest.NewHost(t, sysfstest.HostOptions{})
			controller := tc.add(h)
			// A USB 3 hub is a device at both, with its devices below the one of their
			// speed.
			for bus, speed := range map[string]string{"1": "480", "2": "5000"} {
				h.AddRootHub(controller, int(bus[0]-'0'), speed)
				h.AddUSB(sysfstest.USB{Port: bus + "-1", Vendor: "05e3", Product: "0612", Class: "09", Speed: speed})
				h.AddUSB(sysfstest.USB{Port: bus + "-1.2", Vendor: "0bda", Product: "8153", Speed: speed,
					Interfaces: []sysfstest.Interface{{Class: "ff", Nodes: []sysfstest.Node{{Name: "hidraw" + bus, Subsystem: "hidraw"}}}}})
			}
			snap := scan(t, h.Tree)
			port := "usb:0bda:8153:port:" + tc.controller
			want := []string{port + ":1.2 /dev/hidraw1", port + ":ss1.2 /dev/hidraw2"}
			if diff := cmp.Diff(want, sayAll(offers(t, snap, `match = { usb = { id = "0bda:8153" }, glob = "/dev/hidraw*" }`))); diff != "" {
				t.Errorf("offers (-want +got):\n%s", diff)
			}
			result := matchers.Match(parse(t, `match = { usb = { class = "09" }, dangerous = true }`), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: config.Allow{Dangerous: true}})
			want = []string{"usb:05e3:0612:port:" + tc.controller + ":1 /dev/bus/usb/001/002", "usb:05e3:0612:port:" + tc.controller + ":ss1 /dev/bus/usb/002/002"}
			if diff := cmp.Diff(want, sayAll(result.Resources[0].Offers)); diff != "" {
				t.Errorf("hubs (-want +got):\n%s", diff)
			}
		})
	}
}
