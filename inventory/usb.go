package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/slow"
	"github.com/generic-dp/generic-dp/sysfs"
)

// The kernel holds the lock of a new device until its drivers are bound, typically some
// 100 ms.
const (
	// slowAfter is the timeout of one read in a full scan, and slowUpdate that of a USB
	// device in an incremental scan: the next scan follows when it responds.
	slowAfter  = 50 * time.Millisecond
	slowUpdate = 5 * time.Millisecond
	// hangsAfter is when an unreadable device becomes a problem.
	hangsAfter = time.Second
)

var (
	errSlow  = errors.New("can't be read yet")
	errHangs = errors.New("can't be read: its driver or a reset holds its lock")
)

// readUSB adds every USB device of the host. It reads sysfs: ghw's list of USB devices
// (v0.26) has neither the kernel's name nor serial, bus or device number, so that it
// can't relate nodes to devices.
func (s *Scanner) readUSB(ctx context.Context, c *scan) {
	entries, interfaces, err := s.sysfs.USB(c.cache.onUSB)
	if notExist(err) {
		return
	}
	c.problems.add("bus/usb/devices", err)
	if err != nil && entries == nil {
		c.noBus = append(c.noBus, device.USBBus)
	}
	came := updateBus(c.cache.onUSB, entries, interfaces)
	if err == nil {
		s.usb.forgetOthers(c.cache.onUSB)
	}
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
		u.Controller = usbController(e.Path, isCounted)
		// The ports: "1.4" of "1-1.4", "" for a root hub.
		_, u.Chain, _ = strings.Cut(e.Name, "-")
		c.add(&device.Hardware{Bus: device.USBBus, Path: e.Path, Name: e.Name, NUMA: -1, USB: &u})
	}
	for _, e := range interfaces {
		h := c.hardware[up(e.Path)]
		if h == nil || h.USB == nil {
			continue
		}
		i, err := cached(&c.cache.of(e.Path).usb, e.Path, s.sysfs.USBInterface)
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		c.interfaces[e.Path] = i.Number
		h.USB.Interfaces = append(h.USB.Interfaces, i)
		if list := h.USB.Interfaces; len(list) > 1 {
			sort.Slice(list, func(i, j int) bool { return list[i].Number < list[j].Number })
		}
	}
}

// usbMoved reports whether a device has another directory than the cached one, with the
// same name.
func (s *Scanner) usbMoved(c *scan, e sysfs.Entry) bool {
	delete(c.cache.onUSB, e.Name)
	dir, err := s.sysfs.USBDir(e.Name)
	return !c.full && err == nil && dir != e.Path
}

// usbDevice reads a device that is on the bus. The kernel adds it there when it has all
// its attributes (device_add in drivers/base/core.c); before, it may have some of them,
// and would be a device without serial.
func (s *Scanner) usbDevice(dir string) (device.USB, error) {
	now, err := s.sysfs.USBDir(base(dir))
	if err != nil {
		return device.USB{}, err
	}
	if now != dir {
		return device.USB{}, fmt.Errorf("has moved: %w", unix.ENODEV)
	}
	return s.sysfs.USBDevice(dir)
}

// usbController returns the name of the host controller of a USB device, a PCI address or
// the name of a platform device. A controller with a counted name, made by the driver of
// a dual-role controller (dwc3_host_init, ci_hdrc_add_device), goes by the name of that.
func usbController(dir string, counted func(name string) bool) string {
	for !isRootHub(base(dir)) {
		if dir = up(dir); dir == "" {
			return ""
		}
	}
	controller := up(dir)
	for dir = controller; up(dir) != ""; dir = up(dir) {
		if name := base(dir); device.IsPCIAddress(name) || !counted(name) {
			return name
		}
	}
	return base(controller)
}

// usbReader reads USB devices, each of which may block in the kernel while a driver
// probes it or a reset lasts, and forever if its driver hangs. Neither the rest of the
// scan nor later scans wait for a blocked one. The data of a device is valid as long as
// its link, or without inodes its number, is the same, also over a restart (KnownUSB),
// so that only new devices are ever awaited.
type usbReader struct {
	read func(dir string) (device.USB, error)
	// number is the devnum of a device, which the kernel shows without the lock and
	// increments at each enumeration; empty if there is none. It distinguishes devices
	// where the inodes of their links do not.
	number func(dir string) string
	calls  slow.Calls[usbLink, usbResult]

	mu    sync.Mutex
	known map[string]device.KnownUSB // by directory
	// restored are those read by an earlier process, not yet compared with the host.
	restored map[string]bool
}

// usbLink is a device on the bus: its directory and the inode of its link.
type usbLink struct {
	dir string
	ino uint64
}

type usbResult struct {
	device *device.USB // nil only with err; err may also be about a part
	known  bool        // read before
	// replaces is set if another device was read in this place before.
	replaces bool
	err      error
}

// device returns the cached device, or reads it.
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

// lookup returns the cached device, nil for none. The number of a device is read if the
// inode is not sufficient: without one, and once after a restart.
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

// replaces reports whether this process read another device than the current one in
// dir.
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
		// One part is of one device and another of the next.
		err = fmt.Errorf("was replaced by another device: %w", unix.ENODEV)
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

// forgetOthers drops devices that are not on the bus.
func (r *usbReader) forgetOthers(bus map[string]sysfs.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(dir string, _ device.KnownUSB) bool { return bus[base(dir)].Path != dir })
}

// KnownUSB returns the USB devices read so far, by sysfs path, for RestoreUSB.
func (s *Scanner) KnownUSB() map[string]device.KnownUSB {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	return maps.Clone(s.usb.known)
}

// RestoreUSB restores the USB devices read by an earlier process in the same boot:
// unchanged ones need not be read again, which may take longer than a pod waits. Call
// it before the first scan.
func (s *Scanner) RestoreUSB(known map[string]device.KnownUSB) {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	s.usb.known, s.usb.restored = maps.Clone(known), make(map[string]bool, len(known))
	for dir := range known {
		s.usb.restored[dir] = true
	}
}
