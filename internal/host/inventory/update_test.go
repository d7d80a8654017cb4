package inventory_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// updated returns the result of updates once no device is awaited.
func updated(t *testing.T, s *inventory.Scanner, b inventory.Batch) *device.Snapshot {
	t.Helper()
	for {
		snap, err := s.Update(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if len(snap.UnreadHardware) == 0 {
			return snap
		}
		<-s.Answered()
		b = inventory.Batch{}
	}
}

// A failed scan leaves nothing behind.
func TestUpdateAfterAFailedScan(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "1002", Device: "73bf", Class: "030000"})
	s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	before := updated(t, s, inventory.Batch{})
	away := h.Sysfs() + ".away"
	if err := os.Rename(h.Sysfs(), away); err != nil {
		t.Fatal(err)
	}
	if snap, err := s.Update(t.Context(), inventory.Batch{}); snap != nil || err == nil {
		t.Errorf("without sysfs: %v, %v; want an error", snap, err)
	}
	if err := os.Rename(away, h.Sysfs()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, updated(t, s, inventory.Batch{})); diff != "" {
		t.Errorf("after the error (-before +after):\n%s", diff)
	}
}

// An unplugged device loses its interfaces first: a node read just before has gone with
// its interface, and does not belong to the device alone.
func TestNodeOfARemovedInterface(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddRootHub(h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"}), 1, "480")
	h.AddUSB(sysfstest.USB{
		Port: "1-2", Vendor: "0403", Product: "6001",
		Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}}},
	})
	s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	if n := findNode(t, updated(t, s, inventory.Batch{}), "/dev/ttyUSB0"); n.Interface != 0 {
		t.Errorf("%+v; want a node of interface 0", n)
	}
	if err := os.Remove(filepath.Join(h.Sysfs(), "bus/usb/devices/1-2:1.0")); err != nil {
		t.Fatal(err)
	}
	for what, snap := range map[string]*device.Snapshot{"an update": updated(t, s, inventory.Batch{}), "a scan": scan(t, h.Tree)} {
		noProblems(t, snap)
		if slices.Contains(nodePaths(snap), "/dev/ttyUSB0") {
			t.Errorf("%s shows the node", what)
		}
		if stick := findHardware(snap, "1-2"); stick == nil || len(stick.Nodes) != 1 {
			t.Errorf("%s: the device is %+v; want it with its own node", what, stick)
		}
	}
}

// Events are kept with their latest time, for as long as a device may be settling.
func TestEvents(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	at := time.Now().Add(-time.Second)
	later := at.Add(time.Second / 2)
	updated(t, s, inventory.Batch{Paths: []string{"devices/a/usb1/1-2", "devices/b"}, At: at})
	updated(t, s, inventory.Batch{Paths: []string{"devices/b"}, At: later})
	updated(t, s, inventory.Batch{Paths: []string{"devices/c"}, At: at.Add(-time.Minute)})
	want := map[string]time.Time{"devices/a/usb1/1-2": at, "devices/b": later}
	updated(t, s, inventory.Batch{})
	events := s.Events()
	for path, at := range want {
		if !events[path].Equal(at) {
			t.Errorf("%s: %v; want %v", path, events[path], at)
		}
	}
	if len(events) != len(want) {
		t.Errorf("events %v; want %v", events, want)
	}
}
