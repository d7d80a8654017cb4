package matchers_test

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// Number and class of a USB interface belong to one interface, also in reasons.
func TestExplainInterfaces(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "1d50", Product: "606f", Interfaces: []sysfstest.Interface{{Class: "ff"}, {Number: 1, Class: "03"}}})
	snap, opts := scanned(t, h)
	for match, want := range map[string]string{
		`{ interface = "1", interface_class = "ff" }`: `usb.interface_class "ff" fits nothing: 1-1 has 03`,
		`{ interface = "2", interface_class = "ff" }`: `usb.interface "2" fits nothing: 1-1 has 0`,
		`{ interface = "1", interface_class = "03" }`: "",
	} {
		if got := matchers.Explain(parse(t, "match.usb = "+match), snap, nil, opts, nil, nil)[0].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", match, got, want)
		}
	}
}

// A sub-function that a match ignores as such has no other reason.
func TestExplainSubFunction(t *testing.T) {
	t.Parallel()
	snap := machine(t, nics)
	i := slices.IndexFunc(snap.Hardware, func(h *device.Hardware) bool { return h.Name == "mlx5_core.sf.4" })
	for match, want := range map[string]string{
		`{ pci.id = "15b3:*", driver = "mlx4*" }`:   `pci.sriov fits nothing: only "sf" selects a sub-function`,
		`{ pci = { id = "15b3:*", sriov = "sf" } }`: "",
	} {
		if got := matchers.Explain(parse(t, "match = "+match), snap, nil, matchers.Options{Host: &fakeHost{}}, snap.Hardware[i], nil)[0].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", match, got, want)
		}
	}
}

// A typing error in the path of a link is shown with the link that is meant. What only shares a
// directory with it is not.
func TestExplainLinks(t *testing.T) {
	t.Parallel()
	snap := machine(t, "desktop-xhci")
	for glob, want := range map[string]string{
		"FTD_Dual_RS232*":                ": /dev/ttyUSB2 has /dev/serial/by-id/usb-FTDI_Dual_RS232-HS-if00-port0",
		"FTDI_Dual_RS323-HS-if01-port0":  ": /dev/ttyUSB3 has /dev/serial/by-id/usb-FTDI_Dual_RS232-HS-if01-port0",
		"ITEAD_SONOFF*":                  "",
		"ITEAD_SONOFF_Zigbee-if00-port0": "",
	} {
		glob = `"/dev/serial/by-id/usb-` + glob + `"`
		want = "glob " + glob + " fits nothing" + want
		got := matchers.Explain(parse(t, "match.glob = "+glob), snap, nil, matchers.Options{Host: &fakeHost{}}, nil, nil)[0].Reason
		if got != want {
			t.Errorf("reason %q; want %q", got, want)
		}
	}
}

// A reason is what happened to the devices, and not what is left when no other reason applies.
func TestExplainReasons(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	for _, c := range []struct{ name, toml, want string }{
		{
			"hardware without nodes",
			"each = \"node\"\nmatch = { usb = { serial = \"CAN-*\" }, subsystem = \"!*\" }",
			`left out: USB device 1-1 and 1 more: each = "node", and no node of it is selected`,
		},
		{
			"exclude and required",
			"match = [{ usb = {} }, { usb = {}, subsystem = \"tty\", required = true }]\nexclude = { usb = { serial = \"CAN-B*\" } }",
			"exclude leaves out USB device 1-2; left out: USB device 1-1: match 2 with required = true selects no node of it",
		},
		{
			"a name without a value",
			named("x-${usb.manufacturer}", "match.usb = {}"),
			`left out: USB device 1-1: name "example.com/x-${usb.manufacturer}": ${usb.manufacturer} has no value for USB device 1-1; and 1 more`,
		},
		{
			"VFIO without a node",
			"match = { mdev = {}, vfio = true, subsystem = \"none\" }",
			`subsystem "none" fits nothing: 83b8f4f2-509f-382f-3c1e-e6bfe0fa1001 has vfio`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := matchers.Explain(parse(t, c.toml), snap, nil, opts, nil, nil)[0].Reason
			if got != c.want {
				t.Errorf("reason %q; want %q", got, c.want)
			}
		})
	}
}

// Hardware that a VFIO driver has without an IOMMU group is not to be bound again.
func TestExplainVFIO(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:41:00.0", Vendor: "10de", Device: "2235", Class: "030200", Driver: "vfio-pci"})
	h.AddPCI(sysfstest.PCI{Address: "0000:42:00.0", Vendor: "10ee", Device: "5000", Class: "120000", Driver: "xclmgmt", IOMMUGroup: "42"})
	snap, opts := scanned(t, h)
	for class, want := range map[string]string{
		"03": "vfio fits nothing: 0000:41:00.0 has no IOMMU group",
		"12": "vfio fits nothing: 0000:42:00.0 has driver xclmgmt",
	} {
		got := matchers.Explain(parse(t, `match = { pci.class = "`+class+`", vfio = true }`), snap, nil, opts, nil, nil)[0].Reason
		if got != want {
			t.Errorf("reason %q; want %q", got, want)
		}
	}
}

// A condition with "!" is not contradicted by a value in another letter case, and all of them have to hold. A
// match without a glob is also explained for a single node.
func TestExplainNegations(t *testing.T) {
	t.Parallel()
	snap := machine(t, "desktop-xhci")
	i := slices.IndexFunc(snap.Nodes, func(n *device.Node) bool { return n.Path == "/dev/ttyUSB0" })
	node := snap.Nodes[i]
	for match, want := range map[string]string{
		`{ usb = { serial = "!A1*" } }`:                        `usb.serial "!A1*" fits nothing: 1-2.1 has A10K5XYZ`,
		`{ usb = { id = "0403:*", serial = ["!A1*", "!B"] } }`: `usb.serial "!A1*" and "!B" fits nothing: 1-2.1 has A10K5XYZ`,
		`{ usb = { id = "0403:*", serial = "A10K5XYY" } }`:     `usb.serial "A10K5XYY" fits nothing: 1-2.1 has A10K5XYZ`,
		`{ usb = { id = "0403:*" } }`:                          "",
	} {
		got := matchers.Explain(parse(t, "match = "+match), snap, nil, matchers.Options{Host: &fakeHost{}}, node.Hardware, node)[0].Reason
		if got != want {
			t.Errorf("%s: reason %q; want %q", match, got, want)
		}
	}
}

// Devices of two other resources are named with their owners.
func TestExplainOwners(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	cfg := parse(t, `
[[resource]]
name = "a"
match.usb.serial = "CAN-A*"
[[resource]]
name = "b"
match.usb.serial = "CAN-B*"
[[resource]]
name = "c"
match.usb.serial = "CAN-*"
`)
	got := matchers.Explain(cfg, snap, nil, opts, nil, nil)[2].Reason
	want := "example.com/a has USB device 1-1; example.com/b has USB device 1-2"
	if got != want {
		t.Errorf("reason %q; want %q", got, want)
	}
}

// A node that is left out of its device, since it is dangerous, is explained as such.
func TestExplainSideNode(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "15b3", Device: "1015", Class: "020000", Driver: "mlx5_core", Nodes: []sysfstest.Node{
		{Name: "infiniband/uverbs0", Subsystem: "infiniband_verbs"},
		{Name: "fwctl/fwctl0", Subsystem: "fwctl"},
	}})
	snap, opts := scanned(t, h)
	i := slices.IndexFunc(snap.Nodes, func(n *device.Node) bool { return n.Path == "/dev/fwctl/fwctl0" })
	node := snap.Nodes[i]
	got := matchers.Explain(parse(t, "match.pci = {}"), snap, nil, opts, node.Hardware, node)[0].Reason
	want := "left out: /dev/fwctl/fwctl0: its device is usable without it, and it is dangerous: it commands firmware (fwctl fwctl0)"
	if got != want {
		t.Errorf("reason %q; want %q", got, want)
	}
}
