package sysfstest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func scan(t *testing.T, tree sysfstest.Tree) *device.Snapshot {
	t.Helper()
	snap, _ := sysfstest.Scan(t, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
	for _, p := range snap.Problems {
		t.Errorf("scan: %s: %s", p.Subject, p.Reason)
	}
	return snap
}

// Removing all devices leaves the host as it was, twice.
func TestRemoveRestoresTheHost(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	xhci := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"})
	h.AddRootHub(xhci, 1, "480")
	before := scan(t, h.Tree)
	hub := sysfstest.USB{Port: "1-2", Vendor: "05e3", Product: "0610", Class: "09"}
	stick := sysfstest.USB{
		Port: "1-2.1", Vendor: "0403", Product: "6001", Serial: "A1",
		Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}}},
	}
	card := sysfstest.PCI{Address: "0000:01:00.0", Vendor: "1002", Device: "740f", Class: "038000", Nodes: []sysfstest.Node{{Name: "card0", Subsystem: "drm"}}}
	var with []*device.Snapshot
	for range 2 {
		h.AddUSB(hub)
		h.AddUSB(stick)
		gpu := h.AddPCI(card)
		h.AddMDev(gpu, sysfstest.MDev{
			UUID: "u1", Type: "t", IOMMUGroup: "7", Nodes: []sysfstest.Node{{Name: "vfio/devices/vfio0", Subsystem: "vfio-dev"}},
		})
		br0 := h.AddNet("", sysfstest.Net{Name: "br0", Bridge: true})
		eth0 := h.AddNet(gpu, sysfstest.Net{Name: "eth0", Master: "br0"})
		fuse := h.AddNode("", sysfstest.Node{Name: "fuse", Subsystem: "misc", Major: 10, Minor: 229})
		with = append(with, scan(t, h.Tree))
		h.RemoveUSB("1-2")
		h.Remove(eth0)
		h.Remove(br0)
		h.Remove(gpu)
		h.Remove(fuse)
		after := scan(t, h.Tree)
		after.Dirs, before.Dirs = nil, nil
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("after the removal of all devices (-before +after):\n%s", diff)
		}
	}
	if n := len(with[0].Hardware); n != len(before.Hardware)+4 {
		t.Errorf("%d devices; want 4 more than %d", n, len(before.Hardware))
	}
	if n := len(with[1].Nodes); n != len(before.Nodes)+6 {
		t.Errorf("%d nodes; want 6 more than %d", n, len(before.Nodes))
	}
	if n := len(with[1].Nets); n != 2 {
		t.Errorf("%d interfaces; want 2", n)
	}
}

func TestRealNodes(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{RealNodes: true})
	h.AddNode("", sysfstest.Node{Name: "null2", Subsystem: "mem", Major: 1, Minor: 3})
	h.AddNode("", sysfstest.Node{Name: "disk", Subsystem: "block", Block: true, Major: 7, Minor: 99})
	snap := scan(t, h.Tree)
	if len(snap.Nodes) != 2 || snap.Nodes[0].Type != device.BlockNode || snap.Nodes[1].Minor != 3 {
		t.Errorf("nodes %+v, want a block device and minor 3", snap.Nodes)
	}
	fi, err := os.Lstat(filepath.Join(h.Dev(), "null2"))
	if err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("null2: %v, %v; want a device node", fi, err)
	}
}
