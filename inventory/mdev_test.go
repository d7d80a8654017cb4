package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// A mediated device owns its nodes and interfaces, not its parent function, which does
// not count as bound to VFIO for that.
func TestMDev(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	one := 1
	gpu := h.AddPCI(sysfstest.PCI{
		Address: "0000:3b:00.0", Vendor: "10de", Device: "1eb8", Class: "030200", Driver: "nvidia", IOMMUGroup: "40", NUMA: &one,
		Nodes: []sysfstest.Node{{Name: "dri/card0", Subsystem: "drm"}},
	})
	const uuid = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
	own := h.AddMDev(gpu, sysfstest.MDev{
		UUID: uuid, Type: "nvidia-222", Name: "GRID T4-1B", IOMMUGroup: "112",
		Nodes: []sysfstest.Node{{Name: "vfio/devices/vfio0", Subsystem: "vfio-dev"}},
	})
	// The kernel's sample has no parent device, and a type without a name.
	h.AddMDev("devices/virtual/mtty/mtty", sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002", Type: "mtty-1", IOMMUGroup: "113"})
	h.AddMDev(gpu, sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1003", Type: "nvidia-222", Name: "GRID T4-1B"})
	for _, group := range []string{"112", "113", "40"} {
		h.AddNode("", sysfstest.Node{Name: "vfio/" + group, Subsystem: "vfio"})
	}
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	m := findHardware(snap, uuid)
	if m == nil || m.Bus != device.MDevBus || m.Path != own || m.NUMA != 1 || m.Parent != findHardware(snap, "0000:3b:00.0") {
		t.Fatalf("%+v", m)
	}
	if diff := cmp.Diff(&device.MDev{UUID: uuid, Type: "nvidia-222", Name: "GRID T4-1B", IOMMUGroup: "112"}, m.MDev); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string][]string{
		uuid:                                   {"/dev/vfio/112", "/dev/vfio/devices/vfio0"},
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1002": {"/dev/vfio/113"},
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1003": nil,
		"0000:3b:00.0":                         {"/dev/dri/card0", "/dev/vfio/40"},
	} {
		var got []string
		for _, n := range findHardware(snap, name).Nodes {
			got = append(got, n.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if h := findHardware(snap, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002"); h.Parent != nil || h.NUMA != -1 || h.MDev.Name != "" {
		t.Errorf("the sample: %+v", h)
	}
}

// The cdev of a mediated device does not affect its parent function.
func TestMDevDoesNotBindItsParent(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	gpu := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "10de", Device: "1eb8", Class: "030200", Driver: "nvidia", IOMMUGroup: "40"})
	h.AddMDev(gpu, sysfstest.MDev{UUID: "u", Type: "nvidia-222", Nodes: []sysfstest.Node{{Name: "vfio/devices/vfio0", Subsystem: "vfio-dev"}}})
	if fn := findHardware(scan(t, h.Tree), "0000:3b:00.0"); fn.PCI.VFIO || len(fn.Nodes) > 0 {
		t.Errorf("%+v, nodes %v", fn.PCI, fn.Nodes)
	}
}
