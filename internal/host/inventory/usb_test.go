package inventory

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

func usbEntries(names ...string) []sysfs.Entry {
	var list []sysfs.Entry
	for _, n := range names {
		list = append(list, sysfs.Entry{Name: n, Path: n, Ino: 7})
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
		r := &usbReader{read: func(dir string) (device.USB, error) {
			if dir == "1-2" {
				reads.Add(1)
				<-hangs
			}
			return device.USB{Serial: "of " + dir}, nil
		}}
		r.calls.Late = func(sysfs.Entry) { late.Add(1) }
		check := func(scan string, wantTime time.Duration, wantErr error) {
			t.Helper()
			start := time.Now()
			for _, e := range usbEntries("1-1", "1-2", "1-3") {
				u, isNew, err := r.device(t.Context(), e, slowAfter)
				if e.Name == "1-2" && wantErr != nil {
					if err != wantErr || isNew {
						t.Errorf("%s: %s: %+v, %v; want %v", scan, e.Name, u, err, wantErr)
					}
				} else if err != nil || u.Serial != "of "+e.Name {
					t.Errorf("%s: %s: %+v, %v", scan, e.Name, u, err)
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

// The inode of its link identifies a device: a known one is not read again, so that a
// reset of it blocks nothing. Without inodes each scan reads it.
func TestUSBDeviceIsReadOncePerLink(t *testing.T) {
	t.Parallel()
	reads := 0
	r := &usbReader{read: func(string) (device.USB, error) {
		reads++
		return device.USB{Serial: "A1"}, nil
	}}
	for _, step := range []struct {
		ino       uint64
		plugged   bool
		wantReads int
	}{{71, true, 1}, {71, true, 1}, {72, true, 2}, {72, true, 2}, {72, false, 2}, {72, true, 3}, {0, true, 4}, {0, true, 5}} {
		if !step.plugged {
			r.forgetOthers(nil)
			continue
		}
		e := usbEntries("1-1")[0]
		e.Ino = step.ino
		if u, _, err := r.device(t.Context(), e, time.Minute); err != nil || u.Serial != "A1" {
			t.Fatal(u, err)
		}
		if reads != step.wantReads {
			t.Errorf("%+v: %d reads", step, reads)
		}
	}
}

// A process restarted in the same boot knows the present devices, however slow they are
// to read; it reads those with another inode, and reports that they are not the known ones.
func TestKnownUSBDevicesSurviveARestart(t *testing.T) {
	t.Parallel()
	link := sysfs.Entry{Name: "1-1", Path: "1-1", Ino: 71}
	first := &Scanner{}
	first.usb.read = func(string) (device.USB, error) {
		return device.USB{Vendor: "0403", Product: "6001", Serial: "A1", Speed: "12"}, nil
	}
	if _, _, err := first.usb.device(t.Context(), link, time.Minute); err != nil {
		t.Fatal(err)
	}
	known := first.KnownUSB()
	if len(known) != 1 {
		t.Fatal(known)
	}
	for name, ino := range map[string]uint64{"the same": 71, "another inode": 72} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Scanner{}
				s.usb.read = func(string) (device.USB, error) {
					time.Sleep(300 * time.Millisecond)
					return device.USB{Serial: "B2"}, nil
				}
				s.RestoreUSB(known)
				e := link
				e.Ino = ino
				u, isNew, err := s.usb.device(t.Context(), e, slowAfter)
				if ino == link.Ino {
					if err != nil || u.Serial != "A1" {
						t.Errorf("%+v, %v", u, err)
					}
					return
				}
				if err != errSlow || !isNew {
					t.Errorf("%+v, new: %t, %v", u, isNew, err)
				}
				time.Sleep(time.Second)
				if u, _, err := s.usb.device(t.Context(), e, 0); err != nil || u.Serial != "B2" {
					t.Errorf("later: %+v, %v", u, err)
				}
			})
		})
	}
	first.usb.forgetOthers(nil)
	if known := first.KnownUSB(); len(known) > 0 {
		t.Errorf("%v; want nothing", known)
	}
}
