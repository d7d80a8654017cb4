package inventory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/sysfs"
)

func usbEntries(names ...string) []sysfs.Entry {
	var list []sysfs.Entry
	for _, n := range names {
		list = append(list, sysfs.Entry{Name: n, Path: n})
	}
	return list
}

// A device whose lock is held is left out, and the others are read. The next
// scans read it no second time, and do not wait for one that hangs; when it
// answers after all, that is told.
func TestUSBDeviceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		var reads, late atomic.Int32
		r := &slowReader{late: func() { late.Add(1) }, read: func(dir string) (sysfs.USBDevice, error) {
			if dir == "1-2" {
				reads.Add(1)
				<-hangs
			}
			return sysfs.USBDevice{Serial: "of " + dir}, nil
		}}
		entries := usbEntries("1-1", "1-2", "1-3")
		check := func(scan string, wantTime time.Duration, wantErr error) {
			t.Helper()
			start := time.Now()
			results, err := r.all(t.Context(), entries, slowAfter)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d != wantTime {
				t.Errorf("%s: took %v; want %v", scan, d, wantTime)
			}
			for i, e := range entries {
				if e.Name == "1-2" && wantErr != nil {
					if !errors.Is(results[i].err, wantErr) {
						t.Errorf("%s: %s: %+v; want %v", scan, e.Name, results[i], wantErr)
					}
				} else if results[i].err != nil || results[i].device.Serial != "of "+e.Name {
					t.Errorf("%s: %s: %+v", scan, e.Name, results[i])
				}
			}
		}
		check("first", slowAfter, errSlow)
		check("second", slowAfter, errSlow)
		time.Sleep(hangsAfter)
		check("third", 0, errNoAnswer)
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads hang; want 1", n)
		}
		close(hangs)
		synctest.Wait()
		check("last", 0, nil)
		if n := late.Load(); n != 1 {
			t.Errorf("told %d times of the answer; want once", n)
		}
	})
}

// What is known of a device is not read again while it has its number, so that
// a reset of it keeps nobody waiting; a new number is a new device.
func TestUSBDeviceIsReadOnceANumber(t *testing.T) {
	t.Parallel()
	number, reads := "7", 0
	r := &slowReader{
		read: func(string) (sysfs.USBDevice, error) {
			reads++
			return sysfs.USBDevice{Serial: "of " + number}, nil
		},
		number: func(string) string { return number },
	}
	for _, step := range []struct {
		number    string
		plugged   bool
		wantReads int
	}{{"7", true, 1}, {"7", true, 1}, {"8", true, 2}, {"8", false, 2}, {"8", true, 3}, {"", true, 4}, {"", true, 5}} {
		number = step.number
		var entries []sysfs.Entry
		if step.plugged {
			entries = usbEntries("1-1")
		}
		results, err := r.all(t.Context(), entries, slowAfter)
		if err != nil {
			t.Fatal(err)
		}
		if step.plugged && results[0].device.Serial != "of "+step.number {
			t.Errorf("%+v: read %+v", step, results[0])
		}
		if reads != step.wantReads {
			t.Errorf("%+v: %d reads", step, reads)
		}
	}
}

// On a kernel's sysfs the inode of its link says that a device is the same, and no
// number is read.
func TestUSBDeviceIsReadOnceALink(t *testing.T) {
	t.Parallel()
	reads, numbers := 0, 0
	r := &slowReader{
		read: func(string) (sysfs.USBDevice, error) {
			reads++
			return sysfs.USBDevice{Serial: "A1"}, nil
		},
		number: func(string) string {
			numbers++
			return "7" // what the next device gets when the numbers are all used up
		},
	}
	for _, step := range []struct {
		ino                    uint64
		wantReads, wantNumbers int
	}{{71, 1, 2}, {71, 1, 2}, {72, 2, 4}, {72, 2, 4}} {
		entries := usbEntries("1-1")
		entries[0].Ino = step.ino
		results, err := r.all(t.Context(), entries, slowAfter)
		if err != nil || results[0].device.Serial != "A1" {
			t.Fatal(results, err)
		}
		if reads != step.wantReads || numbers != step.wantNumbers {
			t.Errorf("%+v: %d reads of devices and %d of numbers", step, reads, numbers)
		}
	}
}

func TestUSBScanEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		r := &slowReader{read: func(string) (sysfs.USBDevice, error) {
			<-hangs
			return sysfs.USBDevice{}, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), slowAfter/2)
		defer cancel()
		if _, err := r.all(ctx, usbEntries("1-1"), slowAfter); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v; want that of the context", err)
		}
	})
}

func TestBusDevice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dir, bus, want string }{
		{"devices/virtual/misc/fuse", "", ""},
		{"devices/platform/soc/fe201000.serial/tty/ttyAMA0", "", ""},
		{"devices/pci0000:00/0000:00:02.0/drm/card0", "pci", "devices/pci0000:00/0000:00:02.0"},
		{"devices/pci0000:00/0000:00:1c.0/0000:02:00.0/virtio1/block/vda", "pci", "devices/pci0000:00/0000:00:1c.0/0000:02:00.0"},
		{"devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0/nvme/nvme0", "pci", "devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0"},
		{"devices/pci0000:00", "", ""},
		{"devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.4/1-2.4:1.0/ttyUSB0/tty/ttyUSB0", "usb", "devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.4"},
		{"devices/pci0000:00/0000:00:14.0/usb1", "usb", "devices/pci0000:00/0000:00:14.0/usb1"},
		{"devices/platform/soc/fe980000.usb/usb3/3-1/3-1:1.0/tty/ttyACM0", "usb", "devices/platform/soc/fe980000.usb/usb3/3-1"},
		{"devices/pci0000:00/0000:00:14.0/usb1/1-10/1-10:1.0/i2c-5/5-0048/rtc/rtc1", "usb", "devices/pci0000:00/0000:00:14.0/usb1/1-10"},
		{"devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host0/target0:0:0/0:0:0:0/block/sda/sda1", "usb", "devices/pci0000:00/0000:00:14.0/usb1/1-1"},
	} {
		bus, got := busDevice(c.dir)
		if string(bus) != c.bus || got != c.want {
			t.Errorf("busDevice(%q) = %q, %q; want %q, %q", c.dir, bus, got, c.bus, c.want)
		}
	}
}
