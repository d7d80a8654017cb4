package matchers_test

import (
	"path"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

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
			h := sysfstest.New(t)
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
			equal(t, "offers", want, sayAll(offers(t, snap, `match = { usb = { id = "0bda:8153" }, glob = "/dev/hidraw*" }`)))
			result := matchers.Match(parse(t, `match = { usb = { class = "09" }, dangerous = true }`), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: config.Allow{Dangerous: true}})
			want = []string{"usb:05e3:0612:port:" + tc.controller + ":1 /dev/bus/usb/001/002", "usb:05e3:0612:port:" + tc.controller + ":ss1 /dev/bus/usb/002/002"}
			equal(t, "hubs", want, sayAll(result.Resources[0].Offers))
		})
	}
}
