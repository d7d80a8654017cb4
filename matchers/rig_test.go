package matchers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// rig is a host with a device of each kind that matches distinguish:
//
//	0000:00:17.0  disks sda and sdb
//	0000:3b:00.0  a network card with two interfaces and an RDMA node, on NUMA node 1
//	0000:3b:00.1  its second function, whose interface is a port of br0
//	0000:41:00.0  a graphics card with two mediated devices, on NUMA node 0
//	usb 1-1, 1-2  CAN adapters: can0, and can1 with a node
//
// and nodes and interfaces without hardware.
func rig(t testing.TB) *sysfstest.Host {
	t.Helper()
	h := sysfstest.New(t)
	zero, one := 0, 1
	disks := h.AddPCI(sysfstest.PCI{Address: "0000:00:17.0", Vendor: "8086", Device: "a352", Class: "010601", Driver: "ahci"})
	for i, name := range []string{"sda", "sdb"} {
		dir := disks + "/ata1/host0/target0:0:0/0:0:" + string(rune('0'+i)) + ":0"
		disk := sysfstest.Disk(name)
		disk.Major, disk.Minor = 8, uint32(16*i)
		h.AddNode(dir, disk)
		h.AddNode(dir, sysfstest.Node{Name: "sg" + string(rune('0'+i)), Subsystem: "scsi_generic"})
	}
	part := sysfstest.Partition("sda", "sda1")
	part.Major, part.Minor = 8, 1
	h.AddNode(disks+"/ata1/host0/target0:0:0/0:0:0:0", part)

	h.AddNet("", sysfstest.Net{Name: "br0", Bridge: true})
	h.AddNet("", sysfstest.Net{Name: "vcan0", Type: 280})
	nic := sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "15b3", Device: "1015", Class: "020000", Driver: "mlx5_core", NUMA: &one,
		Nodes: []sysfstest.Node{{Name: "infiniband/uverbs0", Subsystem: "infiniband_verbs"}}}
	dir := h.AddPCI(nic)
	h.AddNet(dir, sysfstest.Net{Name: "ens1f0"})
	h.AddNet(dir, sysfstest.Net{Name: "ens1f0p1", DevPort: 1})
	nic.Address, nic.Nodes = "0000:3b:00.1", nil
	h.AddNet(h.AddPCI(nic), sysfstest.Net{Name: "ens1f1", Master: "br0"})

	gpu := h.AddPCI(sysfstest.PCI{Address: "0000:41:00.0", Vendor: "10de", Device: "2235", Class: "030200", Driver: "nvidia", IOMMUGroup: "20", NUMA: &zero,
		Nodes: []sysfstest.Node{{Name: "dri/renderD128", Subsystem: "drm", Attrs: map[string]string{"current_compute_partition": "SPX"}}}})
	h.AddMDev(gpu, sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", Type: "nvidia-222", Name: "A40-1Q", IOMMUGroup: "30"})
	h.AddMDev(gpu, sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002", Type: "nvidia-223", Name: "A40-2Q", IOMMUGroup: "31"})
	for _, group := range []string{"30", "31"} {
		h.AddNode("", sysfstest.Node{Name: "vfio/" + group, Subsystem: "vfio"})
	}
	h.AddNode("", sysfstest.Node{Name: "vfio/vfio", Subsystem: "misc", Major: 10, Minor: 196})

	h.AddBus()
	can := sysfstest.USB{Port: "1-1", Vendor: "1d50", Product: "606f", Serial: "CAN-A-77", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "gs_usb"}}}
	h.AddNet(h.AddUSB(can)+"/1-1:1.0", sysfstest.Net{Name: "can0", Type: 280})
	can.Port, can.Serial = "1-2", "CAN-B-78"
	can.Interfaces[0].Nodes = []sysfstest.Node{{Name: "ttyACM0", Subsystem: "tty"}}
	h.AddNet(h.AddUSB(can)+"/1-2:1.0", sysfstest.Net{Name: "can1", Type: 280})

	h.AddNode("", sysfstest.Node{Name: "mem", Subsystem: "mem", Major: 1, Minor: 1})
	h.AddNode("", sysfstest.Node{Name: "null", Subsystem: "mem", Major: 1, Minor: 3})
	h.AddNode("", sysfstest.Node{Name: "fuse", Subsystem: "misc", Major: 10, Minor: 229})
	return h
}

// scanned is a host for matching: its snapshot and the data read in addition.
func scanned(t testing.TB, h *sysfstest.Host) (*device.Snapshot, matchers.Options) {
	t.Helper()
	snap, s := scanner(t, h.Tree)
	attrs, fs, never := s.Attributes(), sysfs.New(h.Sysfs()), time.Now().Add(time.Hour)
	// Read without the timeouts of inventory, which a busy machine exceeds.
	attr := func(dir, name string) (values []string, unread bool) {
		files, _ := fs.FindAttributes(dir, dir, name, never)
		for _, file := range files {
			if value, err := fs.Attribute(file.Path); err == nil {
				values = append(values, value)
			}
		}
		return values, false
	}
	glob := func(v pattern.Values) ([]string, bool) {
		return v.Glob(func(path string) string { return h.Dev() + strings.TrimPrefix(path, "/dev") }, never)
	}
	return snap, matchers.Options{NodeName: "worker-1", Host: &fakeHost{attr: attr, driver: attrs.Driver, inUse: attrs.InUse, charDriver: attrs.CharDriver, glob: glob}, Allow: config.Allow{Mounts: []string{"/opt", "/run"}, CDI: []string{"*"}},
		CDIDevices: []device.CDIDevice{
			{Name: "nvidia.com/gpu=0", Nodes: []device.CDINode{{Path: "/dev/dri/renderD128"}}},
			{Name: "nvidia.com/gpu=1"},
			{Name: "nvidia.com/gpu=all", Nodes: []device.CDINode{{Path: "/dev/dri/renderD128"}}},
		}}
}

// fakeHost is a host made of functions; nil functions return nothing.
type fakeHost struct {
	attr       func(dir, name string) (values []string, unread bool)
	driver     func(dir string) string
	charDriver func(major uint32) string
	inUse      func(*device.Node) string
	exists     func(path string) bool
	glob       func(v pattern.Values) (paths []string, complete bool)
}

func (h *fakeHost) Attr(dir, name string, _ time.Time) ([]string, bool) {
	if h.attr == nil {
		return nil, false
	}
	return h.attr(dir, name)
}

// attrValues is the attr of a host where every attribute has these values.
func attrValues(values ...string) func(dir, name string) ([]string, bool) {
	return func(string, string) ([]string, bool) { return values, false }
}

func (h *fakeHost) Driver(dir string) string {
	if h.driver == nil {
		return ""
	}
	return h.driver(dir)
}

func (h *fakeHost) CharDriver(major uint32) string {
	if h.charDriver == nil {
		return ""
	}
	return h.charDriver(major)
}

func (h *fakeHost) InUse(n *device.Node) string {
	if h.inUse == nil {
		return ""
	}
	return h.inUse(n)
}

func (h *fakeHost) Exists(path string) (exists, known bool) {
	return h.exists == nil || h.exists(path), true
}

func (h *fakeHost) Glob(v pattern.Values, _ time.Time) ([]string, bool) {
	if h.glob == nil {
		return nil, true
	}
	return h.glob(v)
}

// host is a copy of the options' host, to be changed.
func host(o *matchers.Options) *fakeHost {
	h := *o.Host.(*fakeHost)
	o.Host = &h
	return &h
}

// files is the glob of a host with files at some paths.
func files(paths ...string) func(pattern.Values) ([]string, bool) {
	return func(v pattern.Values) ([]string, bool) {
		return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !v.Match(p) }), true
	}
}

// story is a configuration with its expected result on the rig.
type story struct {
	name string
	toml string
	opts func(o *matchers.Options)
	want []string // "name: offer", without domain
	// notes, errors first by "error: "; nil if they are not compared
	notes []string
}

func (s story) match(t *testing.T, snap *device.Snapshot, opts matchers.Options) matchers.Result {
	t.Helper()
	if s.opts != nil {
		s.opts(&opts)
	}
	return matchers.Match(parse(t, s.toml), snap, nil, opts)
}

func tell(t *testing.T, stories []story) {
	t.Helper()
	snap, opts := scanned(t, rig(t))
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			result := s.match(t, snap, opts)
			var got []string
			for _, m := range result.Resources {
				for _, o := range m.Offers {
					got = append(got, m.Name[len("example.com/"):]+": "+say(o))
				}
			}
			equal(t, "offers", s.want, got)
			if s.notes == nil {
				return
			}
			equal(t, "notes", s.notes, append([]string{}, sayNotes(result.Notes)...))
		})
	}
}

// For any selection, on a host with everything: a node, an interface and an ID are
// offered once, and the result is reproducible.
func TestEverythingIsOfferedOnce(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	cfg := parse(t, `
[[resource]]
name = "one-${net.type}"
each = "node"
match.net = { type = "can" }
container.cdi = true
[[resource]]
name = "parts"
each = "mdev.type"
match = { mdev = {}, vfio = true }
container.cdi = true
[[resource]]
name = "cards"
each = "pci.slot"
match = [{ pci = { id = ["15b3:*", "10de:*"] } }, { pci = {}, net = { name = "ens*" } }]
container.cdi = true
[[resource]]
name = "drivers"
match = { driver = "*", subsystem = ["tty", "block"] }
[[resource]]
name = "foreign"
match.cdi_device = "*"
[[resource]]
name = "pool"
each = "all"
match = [{ usb = {} }, { glob = "/dev/**" }]
container.cdi = true
[[resource]]
name = "rest"
each = "device"
match = [{ pci = {} }, { usb = {} }, { net = {} }, { mdev = {} }, { glob = "/dev/**" }, { virtual = ["v"] }]
container.cdi = true
`)
	result := matchers.Match(cfg, snap, nil, opts)
	by := map[string]string{}
	once := func(what, name string) {
		if other, ok := by[what]; ok {
			t.Errorf("%s is offered by %s and %s", what, other, name)
		}
		by[what] = name
	}
	for _, m := range result.Resources {
		for _, o := range m.Offers {
			once("ID "+o.ID, m.Name)
			if !device.ValidID(o.ID) {
				t.Errorf("ID %q is not valid", o.ID)
			}
			for _, n := range o.Nodes {
				if !n.Companion {
					once(n.HostPath, m.Name)
				}
			}
			for _, n := range o.Nets {
				once("interface "+n.HostName, m.Name)
			}
			for _, name := range o.CDIDevices {
				once(name, m.Name)
			}
		}
	}
	if n := len(snap.Nodes) + len(snap.Nets); len(by) < n {
		t.Errorf("%d things are offered, of %d nodes and interfaces", len(by), n)
	}
	for range 3 {
		if diff := cmp.Diff(result, matchers.Match(cfg, snap, nil, opts), cmp.Comparer(func(a, b *config.Resource) bool { return a == b })); diff != "" {
			t.Fatalf("another answer (-first +second):\n%s", diff)
		}
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
