package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// BenchmarkCommands runs each command on a host with 256 PCI functions and 64 USB
// devices: want less than 100 ms for each.
func BenchmarkCommands(b *testing.B) {
	h := sysfstest.NewHost(b, sysfstest.HostOptions{})
	for i := range 256 {
		h.AddPCI(sysfstest.PCI{
			Address: fmt.Sprintf("0000:%02x:00.0", i), Vendor: "1002", Device: fmt.Sprintf("74%02x", i%8), Class: "038000", Driver: "amdgpu", IOMMUGroup: fmt.Sprint(i),
			Nodes: []sysfstest.Node{{Name: fmt.Sprintf("dri/renderD%d", 128+i), Subsystem: "drm"}},
		})
	}
	h.AddRootHub("devices/pci0000:00/0000:00:00.0", 1, "480")
	for i := range 63 {
		h.AddUSB(sysfstest.USB{
			Port: fmt.Sprintf("1-%d", i+1), Vendor: "0403", Product: "6001", Serial: fmt.Sprintf("A%d", i), Manufacturer: "FTDI", ProductName: "FT232R",
			Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort(fmt.Sprintf("ttyUSB%d", i), 0)}}},
		})
	}
	dir := b.TempDir()
	file := dir + "/config.toml"
	host := []string{"--sysfs", h.Sysfs(), "--dev", h.Dev(), "--state-dir", dir, "--config", file}
	execute := func(args ...string) string {
		var out, stderr strings.Builder
		if code := run(b.Context(), append(args, host...), &out, &stderr); code != 0 && args[0] != "doctor" {
			b.Fatalf("%v: status %d: %s", args, code, stderr.String())
		}
		return out.String()
	}
	place(b, file, execute("init")+"[[resource]]\nname = \"none\"\nmatch = { usb.id = \"0403:6002\", glob = \"/dev/ttyUSB*\" }\n")
	for _, args := range [][]string{
		{"devices", "--all"}, {"devices"}, {"init"}, {"init", "/dev/ttyUSB7"}, {"explain", "none"}, {"explain", "/dev/ttyUSB7"},
		{"check"}, {"diff", file, file}, {"allocate", "serial"}, {"doctor"},
	} {
		b.Run(strings.Join(args[:min(len(args), 1+len(args)%2)], " "), func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				execute(args...)
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is what this process has used: other work on the machine does not count.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
