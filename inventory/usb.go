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
func (s *Scanner) readUSB(ctx context.Context, c *scan) error {
	entries, interfaces, err := s.sysfs.USBAgain(c.mem.usbDirs)
	if notExist(err) {
		return nil
	}
	if err != nil {
		c.problem("bus/usb/devices", err)
		if entries == nil {
			c.noBus = append(c.noBus, device.USBBus)
		}
	} else {
		s.usb.forgetOthers(entries)
	}
	came, _ := nowOnBus(c.mem.usbDirs, entries, interfaces)
	patience := slowAfter
	if !c.whole {
		patience = slowUpdate
	}
	results := make([]usbResult, len(entries))
	for i, e := range entries {
		results[i] = s.usb.device(ctx, e, patience)
		if !results[i].known {
			came = append(came, e.Path)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("scanning the usb devices: %w", err)
	}
	if !c.whole {
		c.mem.forget(came)
	}
	for i, e := range entries {
		d, err := results[i].device, results[i].err
		switch {
		case sysfs.Gone(err):
			c.doubt = c.doubt || s.usbMoved(c, e)
			continue
		case err == errSlow, err == errHangs:
			c.slow[e.Path] = true
			c.unread = append(c.unread, device.Unread{Path: e.Path, New: results[i].replaces})
			if err == errHangs {
				c.problem(e.Path, err)
			}
			continue
		case err != nil:
			c.problem(e.Path, err)
		}
		u := &device.USB{
			Vendor: d.Vendor, Product: d.Product, Serial: d.Serial, Manufacturer: d.Manufacturer,
			ProductName: d.ProductName, Class: d.Class, Speed: d.Speed, Port: e.Name,
		}
		u.Controller, u.Chain = usbPlace(e.Path, e.Name)
		c.hardware[e.Path] = &device.Hardware{Bus: device.USBBus, Path: e.Path, Name: e.Name, NUMA: -1, USB: u}
	}
	s.readUSBInterfaces(c, interfaces)
	return nil
}

func (s *Scanner) readUSBInterfaces(c *scan, interfaces []sysfs.Entry) {
	for _, e := range interfaces {
		h := c.hardware[up(e.Path)]
		if h == nil || h.USB == nil {
			continue
		}
		i, err := recall(c.mem.interfaces, e.Path, s.sysfs.USBInterface)
		if sysfs.Gone(err) {
			continue
		}
		if err != nil {
			c.problem(e.Path, err)
			c.interfaces[e.Path] = -1
			continue
		}
		c.interfaces[e.Path] = i.Number
		h.USB.Interfaces = append(h.USB.Interfaces, device.USBInterface{Number: i.Number, Class: i.Class, Driver: i.Driver})
	}
}

// usbMoved reports whether a device that is not where it was remembered to be is
// somewhere else now, under the same name.
func (s *Scanner) usbMoved(c *scan, e sysfs.Entry) bool {
	delete(c.mem.usbDirs, e.Name)
	dir, err := s.sysfs.USBDir(e.Name)
	return !c.whole && err == nil && dir != e.Path
}

// usbDevice reads a device that is on the bus. The kernel puts it there when it
// has all its attributes (device_add in drivers/base/core.c); one that is about
// to come may have some of them, and would be taken for a device without serial.
func (s *Scanner) usbDevice(dir string) (sysfs.USBDevice, error) {
	now, err := s.sysfs.USBDir(base(dir))
	if err != nil {
		return sysfs.USBDevice{}, err
	}
	if now != dir {
		return sysfs.USBDevice{}, fmt.Errorf("is elsewhere now: %w", unix.ENODEV)
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
	read func(dir string) (sysfs.USBDevice, error)
	// number is the devnum of a device, which the kernel shows without the lock and
	// counts up at each enumeration; empty where there is none. It tells devices apart
	// where the inodes of their links do not.
	number func(dir string) string
	calls  slow.Calls[usbLink, usbResult]

	mu      sync.Mutex
	known   map[string]KnownUSB // by directory
	changed bool                // known is not what was saved
}

// usbLink is a device on the bus: its directory and the inode of its link.
type usbLink struct {
	dir string
	ino uint64
}

type usbResult struct {
	device sysfs.USBDevice
	known  bool // it was read before
	// replaces says that another device was read in this place before.
	replaces bool
	err      error
}

// device returns what is known of a device, or reads it.
func (r *usbReader) device(ctx context.Context, e sysfs.Entry, patience time.Duration) usbResult {
	if d := r.lookup(e); d != nil {
		return usbResult{device: *d, known: true}
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

// replaces reports whether another device than that in dir now was read there by this
// process.
func (r *usbReader) replaces(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[dir]
	return ok && !k.restored
}

// lookup returns what is known of a device, nil for nothing.
func (r *usbReader) lookup(e sysfs.Entry) *sysfs.USBDevice {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[e.Path]
	if !ok || k.Ino != e.Ino || (k.restored || e.Ino == 0) && k.Number != r.number(e.Path) {
		return nil
	}
	if k.restored {
		k.restored = false
		r.known[e.Path] = k
	}
	return &k.Device
}

func (r *usbReader) readNew(e sysfs.Entry) usbResult {
	number := r.number(e.Path)
	d, err := r.read(e.Path)
	if err == nil && r.number(e.Path) != number {
		// Half of it is one device's and half the next one's.
		err = fmt.Errorf("another device came into its place: %w", unix.ENODEV)
	}
	if err == nil && (number != "" || e.Ino != 0) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known == nil {
			r.known = make(map[string]KnownUSB)
		}
		r.known[e.Path] = KnownUSB{Ino: e.Ino, Number: number, Device: d}
		r.changed = true
	}
	return usbResult{device: d, err: err}
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
	before := len(r.known)
	maps.DeleteFunc(r.known, func(dir string, _ KnownUSB) bool { return !here[dir] })
	r.changed = r.changed || len(r.known) != before
}
