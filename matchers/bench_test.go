package matchers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// crowd is a host with n USB devices, half of them serial adapters, each with
// a bus node, a tty and a link.
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
	slices.SortFunc(snap.Nodes, func(a, b *device.Node) int { return strings.Compare(a.Path, b.Path) })
	return snap
}

// manyResources is a configuration of 200 resources with ten matches each.
func manyResources(match func(i int) string) string {
	var b strings.Builder
	for r := range 200 {
		fmt.Fprintf(&b, "[[resource]]\nname = \"r%d\"\ncontainer.path = \"/dev/serial/\"\ncontainer.env.SERIAL = \"${usb.serial}\"\nmatch = [\n", r)
		for m := range 10 {
			b.WriteString("{ " + match(10*r+m) + " },\n")
		}
		b.WriteString("]\n")
	}
	return b.String()
}

// matchKinds are ways to select devices, each so that all 4096 go somewhere.
var matchKinds = []struct {
	name  string
	match func(i int) string
}{
	{"id", func(i int) string {
		return fmt.Sprintf(`usb = { id = "0403:%04x" }, glob = "/dev/ttyUSB*"`, 0x6000+i%64)
	}},
	{"serial", func(i int) string {
		return fmt.Sprintf(`usb = { serial = ["S%05dX", "S%05dX", "S%05dX"] }, glob = "/dev/ttyUSB*"`, 3*i, 3*i+1, 3*i+2)
	}},
	{"pattern", func(i int) string {
		return fmt.Sprintf(`usb = { vendor = "04??", serial = "S%03d*" }, glob = "/dev/ttyUSB*"`, i)
	}},
	{"glob", func(i int) string { return fmt.Sprintf(`glob = "/dev/ttyUSB%03d*"`, i) }},
	{"link", func(i int) string { return fmt.Sprintf(`glob = "/dev/serial/by-id/usb-%03d*"`, i) }},
}

func BenchmarkMatch(b *testing.B) {
	snap := crowd(4096)
	for _, kind := range matchKinds {
		b.Run(kind.name, func(b *testing.B) {
			cfg := parse(b, manyResources(kind.match))
			for b.Loop() {
				matchers.Match(cfg, snap, nil, matchers.Options{})
			}
		})
	}
}
