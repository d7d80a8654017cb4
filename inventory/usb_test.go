package inventory

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

func usbEntries(names ...string) []sysfs.Entry {
	var list []sysfs.Entry
	for _, n := range names {
		list = append(list, sysfs.Entry{Name: n, Path: n})
	}
	return list
}

// A locked device is left unread, and the others are read. It is awaited once, whether
// it hangs or not; its response is signalled.
func TestUSBDeviceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		var reads, late atomic.Int32
		r := &usbReader{number: devnum("7"), read: func(dir string) (device.USB, error) {
			if dir == "1-2" {
				reads.Add(1)
				<-hangs
			}
			return device.USB{Serial: "of " + dir}, nil
		}}
		r.calls.Late = func(usbLink) { late.Add(1) }
		check := func(scan string, wantTime time.Duration, wantErr error) {
			t.Helper()
			start := time.Now()
			for _, e := range usbEntries("1-1", "1-2", "1-3") {
				got := r.device(t.Context(), e, slowAfter)
				if e.Name == "1-2" && wantErr != nil {
					if got.err != wantErr || got.replaces {
						t.Errorf("%s: %s: %+v; want %v", scan, e.Name, got, wantErr)
					}
				} else if got.err != nil || got.device.Serial != "of "+e.Name {
					t.Errorf("%s: %s: %+v", scan, e.Name, got)
				}
			}
			if d := time.Since(start); d != wantTime {
				t.Errorf("%s: took %v; want %v", scan, d, wantTime)
			}
		}
		check("first", slowAfter, errSlow)
		check("second", 0, errSlow)
		time.Sleep(hangsAfter)
		check("third", 0, errHangs)
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads hang; want 1", n)
		}
		close(hangs)
		synctest.Wait()
		check("last", 0, nil)
		if n := late.Load(); n != 1 {
			t.Errorf("the answer was signalled %d times; want once", n)
		}
	})
}

func devnum(n string) func(string) string { return func(string) string { return n } }

// A known device is not read again while it has its number, so that a reset of it
// blocks nothing; a new number is a new device.
func TestUSBDeviceIsReadOncePerNumber(t *testing.T) {
	t.Parallel()
	number, reads := "7", 0
	r := &usbReader{
		read: func(string) (device.USB, error) {
			reads++
			return device.USB{Serial: "of " + number}, nil
		},
		number: func(string) string { return number },
	}
	for _, step := range []struct {
		number    string
		plugged   bool
		wantReads int
	}{{"7", true, 1}, {"7", true, 1}, {"8", true, 2}, {"8", false, 2}, {"8", true, 3}, {"", true, 4}, {"", true, 5}} {
		number = step.number
		if !step.plugged {
			r.forgetOthers(nil)
			continue
		}
		if got := r.device(t.Context(), usbEntries("1-1")[0], time.Minute); got.device.Serial != "of "+step.number {
			t.Errorf("%+v: read %+v", step, got)
		}
		if reads != step.wantReads {
			t.Errorf("%+v: %d reads", step, reads)
		}
	}
}

// On the kernel's sysfs the inode of its link identifies a device, and no number is
// read.
func TestUSBDeviceIsReadOncePerLink(t *testing.T) {
	t.Parallel()
	reads, numbers := 0, 0
	r := &usbReader{
		read: func(string) (device.USB, error) {
			reads++
			return device.USB{Serial: "A1"}, nil
		},
		number: func(string) string {
			numbers++
			return "7" // of the next device after a wraparound
		},
	}
	for _, step := range []struct {
		ino                    uint64
		wantReads, wantNumbers int
	}{{71, 1, 2}, {71, 1, 2}, {72, 2, 4}, {72, 2, 4}} {
		e := usbEntries("1-1")[0]
		e.Ino = step.ino
		if got := r.device(t.Context(), e, time.Minute); got.err != nil || got.device.Serial != "A1" {
			t.Fatal(got)
		}
		if reads != step.wantReads || numbers != step.wantNumbers {
			t.Errorf("%+v: %d reads of devices and %d of numbers", step, reads, numbers)
		}
	}
}

// A process restarted in the same boot knows the present devices, however slow they are
// to read; it reads those with another inode or number, and reports that they may be
// the known ones.
func TestKnownUSBDevicesSurviveARestart(t *testing.T) {
	t.Parallel()
	link := sysfs.Entry{Name: "1-1", Path: "1-1", Ino: 71}
	first := &Scanner{}
	first.usb.number = devnum("7")
	first.usb.read = func(string) (device.USB, error) {
		return device.USB{Vendor: "0403", Product: "6001", Serial: "A1", Speed: "12"}, nil
	}
	want := first.usb.device(t.Context(), link, time.Minute)
	known := first.KnownUSB()
	if want.known || len(known) != 1 {
		t.Fatal(want, known)
	}
	for _, c := range []struct {
		name, number string
		ino          uint64
		known        bool
	}{{"the same", "7", 71, true}, {"another inode", "7", 72, false}, {"another number", "8", 71, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Scanner{}
				s.usb.number = devnum(c.number)
				s.usb.read = func(string) (device.USB, error) {
					time.Sleep(300 * time.Millisecond)
					return device.USB{Serial: "B2"}, nil
				}
				s.RestoreUSB(known)
				e := link
				e.Ino = c.ino
				got := s.usb.device(t.Context(), e, slowAfter)
				if c.known && (!got.known || got.device.Serial != "A1") || !c.known && (got.err != errSlow || got.replaces) {
					t.Errorf("%+v", got)
				}
				time.Sleep(time.Second)
				if c.known {
					// Once it is verified, a reused number does not matter.
					s.usb.number = devnum("8")
				}
				if got := s.usb.device(t.Context(), e, slowAfter); !got.known {
					t.Errorf("later: %+v", got)
				}
			})
		})
	}
	first.usb.forgetOthers(nil)
	if known := first.KnownUSB(); len(known) > 0 {
		t.Errorf("%v; want nothing", known)
	}
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
