package inventory_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// host has 256 PCI functions and 64 USB devices with a serial port each, for each PCI
// domain. Half of the functions have a node.
func host(t testing.TB, domains int) *sysfstest.Host {
	h := sysfstest.NewHost(t, sysfstest.HostOptions{RealNodes: true})
	for d := range domains {
		numa := d % 2
		address := func(bus int) string { return fmt.Sprintf("%04x:%02x:00.0", d, bus) }
		for i := range 16 {
			bridge := h.AddPCI(sysfstest.PCI{Address: address(16 * i), Vendor: "8086", Device: "2030", Class: "060400", Driver: "pcieport", NUMA: &numa})
			for j := 1; j < 16; j++ {
				p := sysfstest.PCI{
					Address: address(16*i + j), Below: bridge, Vendor: "1002", Device: "740f", Class: "038000",
					Driver: "amdgpu", IOMMUGroup: fmt.Sprint(256*d + 16*i + j), NUMA: &numa,
				}
				if j%2 == 1 {
					p.Nodes = []sysfstest.Node{{Name: fmt.Sprintf("dri/renderD%d", 256*d+16*i+j), Subsystem: "drm"}}
				}
				h.AddPCI(p)
			}
		}
		h.AddRootHub(fmt.Sprintf("devices/pci%04x:00/%s/%s", d, address(0), address(1)), d+1, "480")
		for i := range 63 {
			h.AddUSB(serialStick(d, i))
		}
	}
	return h
}

func serialStick(domain, i int) sysfstest.USB {
	return sysfstest.USB{
		Port: fmt.Sprintf("%d-%d", domain+1, i+1), Vendor: "0403", Product: "6001", Serial: fmt.Sprintf("A%d", 64*domain+i), Manufacturer: "FTDI", ProductName: "FT232R",
		Interfaces: []sysfstest.Interface{{
			Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort(fmt.Sprintf("ttyUSB%d", 64*domain+i), 0)},
		}},
	}
}

// sizes are the domains of a large server and of the largest host.
var sizes = map[string]int{"large": 1, "huge": 16}

// sized runs a benchmark on a host of each size, which is made once: the huge one takes
// half a minute.
func sized(b *testing.B, run func(b *testing.B, h *sysfstest.Host, hardware int)) {
	for size, domains := range sizes {
		b.Run(size, func(b *testing.B) { run(b, host(b, domains), domains*(256+64)) })
	}
}

// cpu is the CPU time of this process, which other processes disturb less than the
// time of day.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkScan(b *testing.B) {
	sized(b, func(b *testing.B, h *sysfstest.Host, hardware int) {
		// A node made in the second before the first scan is an event of its hardware.
		time.Sleep(time.Second)
		s := newScanner(h)
		scan := func(b *testing.B, batch inventory.Batch) {
			snap, err := s.Update(b.Context(), batch)
			for err == nil && len(snap.UnreadHardware) > 0 {
				<-s.Answered()
				snap, err = s.Update(b.Context(), inventory.Batch{})
			}
			if err != nil || len(snap.Hardware) != hardware || len(snap.Problems) > 0 {
				b.Fatal(err, len(snap.Hardware), snap.Problems)
			}
		}
		for _, c := range []struct {
			name  string
			batch inventory.Batch
		}{
			{"full", inventory.Batch{All: true}},
			{"net", inventory.Batch{Paths: []string{"devices/virtual/net/veth1"}}},
		} {
			b.Run(c.name, func(b *testing.B) {
				b.ReportAllocs()
				before := cpu()
				for b.Loop() {
					scan(b, c.batch)
				}
				b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	})
}

func BenchmarkScanThisHost(b *testing.B) {
	s := inventory.New(inventory.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Scan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
