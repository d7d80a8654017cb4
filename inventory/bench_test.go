package inventory_test

import (
	"fmt"
	"testing"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/inventory"
)

// largeHost has 256 PCI functions and 64 USB devices with a serial port each.
func largeHost(t testing.TB) *sysfstest.Host {
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	numa := 1
	for i := range 16 {
		bridge := h.AddPCI(sysfstest.PCI{
			Address: fmt.Sprintf("0000:%02x:00.0", 16*i), Vendor: "8086", Device: "2030", Class: "060400", Driver: "pcieport", NUMA: &numa,
		})
		for j := 1; j < 16; j++ {
			h.AddPCI(sysfstest.PCI{
				Address: fmt.Sprintf("0000:%02x:00.0", 16*i+j), Below: bridge, Vendor: "1002", Device: "740f", Class: "038000",
				Driver: "amdgpu", IOMMUGroup: fmt.Sprint(16*i + j), NUMA: &numa,
				Nodes: []sysfstest.Node{{Name: fmt.Sprintf("dri/renderD%d", 16*i+j), Subsystem: "drm"}},
			})
		}
	}
	h.AddRootHub("devices/pci0000:00/0000:00:00.0/0000:01:00.0", 1, "480")
	for i := range 63 {
		port := fmt.Sprintf("1-%d", i+1)
		h.AddUSB(sysfstest.USB{
			Port: port, Vendor: "0403", Product: "6001", Serial: fmt.Sprintf("A%d", i), Manufacturer: "FTDI", ProductName: "FT232R",
			Interfaces: []sysfstest.Interface{{
				Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort(fmt.Sprintf("ttyUSB%d", i), 0)},
			}},
		})
	}
	return h
}

func BenchmarkScan(b *testing.B) {
	h := largeHost(b)
	s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	b.ReportAllocs()
	for b.Loop() {
		snap, err := s.Scan(b.Context())
		if err != nil || len(snap.Hardware) != 256+64 || len(snap.Problems) > 0 {
			b.Fatal(err, len(snap.Hardware), snap.Problems)
		}
	}
}

// BenchmarkUpdate is the scan after one event on the host of BenchmarkScan.
func BenchmarkUpdate(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func(h *sysfstest.Host) // not measured
	}{
		{"nothing", func(*sysfstest.Host) {}},
		{"node", func(h *sysfstest.Host) {
			h.Remove(h.AddNode("", sysfstest.Node{Name: "fuse", Subsystem: "misc", Major: 10, Minor: 229}))
		}},
		{"usb", func(h *sysfstest.Host) {
			h.RemoveUSB("1-7")
			h.AddUSB(sysfstest.USB{
				Port: "1-7", Vendor: "0403", Product: "6001", Serial: "A6",
				Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB6", 0)}}},
			})
		}},
		{"pci", func(h *sysfstest.Host) { h.Bind("pci", "devices/pci0000:f0/0000:f0:00.0/0000:ff:00.0", "vfio-pci") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := largeHost(b)
			h.Uevents()
			s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
			if _, err := s.Scan(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c.do(h)
				uevents := h.Uevents()
				b.StartTimer()
				snap, err := s.Update(b.Context(), inventory.Batch{Names: true, Paths: uevents})
				for err == nil && len(snap.Unread) > 0 {
					<-s.Answered()
					snap, err = s.Update(b.Context(), inventory.Batch{})
				}
				if err != nil || len(snap.Hardware) != 256+64 || len(snap.Problems) > 0 {
					b.Fatal(err, len(snap.Hardware), snap.Problems)
				}
			}
		})
	}
}

func BenchmarkScanThisHost(b *testing.B) {
	s := inventory.New(inventory.Options{})
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Scan(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Update(b.Context(), inventory.Batch{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
