package inventory

import (
	"context"
	"errors"
	"maps"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
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
	var devices, interfaces []sysfs.Entry
	for _, e := range c.onBus(device.USBBus, s.sysfs.USB) {
		if strings.Contains(e.Name, ":") {
			interfaces = append(interfaces, e)
		} else {
			devices = append(devices, e)
		}
	}
	s.usb.forgetOthers(c.cache.onBus[device.USBBus])
	patience := slowAfter
	if !c.full {
		patience = slowUpdate
	}
	for _, e := range devices {
		u, err := s.usb.device(ctx, e, patience)
		if sysfs.Gone(err) {
			continue
		} else if err == errSlow || err == errHangs {
			c.unread[e.Path] = device.UnreadHardware{Path: e.Path, New: s.usb.replaces(e.Path)}
			if err == errHangs {
				c.problems.add(e.Path, err)
			}
			continue
		}
		c.problems.add(e.Path, err)
		u.Port = e.Name
		u.Controller = usbController(e.Path)
		// The ports: "1.4" of "1-1.4", "" for a root hub.
		_, u.Chain, _ = strings.Cut(e.Name, "-")
		c.add(&device.Hardware{
			Bus:  device.USBBus,
			Path: e.Path,
			Name: e.Name,
			NUMA: -1,
			USB:  &u,
		})
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

// usbController returns the name of the host controller of a USB device, a PCI address or
// the name of a platform device. A controller with a counted name goes by the dual-role
// controller whose driver made it (dwc3_host_init, ci_hdrc_add_device).
func usbController(dir string) string {
	for !isRootHub(base(dir)) {
		if dir = up(dir); dir == "" {
			return ""
		}
	}
	controller := up(dir)
	for dir = controller; up(dir) != ""; dir = up(dir) {
		if name := base(dir); device.IsPCIAddress(name) || !isCounted(name) {
			return name
		}
	}
	return base(controller)
}

// usbReader reads USB devices, each of which may block in the kernel while a driver
// probes it or a reset lasts, and forever if its driver hangs. Neither the rest of the
// scan nor later scans wait for a blocked one. The data of a device is valid as long as
// its link has the same inode, also over a restart (KnownUSB), so that only new devices
// are ever awaited.
type usbReader struct {
	read  func(dir string) (device.USB, error)
	calls slow.Calls[sysfs.Entry, usbResult]

	mu    sync.Mutex
	known map[string]device.KnownUSB // by directory
	// restored are those read by an earlier process, not yet seen by this one.
	restored map[string]bool
}

type usbResult struct {
	device.USB // with an error, the readable part
	err        error
}

// device returns the cached device, or reads it.
func (r *usbReader) device(ctx context.Context, e sysfs.Entry, patience time.Duration) (device.USB, error) {
	if u, ok := r.lookup(e); ok {
		return u, nil
	}
	result, running, ok := r.calls.Do(ctx, e, patience, func() usbResult {
		return r.readNew(e)
	})
	if ok {
		return result.USB, result.err
	} else if running < hangsAfter {
		return device.USB{}, errSlow
	}
	return device.USB{}, errHangs
}

func (r *usbReader) lookup(e sysfs.Entry) (u device.USB, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[e.Path]
	if !ok || e.Ino == 0 || k.Inode != e.Ino {
		return u, false
	}
	delete(r.restored, e.Path)
	return k.USB, true
}

// replaces reports whether this process saw another device than the current one in
// dir.
func (r *usbReader) replaces(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.known[dir]
	return known && !r.restored[dir]
}

func (r *usbReader) readNew(e sysfs.Entry) usbResult {
	u, err := r.read(e.Path)
	if err == nil && e.Ino != 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known == nil {
			r.known = make(map[string]device.KnownUSB)
		}
		r.known[e.Path] = device.KnownUSB{Inode: e.Ino, USB: u}
		delete(r.restored, e.Path)
	}
	return usbResult{u, err}
}

// forgetOthers drops devices that are not on the bus.
func (r *usbReader) forgetOthers(bus map[string]sysfs.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(dir string, _ device.KnownUSB) bool {
		return bus[base(dir)].Path != dir
	})
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
