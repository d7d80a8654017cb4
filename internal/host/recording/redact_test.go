package recording_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// serials of a host to remove, without white space around them.
func serials(snap *device.Snapshot) []string {
	var list []string
	for _, h := range snap.Hardware {
		if h.USB != nil && !device.PlaceholderSerial(h.USB.Serial) && h.USB.Serial != path.Base(path.Dir(h.Path)) {
			list = append(list, strings.TrimSpace(h.USB.Serial))
		}
	}
	for _, n := range snap.Nodes {
		if n.Namespace != "" {
			list = append(list, n.Namespace)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// withoutSerials removes from a snapshot what redaction may change.
func withoutSerials(snap *device.Snapshot) *device.Snapshot {
	for _, h := range snap.Hardware {
		if h.USB != nil {
			h.USB.Serial, h.USB.Manufacturer, h.USB.ProductName = "", "", ""
		}
	}
	for _, n := range snap.Nodes {
		n.Namespace = ""
	}
	// Links have names that sort differently; their targets stay.
	slices.SortFunc(snap.Links, func(a, b device.Link) int { return strings.Compare(a.Node.Path, b.Node.Path) })
	for i := range snap.Links {
		snap.Links[i].Path = ""
	}
	return snap
}

// ids by path of the hardware.
func ids(snap *device.Snapshot) map[string]string {
	list := make(map[string]string)
	for _, h := range snap.Hardware {
		list[h.Path] = device.HardwareID(h, device.Forms{}.Of(h))
	}
	return list
}

func checkRedacted(t *testing.T, o inventory.Options) {
	t.Helper()
	archive := record(t, o, recording.Options{Redact: true})
	before, after := scan(t, o), scan(t, options(unpack(t, archive)))
	secrets := serials(before)
	for _, s := range secrets {
		if !strings.Contains("REDACTED1", s) && strings.Contains(string(archive), s) {
			t.Errorf("the archive has the serial %q", s)
		}
	}
	for _, l := range after.Links {
		if strings.Contains(l.Path, "/by-id/") && !strings.Contains(l.Path, "/by-id/REDACTED-") {
			t.Errorf("link %s", l.Path)
		}
	}
	if got := serials(after); len(got) != len(secrets) {
		t.Errorf("serials %q became %q", secrets, got)
	}
	idsBefore, idsAfter := ids(before), ids(after)
	distinct := make(map[string]string)
	for p, id := range idsBefore {
		other := idsAfter[p]
		if was, known := distinct[other]; known && was != id {
			t.Errorf("%s is the ID of what was %s and %s", other, was, id)
		}
		distinct[other] = id
		if port, now := strings.Contains(id, ":port:"), strings.Contains(other, ":port:"); port != now {
			t.Errorf("%s is now %s", id, other)
		}
	}
	equal(t, "result", withoutSerials(before), withoutSerials(after))
}

func TestRedactedMachines(t *testing.T) {
	t.Parallel()
	for name, tree := range machines(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRedacted(t, options(tree))
		})
	}
}

func TestRedactedSerials(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	soc := h.AddPlatform(sysfstest.Platform{Path: "soc/fe980000.usb", Driver: "dwc2"})
	h.AddRootHub(soc, 2, "480")
	// The driver of a dual-role controller makes the controller of the bus.
	h.AddPlatform(sysfstest.Platform{Path: "soc/fe800000.usb", Driver: "dwc3"})
	h.AddRootHub(h.AddPlatform(sysfstest.Platform{Path: "soc/fe800000.usb/xhci-hcd.1.auto", Driver: "xhci-hcd"}), 3, "480")
	list := []string{
		"", "0001", "123456", "A1B2C3D4", "A1B2C3D4", "A1B2C3D", "a1b2c3d4", "00:11:22:AA:BB:CC", "001122AABBCC", "q7k", "zed", "RED", "REDACTED1", "ED1",
		" padded ", "padded", "with space and ünïcödé", "\xff\xfe\xfdraw", strings.Repeat("long", 50), strings.Repeat("long", 50) + "er", "x:y:z",
		"line\nbreak", "cp.2-1_x",
	}
	for i, serial := range list {
		tty := fmt.Sprintf("ttyUSB%d", i)
		h.AddUSB(sysfstest.USB{
			Port: fmt.Sprintf("1-%d", i+1), Vendor: "0403", Product: "6001", Serial: serial, Manufacturer: "maker", ProductName: "the one with " + serial,
			Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort(tty, 0)}}},
		})
		name := fmt.Sprintf("usb-maker_%s_%d", strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \n:\xff\xfe\xfd\uFFFD", r) {
				return '_'
			}
			return r
		}, serial), i)
		h.AddLink("serial/by-id/"+name, "../../"+tty)
		h.AddLink("hand/"+name, "../serial/by-id/"+name)
		h.AddLink("absolute/"+name, "/dev/serial/by-id/"+name)
	}
	h.AddLink("disk/by-uuid/3b1b1c1e-aaaa-bbbb-cccc-0123456789ab", "../../ttyUSB0")
	h.AddLink("disk/by-label/null", "../../ttyUSB0")
	h.AddLink("mapper/3600508b1001c1e0d9e8f7a6b5c4d3e2f", "../ttyUSB0")
	h.AddLink("serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0", "../../ttyUSB0")
	h.AddLink("serial/by-path/ip-10.0.0.1:3260-iscsi-iqn.2001-05.com.example:x-lun-0", "../../ttyUSB0")
	h.AddLink("REDACTED-1", "ttyUSB0")
	h.AddLink("REDACTED2", "ttyUSB0")
	checkRedacted(t, options(h.Tree))

	archive := string(record(t, options(h.Tree), recording.Options{Redact: true}))
	for _, want := range []string{
		"/usb1/serial --\n0000:00:14.0\n", "/usb2/serial --\nfe980000.usb\n", "/usb3/serial --\nxhci-hcd.1.auto\n", "/1-2/serial --\n0001\n", "/1-3/serial --\n123456\n",
		"/1-4/serial --\nREDACTED14\n", "/1-5/serial --\nREDACTED14\n", "/1-6/serial --\nREDACTED15\n", "/1-8/serial --\nREDACTED17\n",
		"/1-10/serial --\nREDACTED1\n", "/1-15/serial --\n REDACTED6 \n", "/1-16/serial --\nREDACTED6\n", "/1-4/product --\nthe one with REDACTED14\n",
		"dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0 -> ../../ttyUSB0",
		"dev/REDACTED-1 -> ttyUSB0", "dev/REDACTED2 -> ttyUSB0",
	} {
		if !strings.Contains(archive, want) {
			t.Errorf("the archive lacks %q", want)
		}
	}
	for _, leak := range []string{"3b1b1c1e", "0123456789ab", "3600508b", "iqn.2001", "by-label/null"} {
		if strings.Contains(archive, leak) {
			t.Errorf("the archive has %q", leak)
		}
	}
	if t.Failed() {
		t.Log(archive)
	}
}
