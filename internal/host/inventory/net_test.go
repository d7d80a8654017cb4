package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// uses are the non-empty uses of interfaces, by name.
func uses(s *device.Snapshot, attrs *inventory.Attributes) map[string]string {
	use := make(map[string]string)
	for _, n := range s.Nets {
		if why := attrs.InUse(n); why != "" {
			use[n.Path] = why
		}
	}
	return use
}

func findNet(s *device.Snapshot, name string) *device.Node {
	for _, n := range s.Nets {
		if n.Path == name {
			return n
		}
	}
	return nil
}

// nets formats the interfaces of a snapshot, one per line.
func nets(s *device.Snapshot) string {
	var b strings.Builder
	for _, n := range s.Nets {
		of := "nothing"
		if n.Hardware != nil {
			of = n.Hardware.Name
		}
		fmt.Fprintf(&b, "%s: %s %q of %s, interface %d, index %d\n", n.Path, n.Net.Type, n.Net.Driver, of, n.Interface, n.Index)
	}
	return b.String()
}

func TestNets(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	stick := h.AddUSB(sysfstest.USB{
		Port: "1-2", Vendor: "0bfd", Product: "0107", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "kvaser_usb"}, {Number: 2, Class: "ff", Driver: "cdc_ether"}},
	})
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "110a", Device: "2104", Class: "028000", Driver: "ems_pci"})
	serial := h.AddUSB(sysfstest.USB{Port: "1-3", Vendor: "0403", Product: "6001", Interfaces: []sysfstest.Interface{
		{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}},
	}})
	mac := h.AddPlatform(sysfstest.Platform{Path: "soc/fd580000.ethernet", Driver: "bcmgenet"})
	// Virtio devices are PCI functions with a child device.
	h.AddNet(h.AddPCI(sysfstest.PCI{Address: "0000:00:03.0", Vendor: "1af4", Device: "1041", Class: "020000", Driver: "virtio-pci"})+"/virtio2", sysfstest.Net{Name: "ens3"})
	h.AddNet(stick+"/1-2:1.0", sysfstest.Net{Name: "can3", Type: 280, DevPort: 1, DevID: 1})
	h.AddNet(stick+"/1-2:1.0", sysfstest.Net{Name: "can2", Type: 280})
	h.AddNet(stick+"/1-2:1.2", sysfstest.Net{Name: "enx0"})
	h.AddNet(card, sysfstest.Net{Name: "can0", Type: 280})
	h.AddNet(card, sysfstest.Net{Name: "can1", Type: 280, DevID: 1})
	h.AddNet(serial+"/1-3:1.0/ttyUSB0/tty/ttyUSB0", sysfstest.Net{Name: "slcan0", Type: 280})
	h.AddNet(mac, sysfstest.Net{Name: "end0"})
	h.AddNet("", sysfstest.Net{Name: "lo", Type: 772})
	h.AddNet("", sysfstest.Net{Name: "vcan0", Type: 280, DevPort: 4})
	h.AddNet("", sysfstest.Net{Name: "odd", Type: 4242})
	h.AddNet("devices/virtual/mac80211_hwsim/hwsim0", sysfstest.Net{Name: "mon0", Type: 803})
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	if diff := cmp.Diff(`can0: can "ems_pci" of 0000:03:00.0, interface -1, index 0
can1: can "ems_pci" of 0000:03:00.0, interface -1, index 1
can2: can "kvaser_usb" of 1-2, interface 0, index 0
can3: can "kvaser_usb" of 1-2, interface 0, index 1
end0: ether "bcmgenet" of fd580000.ethernet, interface -1, index 0
ens3: ether "" of 0000:00:03.0, interface -1, index 0
enx0: ether "cdc_ether" of 1-2, interface 2, index 0
mon0: ieee80211 "" of nothing, interface -1, index -1
odd: 4242 "" of nothing, interface -1, index -1
slcan0: can "" of 1-3, interface 0, index 0
vcan0: can "" of nothing, interface -1, index -1
`, nets(snap)); diff != "" {
		t.Error(diff)
	}
	can2 := findNet(snap, "can2")
	if can2.Kernel != "can2" || can2.Subsystem != "net" || can2.Type != device.NetInterface || can2.SysPath != stick+"/1-2:1.0/net/can2" {
		t.Errorf("can2: %+v", can2)
	}
	var names []string
	for _, n := range findHardware(snap, "1-2").Nets {
		names = append(names, n.Path)
	}
	equal(t, "result", []string{"can2", "can3", "enx0"}, names)
	if n := len(findHardware(snap, "1-2").Nodes); n != 1 {
		t.Errorf("%d nodes of the adapter; want its bus node alone", n)
	}
}

// An interface of a removed or unreadable device does not belong to the hub.
func TestNetWithoutItsDevice(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	stick := h.AddUSB(sysfstest.USB{Port: "1-2", Vendor: "1d50", Product: "606f", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "gs_usb"}}})
	h.AddNet(stick+"/1-2:1.0", sysfstest.Net{Name: "can0", Type: 280})
	must(t, os.Remove(h.Sysfs()+"/"+stick+"/idVendor"))
	snap := scan(t, h.Tree)
	if len(snap.Nets) > 0 || len(findHardware(snap, "usb1").Nets) > 0 {
		t.Errorf("interfaces: %s", nets(snap))
	}
	if got := fmt.Sprint(snap.Problems); !strings.Contains(got, `net/can0 left out, because its usb device "1-2" could not be read`) {
		t.Errorf("problems: %s", got)
	}
}

func TestNetInUse(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	for _, n := range []sysfstest.Net{
		{Name: "br0", Bridge: true}, {Name: "bond0", Bond: true}, {Name: "ovs-system"}, {Name: "veth1", Master: "br0"},
	} {
		h.AddNet("", n)
	}
	for _, n := range []sysfstest.Net{
		{Name: "eth0", Master: "br0"}, {Name: "eth1", Master: "bond0"}, {Name: "eth2", Master: "ovs-system"}, {Name: "eth3"}, {Name: "eth4"}, {Name: "eth5", Up: true}, {Name: "eth6"},
		{Name: "can0", Type: 280, Up: true},
	} {
		h.AddNet(card, n)
	}
	h.AddNet("", sysfstest.Net{Name: "eth3.7", Lower: "eth3"})
	h.AddNet("", sysfstest.Net{Name: "eth3.5", Lower: "eth3"})
	const table = "Iface Destination Gateway Flags RefCnt Use Metric Mask\n" +
		"eth4 00000000 0102A8C0 0003 0 0 100 00000000\n" + // the default route
		"eth6 00000000 00000000 0201 0 0 0 00000000\n" // a reject route
	devices := func(names string) string {
		return "Inter-| Receive\n face | bytes\n" + strings.ReplaceAll(" "+names, " ", ":   0 1\n    ")[len(":   0 1\n"):] + ": 0 0\n"
	}
	const all = "lo eth0 eth1 eth2 eth3 eth4 eth5 eth6 can0 br0"
	ipv6 := strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth5\n"
	got := func() map[string]string {
		t.Helper()
		snap, attrs := look(t, h.Tree)
		noProblems(t, snap)
		return uses(snap, attrs)
	}
	want := map[string]string{
		"br0": "a bridge", "bond0": "a bond", "veth1": "a port of bridge br0", "eth0": "a port of bridge br0", "eth1": "a member of bond0",
		"eth2": "a part of ovs-system", "eth3": "the link below eth3.5, eth3.7",
		"eth5": "up, and its addresses can't be read in the network namespace of this program",
	}
	check := func(what string) {
		t.Helper()
		equal(t, what, want, got())
	}
	check("without /proc")
	h.WriteProc("1/net/route", table)
	h.WriteProc("1/net/dev", devices("lo eth4"))
	check("another namespace")
	h.WriteProc("self/net/route", table)
	h.WriteProc("self/net/ipv6_route", ipv6)
	h.WriteProc("self/net/dev", devices(all))
	h.WriteProc("self/net/addresses", "eth6\neth3.7\n") // netlink's, in a recording
	want["eth4"], want["eth5"] = "the interface of a route", "the interface of a route"
	want["eth6"], want["eth3.7"] = "an interface with an address", "an interface with an address"
	check("our own namespace")
	h.WriteProc("1/net/dev", devices(all))
	delete(want, "eth5")
	check("the namespace of the first process")
}

// The other end of a pair is found by its number; the host ends of the pairs of pods, whose
// other ends have numbers in other namespaces, are in use.
func TestPairsInUse(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	for _, n := range []sysfstest.Net{
		{Name: "a", Index: 5, Link: 6}, {Name: "b", Index: 6, Link: 5}, // a pair
		{Name: "pod1", Index: 7, Link: 2}, {Name: "pod2", Index: 8, Link: 5}, {Name: "pod3", Index: 9, Link: 7},
		{Name: "dummy", Index: 10, Link: 10}, {Name: "tunnel", Index: 11, Link: 0},
		{Name: "vlan", Index: 12, Link: 10, Lower: "dummy"},
	} {
		h.AddNet("", n)
	}
	const pod = "one end of a pair, whose other end is in another network namespace"
	snap, attrs := look(t, h.Tree)
	equal(t, "result", map[string]string{"pod1": pod, "pod2": pod, "pod3": pod}, uses(snap, attrs))
}

// The routes of another namespace do not affect a virtual interface with the same name.
func TestDefaultRouteOfAPod(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNet("", sysfstest.Net{Name: "eth0"})
	h.WriteProc("1/net/dev", " eth0: 0\n")
	h.WriteProc("1/net/route", "eth0 00000000 0102A8C0 0003 0 0 100 00000000\n")
	snap, attrs := look(t, h.Tree)
	if got := attrs.InUse(snap.Nets[0]); got != "" {
		t.Errorf("eth0 is %q", got)
	}
}

// ip runs a command of ip(8) that makes interfaces of the host; the test is skipped if
// that is denied.
func ip(t *testing.T, args string) {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Skipf("ip %s: refused here: %v: %s", args, err, out)
	}
}

// The kernel never reuses the inode of a sysfs link, which distinguishes a device from
// its successor with the same name.
func TestInodesAreNotReused(t *testing.T) {
	t.Parallel()
	tree := sysfs.New("/sys")
	name := fmt.Sprint("gdpi", rand.IntN(100000))
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	seen := make(map[uint64]bool)
	for i := range 20 {
		ip(t, "link add "+name+" type dummy")
		inode := tree.Inode("class/net", name)
		if inode == 0 || seen[inode] {
			t.Fatalf("time %d: %d", i, inode)
		}
		seen[inode] = true
		ip(t, "link del "+name)
	}
}

// The /proc of the running host does not apply to a recorded host.
func TestRecordedHostHasItsOwnProc(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	_, s := sysfstest.Scan(t, inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	if got := s.Attributes().CharDriver(1); got != "" {
		t.Errorf("major 1 has the driver %q", got)
	}
	h.WriteProc("devices", "Character devices:\n  1 mem\n  4 /dev/vc/0\nhalf a line\n\nBlock devices:\n  1 ramdisk\n  8 sd\n")
	attrs := s.Attributes()
	for major, want := range map[uint32]string{1: "mem", 4: "/dev/vc/0", 8: "", 9: ""} {
		if got := attrs.CharDriver(major); got != want {
			t.Errorf("major %d has the driver %q; want %q", major, got, want)
		}
	}
	if _, s := sysfstest.Scan(t, inventory.Options{Dev: h.Dev()}); s.Attributes().CharDriver(1) != "mem" {
		t.Error("major 1 of this host is not mem")
	}
}

// An adapter that is still enumerating is unread. Leaving out its node and its
// interface meanwhile is no problem.
func TestEnumeratingAdapterIsUnread(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	adapter := h.AddUSB(sysfstest.USB{Port: "1-2", Vendor: "0b95", Product: "1790", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ax88179_178a"}}})
	h.AddNet(adapter+"/1-2:1.0", sysfstest.Net{Name: "eth0"})
	s := newScanner(h)
	setUp := make(chan struct{})
	s.HangUSB(adapter, setUp)
	snap, err := s.Scan(t.Context())
	close(setUp)
	must(t, err)
	noProblems(t, snap)
	if !slices.Equal(snap.UnreadHardware, []device.UnreadHardware{{Path: adapter}}) || len(snap.Nets) != 0 || findHardware(snap, "1-2") != nil {
		t.Errorf("unread %v, interfaces %v; want no interface", snap.UnreadHardware, snap.Nets)
	}
	if snap := updated(t, s, inventory.Batch{}); len(snap.Nets) != 1 || snap.Nets[0].Hardware != findHardware(snap, "1-2") || len(snap.UnreadHardware) > 0 {
		t.Errorf("set up: %+v, unread %v; want eth0 with its hardware", snap.Nets, snap.UnreadHardware)
	}
}

// A device that was read keeps its attributes, however slow another read would be. A
// device that replaces it is a different one.
func TestKnownDeviceIsNotReadAgain(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	stick := sysfstest.USB{Port: "1-2", Vendor: "10c4", Product: "ea60", Serial: "A1", Interfaces: []sysfstest.Interface{{Class: "ff", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}}}}
	dir := h.AddUSB(stick)
	want, s := sysfstest.Scan(t, inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	answer := make(chan struct{})
	s.HangUSB(dir, answer)
	for range 2 {
		snap, err := s.Scan(t.Context())
		if diff := cmp.Diff(want, snap); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	}
	h.RemoveUSB("1-2")
	stick.Serial = "B2"
	h.AddUSB(stick)
	snap, err := s.Scan(t.Context())
	close(answer)
	if err != nil || !slices.Equal(snap.UnreadHardware, []device.UnreadHardware{{Path: dir, New: true}}) || findHardware(snap, "1-2") != nil || len(snap.Problems) > 0 {
		t.Errorf("%v, unread %v, %v, problems %v; want no device in its place yet", err, snap.UnreadHardware, findHardware(snap, "1-2"), snap.Problems)
	}
	<-s.Answered()
	if h := findHardware(updated(t, s, inventory.Batch{}), "1-2"); h == nil || h.USB.Serial != "B2" {
		t.Errorf("%+v; want the new one", h)
	}
}
