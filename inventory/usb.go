package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/slow"
	"github.com/generic-dp/generic-dp/sysfs"
)

// The kernel holds the lock of a new device until its drivers are bound, some
// 100 ms as a rule.
const (
	// slowAfter is how long a full scan waits for one read, and slowUpdate how long an
	// incremental scan waits for a USB device: the next scan follows when it answers.
	slowAfter  = 50 * time.Millisecond
	slowUpdate = 5 * time.Millisecond
	// hangsAfter is when a device that can't be read is a problem.
	hangsAfter = time.Second
)

var (
	errSlow  = errors.New("can't be read yet")
	errHangs = errors.New("can't be read: its driver or a reset holds its lock")
)

// readUSB adds every USB device of the host. It comes from sysfs: ghw's list
// of USB devices (v0.26) has neither the kernel's name nor serial, bus or
// device number, so it can't say which node belongs to which device.
func (s *Scanner) readUSB(ctx context.Context, c *scan) {
	entries, interfaces, err := s.sysfs.USB(c.cache.onUSB)
	if notExist(err) {
		return
	}
	c.problems.add("bus/usb/devices", err)
	if err == nil {
		s.usb.forgetOthers(entries)
	} else if entries == nil {
		c.noBus = append(c.noBus, device.USBBus)
	}
	came, _ := updateBus(c.cache.onUSB, entries, interfaces)
	patience := slowAfter
	if !c.full {
		patience = slowUpdate
	}
	results := make([]usbResult, len(entries))
	for i, e := range entries {
		results[i] = s.usb.device(ctx, e, patience)
		if !results[i].known {
			came = append(came, e.Path)
		}
	}
	if !c.full {
		c.cache.drop(came)
	}
	for i, e := range entries {
		err := results[i].err
		switch {
		case sysfs.Gone(err):
			c.misfit = c.misfit || s.usbMoved(c, e)
			continue
		case err == errSlow, err == errHangs:
			c.unread[e.Path] = device.Unread{Path: e.Path, New: results[i].replaces}
			if err == errHangs {
				c.problems.add(e.Path, err)
			}
			continue
		}
		c.problems.add(e.Path, err)
		u := *results[i].device
		u.Port = e.Name
		u.Controller, u.Chain = usbPlace(e.Path, e.Name)
		c.hardware[e.Path] = &device.Hardware{Bus: device.USBBus, Path: e.Path, Name: e.Name, NUMA: -1, USB: &u}
	}
	for _, e := range interfaces {
		h := c.hardware[up(e.Path)]
		if h == nil || h.USB == nil {
			continue
		}
		i, err := c.cache.interfaces.get(e.Path, s.sysfs.USBInterface)
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		if err != nil {
			c.interfaces[e.Path] = -1
			continue
		}
		c.interfaces[e.Path] = i.Number
		h.USB.Interfaces = append(h.USB.Interfaces, i)
	}
}

// usbMoved reports whether a device that is not where it was remembered to be is
// somewhere else now, under the same name.
func (s *Scanner) usbMoved(c *scan, e sysfs.Entry) bool {
	delete(c.cache.onUSB, e.Name)
	dir, err := s.sysfs.USBDir(e.Name)
	return !c.full && err == nil && dir != e.Path
}

// usbDevice reads a device that is on the bus. The kernel puts it there when it
// has all its attributes (device_add in drivers/base/core.c); one that is about
// to come may have some of them, and would be taken for a device without serial.
func (s *Scanner) usbDevice(dir string) (device.USB, error) {
	now, err := s.sysfs.USBDir(base(dir))
	if err != nil {
		return device.USB{}, err
	}
	if now != dir {
		return device.USB{}, fmt.Errorf("is elsewhere now: %w", unix.ENODEV)
	}
	return s.sysfs.USBDevice(dir)
}

// usbPlace returns the name of the host controller that a USB device is
// plugged in below, a PCI address or the name of a platform device, and the
// ports on the way to it: "1.4" of "1-1.4", "" for a root hub. An xHCI that
// the driver of a dual-role controller made (dwc3_host_init) goes by the name
// of that controller.
func usbPlace(dir, name string) (controller, chain string) {
	for d := dir; d != ""; d = up(d) {
		if !isRootHub(base(d)) {
			continue
		}
		controller = base(up(d))
		for above := up(d); above != ""; above = up(above) {
			if !isCounted(above) {
				controller = base(above)
				break
			}
		}
		break
	}
	_, chain, _ = strings.Cut(name, "-")
	return controller, chain
}

// usbReader reads USB devices, each of which may block in the kernel for as long as a
// driver probes it or a reset lasts, and for ever if its driver hangs. Nobody waits for
// one that does, neither the rest of the scan nor the next scans. What was read of a
// device stays true for as long as its link, or without that its number, is the same,
// also over a restart (KnownUSB), so that only new devices are ever waited for.
type usbReader struct {
	read func(dir string) (device.USB, error)
	// number is the devnum of a device, which the kernel shows without the lock and
	// counts up at each enumeration; empty where there is none. It tells devices apart
	// where the inodes of their links do not.
	number func(dir string) string
	calls  slow.Calls[usbLink, usbResult]

	mu    sync.Mutex
	known map[string]device.KnownUSB // by directory
	// restored are those that were read by an earlier process, and have not been compared
	// with the host yet.
	restored map[string]bool
}

// usbLink is a device on the bus: its directory and the inode of its link.
type usbLink struct {
	dir string
	ino uint64
}

type usbResult struct {
	device *device.USB // not nil where err is, or says that a part could not be read
	known  bool        // it was read before
	// replaces says that another device was read in this place before.
	replaces bool
	err      error
}

// device returns what is known of a device, or reads it.
func (r *usbReader) device(ctx context.Context, e sysfs.Entry, patience time.Duration) usbResult {
	if d := r.lookup(e); d != nil {
		return usbResult{device: d, known: true}
	}
	result, running, ok := r.calls.Do(ctx, usbLink{e.Path, e.Ino}, patience, func() usbResult { return r.readNew(e) })
	switch {
	case ok:
		return result
	case running < hangsAfter:
		return usbResult{err: errSlow, replaces: r.replaces(e.Path)}
	}
	return usbResult{err: errHangs, replaces: r.replaces(e.Path)}
}

// lookup returns what is known of a device, nil for nothing. The number of a device is
// read where the inode does not decide alone: without one, and once after a restart.
func (r *usbReader) lookup(e sysfs.Entry) *device.USB {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[e.Path]
	if !ok || k.Inode != e.Ino || (r.restored[e.Path] || e.Ino == 0) && k.Number != r.number(e.Path) {
		return nil
	}
	delete(r.restored, e.Path)
	return &k.USB
}

// replaces reports whether another device than that in dir now was read there by this
// process.
func (r *usbReader) replaces(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.known[dir]
	return known && !r.restored[dir]
}

func (r *usbReader) readNew(e sysfs.Entry) usbResult {
	number := r.number(e.Path)
	u, err := r.read(e.Path)
	if err == nil && r.number(e.Path) != number {
		// Half of it is one device's and half the next one's.
		err = fmt.Errorf("another device came into its place: %w", unix.ENODEV)
	}
	if err == nil && (number != "" || e.Ino != 0) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known == nil {
			r.known = make(map[string]device.KnownUSB)
		}
		r.known[e.Path] = device.KnownUSB{Inode: e.Ino, Number: number, USB: u}
		delete(r.restored, e.Path)
	}
	return usbResult{device: &u, err: err}
}

// forgetOthers drops what is known of devices that are not among entries.
func (r *usbReader) forgetOthers(entries []sysfs.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) == 0 {
		return
	}
	here := make(map[string]bool, len(entries))
	for _, e := range entries {
		here[e.Path] = true
	}
	maps.DeleteFunc(r.known, func(dir string, _ device.KnownUSB) bool { return !here[dir] })
}

// KnownUSB returns the USB devices that were read, by sysfs path, for RestoreUSB.
func (s *Scanner) KnownUSB() map[string]device.KnownUSB {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	return maps.Clone(s.usb.known)
}

// RestoreUSB takes over the USB devices that an earlier process has read in the same boot:
// those that are still there need not be read again, which may take longer than a pod is
// waited for. It is to be called before the first scan.
func (s *Scanner) RestoreUSB(known map[string]device.KnownUSB) {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	s.usb.known, s.usb.restored = maps.Clone(known), make(map[string]bool, len(known))
	for dir := range known {
		s.usb.restored[dir] = true
	}
}
