package matchers_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// crowd is a host with n USB devices, each a serial adapter with a bus node, a
// tty and a link.
func crowd(n int) *device.Snapshot {
	pci := &device.Hardware{Bus: device.PCIBus, Path: "devices/pci0000:00/0000:00:14.0", Name: "0000:00:14.0", NUMA: -1, PCI: &device.PCI{Address: "0000:00:14.0", Vendor: "8086"}}
	snap := &device.Snapshot{Hardware: []*device.Hardware{pci}, Dirs: []string{"/dev", "/dev/bus", "/dev/bus/usb", "/dev/bus/usb/001", "/dev/serial", "/dev/serial/by-id"}}
	for i := range n {
		h := &device.Hardware{Bus: device.USBBus, Path: fmt.Sprintf("%s/usb1/1-%05d", pci.Path, i), Name: fmt.Sprintf("1-%05d", i), NUMA: -1, Parent: pci,
			USB: &device.USB{Vendor: "0403", Product: fmt.Sprintf("%04x", 0x6000+i%64), Serial: fmt.Sprintf("S%05dX", i), Class: "00", Port: fmt.Sprintf("1-%05d", i),
				Controller: pci.Name, Chain: fmt.Sprint(i), Speed: "12", Interfaces: []device.USBInterface{{Class: "ff"}}}}
		bus := &device.Node{Path: fmt.Sprintf("/dev/bus/usb/001/%05d", i), Type: device.CharNode, Major: 189, Minor: uint32(i), Kernel: h.Name, SysPath: h.Path, Subsystem: "usb", Hardware: h, Interface: -1, Index: -1}
		tty := &device.Node{Path: fmt.Sprintf("/dev/ttyUSB%05d", i), Type: device.CharNode, Major: 188, Minor: uint32(i), Kernel: fmt.Sprintf("ttyUSB%d", i),
			SysPath: h.Path + "/tty", Subsystem: "tty", Hardware: h, Interface: 0, Index: 0}
		h.Nodes = []*device.Node{bus, tty}
		snap.Hardware = append(snap.Hardware, h)
		snap.Nodes = append(snap.Nodes, bus, tty)
		snap.Links = append(snap.Links, device.Link{Path: fmt.Sprintf("/dev/serial/by-id/usb-%05d", i), Node: tty})
	}
	slices.SortFunc(snap.Nodes, func(a, b *device.Node) int { return cmp.Compare(a.Path, b.Path) })
	return snap
}

// racks is a host with n disks that are PCI functions, with a node and a link
// each.
func racks(n int) *device.Snapshot {
	snap := &device.Snapshot{Dirs: []string{"/dev", "/dev/disk", "/dev/disk/by-path"}}
	for i := range n {
		address := fmt.Sprintf("%04x:%02x:%02x.%d", i/2048, i/8/32%256, i/8%32, i%8)
		h := &device.Hardware{Bus: device.PCIBus, Path: fmt.Sprintf("devices/pci%s:00/%s", address[:4], address), Name: address, NUMA: i % 2,
			PCI: &device.PCI{Address: address, Vendor: "144d", Device: fmt.Sprintf("%04x", 0xa800+i%64), SubVendor: "1028", SubDevice: "1fe2",
				Class: fmt.Sprintf("%02x%02x00", 1+i%16, i/16%16), Revision: "a1", Driver: "nvme", IOMMUGroup: fmt.Sprint(i), SRIOV: "none", VF: -1}}
		node := &device.Node{Path: fmt.Sprintf("/dev/nvme%05dn1", i), Type: device.BlockNode, Major: 259, Minor: uint32(i), Kernel: fmt.Sprintf("nvme%dn1", i),
			SysPath: h.Path + "/nvme", Subsystem: "block", Hardware: h, Interface: -1, Index: -1}
		h.Nodes = []*device.Node{node}
		snap.Hardware = append(snap.Hardware, h)
		snap.Nodes = append(snap.Nodes, node)
		snap.Links = append(snap.Links, device.Link{Path: "/dev/disk/by-path/pci-" + address + "-nvme-1", Node: node})
	}
	slices.SortFunc(snap.Hardware, func(a, b *device.Hardware) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(snap.Nodes, func(a, b *device.Node) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(snap.Links, func(a, b device.Link) int { return cmp.Compare(a.Path, b.Path) })
	return snap
}

const plainContainer = "container.path = \"/dev/serial/\"\ncontainer.env.SERIAL = \"${usb.serial}\"\n"

// manyResources is the text of 100 resources with five matches each.
func manyResources(each string, match func(i int) string) []byte {
	var b strings.Builder
	b.WriteString("domain = \"example.com\"\n")
	for r := range 100 {
		fmt.Fprintf(&b, "[[resource]]\nname = \"r%d\"\n%smatch = [\n", r, each)
		for m := range 5 {
			b.WriteString("{ " + match(5*r+m) + " },\n")
		}
		b.WriteString("]\n")
	}
	return []byte(b.String())
}

// sticks4096 and disks4096 are hosts with 4,096 nodes.
func sticks4096() *device.Snapshot { return crowd(2048) }
func disks4096() *device.Snapshot  { return racks(4096) }

// shapes are ways to select devices with 500 matches over 4,096 nodes.
var shapes = []struct {
	name  string
	host  func() *device.Snapshot
	each  string
	match func(i int) string
}{
	{"id", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`usb = { id = "0403:%04x" }, glob = "/dev/ttyUSB*"`, 0x6000+i%64)
	}},
	{"serial", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`usb = { serial = ["S%05dX", "S%05dX", "S%05dX"] }, glob = "/dev/ttyUSB*"`, 3*i, 3*i+1, 3*i+2)
	}},
	{"pattern", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`usb = { id = "04??:*", serial = "S%03d*" }, glob = "/dev/ttyUSB*"`, i)
	}},
	{"product", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`usb = { serial = "*%03dX" }, glob = "/dev/ttyUSB*"`, i%1000)
	}},
	{"literal", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`glob = ["/dev/ttyUSB%05d", "/dev/ttyUSB%05d", "/dev/ttyUSB%05d"]`, 3*i, 3*i+1, 3*i+2)
	}},
	{"glob", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/ttyUSB%03d*"`, i) }},
	{"all", sticks4096, plainContainer, func(int) string { return `glob = "/dev/ttyUSB*"` }},
	{"all-usb", sticks4096, plainContainer, func(int) string { return `usb = {}, glob = "/dev/ttyUSB*"` }},
	{"first-wildcard", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/*USB%03d[0-9][0-9]"`, i) }},
	{"same-wildcard", sticks4096, plainContainer, func(int) string { return `glob = "/dev/*USB[0-9]"` }},
	{"two-wildcards", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/*USB*%03d"`, i%1000) }},
	{"deep", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/**/*USB%03d??"`, i) }},
	{"link", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/serial/by-id/usb-%03d*"`, i) }},
	{"deep-link", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/**/usb-%03d*"`, i) }},
	{"link-of-usb", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`usb = { id = "0403:*" }, glob = "/dev/serial/by-id/usb-%03d*"`, i)
	}},
	{"capture", sticks4096, "container.env.NUMBER = \"${1}\"\n", func(i int) string { return fmt.Sprintf(`glob = "/dev/ttyUSB%03d*"`, i) }},
	{"pci-class", disks4096, "container.env.ADDRESS = \"${pci.address}\"\n", func(i int) string {
		return fmt.Sprintf(`pci = { class = "%02x%02x" }, glob = "/dev/nvme*"`, 1+i%16, i/16%16)
	}},
	{"pci-bus", disks4096, "container.env.ADDRESS = \"${pci.address}\"\n", func(i int) string {
		return fmt.Sprintf(`pci = { class = "%02x", address = "%04x:*.%d" }, glob = "/dev/nvme*"`, 1+i%16, i/16%2, i/32%8)
	}},
	{"subsystem", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`subsystem = "tty", usb = { serial = "S%03d*" }`, i)
	}},
	{"driver", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`driver = "ftdi_sio", usb = { id = "0403:%04x" }`, 0x6000+i%64)
	}},
	{"attr", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`attr = { "power/control" = "o*" }, glob = "/dev/ttyUSB%03d*"`, i)
	}},
	{"mixed", sticks4096, `with = [
	{ path = "/dev/fuse", optional = true },
	{ path = "/dev/ttyUSB0000*", container_path = "/dev/along/" },
	{ path = "/dev/serial", container_path = "/by/${usb.port}" },
]
exclude = [{ glob = "/dev/ttyUSB*7" }, { usb = { serial = "*99X" } }, { glob = "/dev/serial/by-id/*13" }]
container.path = "/dev/serial/${usb.serial}"
container.annotations."example.com/paths" = "${container_path}"
container.env.SERIAL = "${usb.serial}"
container.env."WHAT_${index}" = "${usb.id}@${usb.path} is ${devnode} of ${resource}"
`, func(i int) string {
		return []string{
			fmt.Sprintf(`usb = { id = "0403:%04x" }, glob = "/dev/ttyUSB*"`, 0x6000+i%64),
			fmt.Sprintf(`usb = { serial = ["S%05dX", "S%05dX"] }`, 2*i, 2*i+1),
			fmt.Sprintf(`usb = {}, glob = "/dev/serial/by-id/usb-%03d*"`, i),
			fmt.Sprintf(`usb = { id = "0403:*" }, glob = "/dev/*USB[0-9][0-9]%03d"`, i%1000),
		}[i%4]
	}},
}

// BenchmarkParseAndMatch measures a new configuration.
func BenchmarkParseAndMatch(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			snap, text := s.host(), manyResources(s.each, s.match)
			cpu := startCPU(b)
			for b.Loop() {
				cfg, err := config.Parse(config.File{Name: "test.toml", Data: text})
				if err != nil {
					b.Fatal(err)
				}
				matchers.Match(cfg, snap, nil, sysfsOptions)
			}
			cpu()
		})
	}
}

// sysfsOptions return the attributes of sysfs like a cache.
var sysfsOptions = matchers.Options{Host: &fakeHost{
	attr: func(dir, _ string) ([]string, bool) {
		if strings.HasSuffix(dir, "/tty") {
			return nil, false
		}
		return []string{"on"}, false
	},
	driver: func(string) string { return "ftdi_sio" },
}}

// BenchmarkParse measures only the parsing.
func BenchmarkParse(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			text := manyResources(s.each, s.match)
			cpu := startCPU(b)
			for b.Loop() {
				if _, err := config.Parse(config.File{Name: "test.toml", Data: text}); err != nil {
					b.Fatal(err)
				}
			}
			cpu()
		})
	}
}

// BenchmarkView measures a uevent: identities and matching, for a typical configuration
// on a large host.
func BenchmarkView(b *testing.B) {
	const few = `domain = "example.com"
[[resource]]
name = "zigbee"
match = { usb = { id = "0403:6001" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
[[resource]]
name = "stick"
match = { usb = { serial = "S0001?X" }, glob = "/dev/ttyUSB*" }
[[resource]]
name = "link"
match = { glob = "/dev/serial/by-id/usb-0002*" }
[[resource]]
name = "fuse"
match.glob = "/dev/fuse"
[[resource]]
name = "gpu"
match = { pci = { id = "8086:*", class = "03" }, glob = "/dev/dri/*" }
`
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"few", []byte(few)},
		{"many", manyResources(shapes[0].each, shapes[0].match)},
	} {
		snap := crowd(4096)
		cfg, err := config.Parse(config.File{Name: "test.toml", Data: c.text})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/identify", func(b *testing.B) {
			cpu := startCPU(b)
			_, decisions := ledger.Identify(snap, ledger.Decisions{})
			for b.Loop() {
				ledger.Identify(snap, decisions)
			}
			cpu()
		})
		b.Run(c.name+"/match", func(b *testing.B) {
			cpu := startCPU(b)
			forms, _ := ledger.Identify(snap, ledger.Decisions{})
			for b.Loop() {
				matchers.Match(cfg, snap, forms, matchers.Options{Host: &fakeHost{}})
			}
			cpu()
		})
	}
}

// startCPU measures the CPU time of the process, which is more precise than the clock
// on a busy machine. The returned function reports it.
func startCPU(b *testing.B) (report func()) {
	b.ReportAllocs()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := used()
	return func() { b.ReportMetric(float64((used()-start).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}

// BenchmarkList measures the matching of everything on a host.
func BenchmarkList(b *testing.B) {
	const (
		nodes   = "[[resource]]\nname = \"nodes\"\neach = \"node\"\nmatch.glob = \"/dev/**\"\n"
		devices = "[[resource]]\nname = \"devices\"\neach = \"device\"\nmatch = [{ usb = {} }, { pci = {} }]\n"
		every   = "[[resource]]\nname = \"everything\"\neach = \"device\"\nmatch = [{ pci = {} }, { usb = {} }, { net = {} }, { mdev = {} }, { glob = \"/dev/**\" }]\n"
	)
	crowded := crowdAndRack(4096, 1024)
	shared := functionWithNodes(4096)
	recorded := recordedMachines(b)
	for _, c := range []struct {
		name  string
		text  string
		hosts []*device.Snapshot
	}{
		{"nodes", nodes, []*device.Snapshot{crowded}},
		{"devices", devices, []*device.Snapshot{crowded}},
		{"nodes-of-one-function", nodes, []*device.Snapshot{shared}},
		{"machines-nodes", nodes, recorded},
		{"machines-everything", every, recorded},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := parse(b, c.text)
			cpu := startCPU(b)
			for b.Loop() {
				for _, snap := range c.hosts {
					matchers.Match(cfg, snap, nil, sysfsOptions)
				}
			}
			cpu()
		})
	}
}

// crowdAndRack is a host with USB devices and disks.
func crowdAndRack(devices, disks int) *device.Snapshot {
	all := crowd(devices)
	rack := racks(disks)
	all.Hardware = append(all.Hardware, rack.Hardware...)
	all.Nodes = append(all.Nodes, rack.Nodes...)
	all.Links = append(all.Links, rack.Links...)
	all.Dirs = append(all.Dirs, rack.Dirs[1:]...)
	slices.Sort(all.Dirs)
	slices.SortFunc(all.Hardware, func(a, b *device.Hardware) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(all.Nodes, func(a, b *device.Node) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(all.Links, func(a, b device.Link) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// recordedMachines are snapshots of all recorded machines.
func recordedMachines(b *testing.B) []*device.Snapshot {
	b.Helper()
	files, err := filepath.Glob("../testdata/machines/*.txtar")
	if err != nil || len(files) == 0 {
		b.Fatalf("recorded machines: %v, %v", files, err)
	}
	var all []*device.Snapshot
	for _, file := range files {
		tree := sysfstest.Load(b, file)
		snap, _ := sysfstest.Scan(b, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
		all = append(all, snap)
	}
	return all
}
