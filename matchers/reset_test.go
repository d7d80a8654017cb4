package matchers_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// A device has the reset of its resource, unless the reset would affect anything else.
func TestReset(t *testing.T) {
	t.Parallel()
	h := rig(t)
	hub := sysfstest.USB{Port: "1-3", Vendor: "05e3", Product: "0610", Class: "09"}
	h.AddUSB(hub)
	serial := sysfstest.USB{Port: "1-3.1", Vendor: "10c4", Product: "ea60", Serial: "A1", Interfaces: []sysfstest.Interface{
		{Number: 0, Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}},
		{Number: 1, Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB1", 1)}},
	}}
	h.AddUSB(serial)
	h.AddUSB(sysfstest.USB{Port: "1-4", Vendor: "0781", Product: "5581", Interfaces: []sysfstest.Interface{
		{Class: "08", Driver: "usb-storage", Nodes: []sysfstest.Node{sysfstest.Disk("sdc")}},
	}})
	h.AddUSB(sysfstest.USB{Port: "1-5", Vendor: "046d", Product: "c31c", Interfaces: []sysfstest.Interface{
		{Class: "03", Driver: "usbhid", Nodes: []sysfstest.Node{{Name: "input/mouse0", Subsystem: "input"}}},
		{Number: 1, Class: "ff", Nodes: []sysfstest.Node{{Name: "ttyACM7", Subsystem: "tty"}}},
	}})
	pf := h.AddPCI(sysfstest.PCI{Address: "0000:5e:00.0", Vendor: "8086", Device: "1572", Class: "120000", TotalVFs: 8,
		Nodes: []sysfstest.Node{{Name: "pf0", Subsystem: "accel"}}})
	h.AddPCI(sysfstest.PCI{Address: "0000:5e:02.0", Vendor: "8086", Device: "154c", Class: "120000", PF: "0000:5e:00.0",
		Nodes: []sysfstest.Node{{Name: "vf0", Subsystem: "accel"}}})
	h.AddSubFunction(pf, sysfstest.SubFunction{Name: "mlx5_core.sf.4", Number: 4, Nodes: []sysfstest.Node{{Name: "sf4", Subsystem: "accel"}}})
	snap, opts := scanned(t, h)
	const usb = "\ncontainer.reset = \"usb\""
	const pci = "\ncontainer.reset = \"pci\""
	for toml, want := range map[string]string{
		`match = { usb.id = "10c4:ea60", glob = "/dev/ttyUSB*" }` + usb:     "",
		`match.pci.address = "0000:5e:02.0"` + pci:                          "",
		`match = { usb.id = "1d50:606f", glob = "/dev/ttyACM0" }` + usb:     "",
		`match.usb.id = "05e3:0610"` + usb:                                  "it is a hub",
		`match.pci.address = "0000:00:14.0"` + pci:                          "a reset also affects USB device usb1",
		`match.pci.address = "0000:41:00.0"` + pci:                          "a reset also affects mediated device",
		`match = { pci.address = "0000:5e:00.0", glob = "/dev/pf0" }` + pci: "a reset also affects",
		`match.pci.sriov = "sf"` + pci:                                      "it is a part of a PCI function",
		`match = { pci.address = "0000:00:17.0", dangerous = true }` + pci:  "it has the block device /dev/sda",
		`match = { usb.id = "0781:5581", dangerous = true }` + usb:          "it has the block device /dev/sdc",
		`match = { usb.id = "046d:c31c", glob = "/dev/ttyACM7" }` + usb:     "it has the dangerous node /dev/",
	} {
		o := resetOf(t, snap, opts, toml)
		if want == "" && o.Problem != "" {
			t.Errorf("%s: problem %q", toml, o.Problem)
		}
		if !strings.Contains(o.Problem, want) || o.Reset == "" {
			t.Errorf("%s: reset %q, problem %q; want %q", toml, o.Reset, o.Problem, want)
		}
	}
}

// resetOf is the offer of the last resource of a configuration.
func resetOf(t *testing.T, snap *device.Snapshot, opts matchers.Options, toml string) device.Offer {
	t.Helper()
	opts.Allow.Dangerous = true
	resources := matchers.Match(parse(t, toml), snap, nil, opts).Resources
	last := resources[len(resources)-1]
	if len(last.Offers) == 0 {
		t.Fatalf("%s: no offer", toml)
	}
	return last.Offers[0]
}

// Hardware of which another resource offers a part is never reset, whether the part is a node or a
// companion, and whichever resource comes first.
func TestResetOfSharedHardware(t *testing.T) {
	t.Parallel()
	h := rig(t)
	snap, opts := scanned(t, h)
	const reset = "match = { usb.serial = \"CAN-B-78\", glob = \"/dev/bus/usb/*/*\" }\ncontainer.reset = \"usb\"\n"
	const node = "[[resource]]\nname = \"tty\"\nmatch.glob = \"/dev/ttyACM0\"\n"
	const companion = "[[resource]]\nname = \"fuse\"\nmatch.glob = \"/dev/fuse\"\nwith.path = \"/dev/ttyACM0\"\n"
	const own = "[[resource]]\nname = \"can\"\n" + reset
	for toml, want := range map[string]string{
		own:             "",
		node + own:      "example.com/tty",
		own + companion: "example.com/fuse",
		companion + own: "example.com/fuse",
	} {
		for _, r := range matchers.Match(parse(t, toml), snap, nil, opts).Resources {
			if r.Name != "example.com/can" {
				continue
			}
			o := r.Offers[0]
			if (o.Problem != "") != (want != "") || !strings.Contains(o.Problem, want) {
				t.Errorf("%s: problem %q, want %q", toml, o.Problem, want)
			}
		}
	}
}

// The use of a network interface comes and goes. It prevents a reset and nothing else.
func TestResetOfUsedInterface(t *testing.T) {
	t.Parallel()
	h := rig(t)
	snap, opts := scanned(t, h)
	o := resetOf(t, snap, opts, "match.pci.address = \"0000:3b:00.1\"\ncontainer.reset = \"pci\"")
	if o.Problem != "" || !strings.Contains(o.NoReset, "ens1f1: it is a port of bridge br0") {
		t.Errorf("problem %q, no reset because of %q", o.Problem, o.NoReset)
	}
}
