package matchers_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
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

// sticks4096 is a host with 4,096 nodes.
func sticks4096() *device.Snapshot { return crowd(2048) }

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
	{"literal", sticks4096, plainContainer, func(i int) string {
		return fmt.Sprintf(`glob = ["/dev/ttyUSB%05d", "/dev/ttyUSB%05d", "/dev/ttyUSB%05d"]`, 3*i, 3*i+1, 3*i+2)
	}},
	{"glob", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/ttyUSB%03d*"`, i) }},
	{"all", sticks4096, plainContainer, func(int) string { return `glob = "/dev/ttyUSB*"` }},
	{"two-wildcards", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/*USB*%03d"`, i%1000) }},
	{"deep-link", sticks4096, plainContainer, func(i int) string { return fmt.Sprintf(`glob = "/dev/**/usb-%03d*"`, i) }},
	{"capture", sticks4096, "container.env.NUMBER = \"${1}\"\n", func(i int) string { return fmt.Sprintf(`glob = "/dev/ttyUSB%03d*"`, i) }},
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
