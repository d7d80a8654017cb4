package matchers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// exclusiveResources offer parts of the same hardware. Each has one device, unless its name ends with
// "s".
const exclusiveResources = `
[[resource]]
name = "hub"
match.usb.id = "2109:2813"
shared = "exclusive"

[[resource]]
name = "zigbee"
match = { usb.id = "10c4:ea60", glob = "/dev/ttyUSB*" }
shared = "exclusive"

[[resource]]
name = "serial"
match.glob = "/dev/ttyUSB*"
each = "node"
shared = "exclusive"

# A bus node gives access to the whole device, so that it excludes the other nodes of a stick.
[[resource]]
name = "bus-node"
match = { usb.id = "10c4:ea60", glob = "/dev/bus/usb/*/*" }
each = "node"
shared = "exclusive"

[[resource]]
name = "other-port"
match.usb.id = "1d50:606f"
exclude.usb.serial = "CAN-A*"
shared = "exclusive"

[[resource]]
name = "controller"
match.pci.address = "0000:00:14.0"
shared = "exclusive"

[[resource]]
name = "pf"
match.pci.address = "0000:3c:00.0"
shared = "exclusive"

[[resource]]
name = "vfs"
match.pci.sriov = "vf"
shared = "exclusive"

[[resource]]
name = "card"
match.pci.address = "0000:41:00.0"
shared = "exclusive"

[[resource]]
name = "card-by-cdi"
match.cdi_device = "nvidia.com/gpu=0"
shared = "exclusive"

[[resource]]
name = "mdevs"
match.mdev.type = "nvidia-*"
shared = "exclusive"

[[resource]]
name = "disk"
match.glob = "/dev/sda"
match.dangerous = true
each = "node"
shared = "exclusive"

[[resource]]
name = "partition"
match.glob = "/dev/sda1"
match.dangerous = true
each = "node"
shared = "exclusive"

[[resource]]
name = "fuse"
match.glob = "/dev/fuse"
with = { path = "/dev/null" }
shared = "exclusive"

[[resource]]
name = "nodes"
match.glob = ["/dev/fuse", "/dev/null"]
each = "all"
shared = "exclusive"

[[resource]]
name = "licence"
match.virtual = ["lic-0"]
shared = "exclusive"
`

// exclusiveHost is the rig with a stick behind a hub, and a network card with virtual functions.
func exclusiveHost(t testing.TB) *sysfstest.Host {
	t.Helper()
	h := rig(t)
	h.AddUSB(sysfstest.USB{Port: "1-3", Vendor: "2109", Product: "2813", Class: "09"})
	h.AddUSB(sysfstest.USB{Port: "1-3.1", Vendor: "10c4", Product: "ea60", Serial: "ZB-0001", Interfaces: []sysfstest.Interface{
		{Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{{Name: "ttyUSB0", Subsystem: "tty"}}},
	}})
	h.AddPCI(sysfstest.PCI{Address: "0000:3c:00.0", Vendor: "8086", Device: "1572", Class: "020000", TotalVFs: 8})
	for i, address := range []string{"0000:3c:02.0", "0000:3c:02.1"} {
		h.AddPCI(sysfstest.PCI{Address: address, Vendor: "8086", Device: "154c", Class: "020000", PF: "0000:3c:00.0", VF: i})
	}
	return h
}

func TestPlacesOfExclusiveDevices(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, exclusiveHost(t))
	opts.Allow = anything
	found := map[string][]device.Offer{}
	for _, r := range matchers.Match(parse(t, exclusiveResources), snap, nil, opts).Resources {
		_, name, _ := strings.Cut(r.Name, "/")
		isList := strings.HasSuffix(name, "s")
		if len(r.Offers) == 0 || len(r.Offers) > 1 && !isList {
			t.Fatalf("%s has %d offers", name, len(r.Offers))
		}
		for _, o := range r.Offers {
			if !o.Exclusive || len(o.Places) == 0 {
				t.Errorf("%s: exclusive is %v, places are %q", o.ID, o.Exclusive, o.Places)
			}
		}
		found[name] = r.Offers
	}
	conflicts := []string{
		"hub zigbee", "hub serial", "hub bus-node", "zigbee serial", "zigbee bus-node", "serial bus-node",
		"hub controller", "zigbee controller", "serial controller", "bus-node controller", "other-port controller",
		"pf vfs",
		"card card-by-cdi", "card mdevs",
		"disk partition",
		"fuse nodes",
	}
	for a, offers := range found {
		for b, others := range found {
			if a >= b {
				continue
			}
			want := slices.Contains(conflicts, a+" "+b) || slices.Contains(conflicts, b+" "+a)
			for _, o := range offers {
				for _, other := range others {
					if got := device.Conflict(o.Places, other.Places); got != want {
						t.Errorf("%s %q and %s %q: conflict is %v, want %v", a, o.Places, b, other.Places, got, want)
					}
				}
			}
		}
	}
	// Devices of one resource that are beside each other do not exclude each other.
	for _, name := range []string{"vfs", "mdevs"} {
		two := found[name]
		if len(two) != 2 || device.Conflict(two[0].Places, two[1].Places) {
			t.Errorf("%s: %v", name, two)
		}
	}
}

// A device in two exclusive resources is offered by both, with an ID of each.
func TestExclusiveResourcesOfferOneDevice(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, exclusiveHost(t))
	match := func(second string) map[string]string {
		ids := map[string]string{}
		result := matchers.Match(parse(t, `
[[resource]]
name = "a"
match.usb.id = "10c4:ea60"
shared = "exclusive"

[[resource]]
name = "b"
match.usb.id = "10c4:ea60"
shared = `+second), snap, nil, opts)
		for _, r := range result.Resources {
			for _, o := range r.Offers {
				ids[r.Name] = o.ID
			}
		}
		return ids
	}
	both := match(`"exclusive"`)
	if both["example.com/a"] != "shared:example.com:a:usb:10c4:ea60:ZB-0001" || both["example.com/b"] != "shared:example.com:b:usb:10c4:ea60:ZB-0001" {
		t.Errorf("IDs are %q", both)
	}
	for _, second := range []string{"true", "false"} {
		if one := match(second); len(one) != 1 || one["example.com/a"] == "" {
			t.Errorf("shared = %s: IDs are %q, want only the first resource", second, one)
		}
	}
}

// A stick has a place that does not depend on its port, and its node has one that does not depend on
// the kernel's name.
func TestPlacesAfterReplug(t *testing.T) {
	t.Parallel()
	h := exclusiveHost(t)
	places := func(name string) []string {
		snap, opts := scanned(t, h)
		opts.Allow = anything
		for _, r := range matchers.Match(parse(t, exclusiveResources), snap, nil, opts).Resources {
			if r.Name == "example.com/"+name {
				return r.Offers[0].Places
			}
		}
		return nil
	}
	zigbee := places("zigbee")
	serial := places("serial")
	h.RemoveUSB("1-3.1")
	h.AddUSB(sysfstest.USB{Port: "1-3.4", Vendor: "10c4", Product: "ea60", Serial: "ZB-0001", Interfaces: []sysfstest.Interface{
		{Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{{Name: "ttyUSB1", Subsystem: "tty"}}},
	}})
	for name, before := range map[string][]string{"zigbee": serial, "serial": zigbee} {
		if now := places(name); !device.Conflict(before, now) {
			t.Errorf("%s is at %q now, without a conflict with %q", name, now, before)
		}
	}
}
