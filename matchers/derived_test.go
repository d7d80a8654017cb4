package matchers_test

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

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
