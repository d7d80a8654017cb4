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
	"github.com/generic-dp/generic-dp/sysfs"
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
	}
	came, _ := nowOnBus(c.mem.usbDirs, entries, interfaces)
	patience := slowAfter
	if !c.whole {
		patience = slowUpdate
	}
	results, err := s.usb.all(ctx, entries, patience)
	if err != nil {
		return err
	}
	if !c.whole {
		for i, e := range entries {
			if !results[i].known {
				came = append(came, e.Path)
			}
		}
		c.mem.forget(came)
	}
	for i, e := range entries {
		d, err := results[i].device, results[i].err
		if sysfs.Gone(err) {
			c.doubt = c.doubt || s.usbMoved(c, e)
			continue
		}
		if errors.Is(err, errSlow) {
			c.again = true
			c.slow[e.Path] = true
			continue
		}
		if err != nil {
			c.problem(e.Path, err)
		}
		if errors.Is(err, errNoAnswer) {
			c.again = true
			continue
		}
		u := &device.USB{
			Vendor: d.Vendor, Product: d.Product, Serial: d.Serial, Manufacturer: d.Manufacturer,
			ProductName: d.ProductName, Class: d.Class, Speed: d.Speed, Port: e.Name,
		}
		u.Controller, u.Chain = usbPlace(e.Path, e.Name)
		c.hardware[e.Path] = &device.Hardware{Bus: device.USBBus, Path: e.Path, Name: e.Name, NUMA: -1, USB: u}
	}
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
	return nil
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

// errNoAnswer says that reading a device has taken too long.
var errNoAnswer = errors.New("does not answer: its driver or a reset holds its lock")

// The kernel holds the lock of a new device until its drivers are bound, some
// 100 ms as a rule.
const (
	// slowAfter is how long a scan of everything waits for one USB device, and
	// slowUpdate how long the scan waits that follows an event: the next one
	// comes as soon as the device answers.
	slowAfter  = 50 * time.Millisecond
	slowUpdate = 5 * time.Millisecond
	// hangsAfter is when a device that does not answer is a problem.
	hangsAfter = time.Second
)

// errSlow says that a device is being set up: no problem yet.
var errSlow = errors.New("is being set up")

// slowReader reads USB devices, each of which may block in the kernel for as
// long as a driver probes it or a reset lasts, and for ever if its driver
// hangs. One that does is left out; the rest of the host is not kept waiting,
// neither now nor by the next scans. What was read of a device stays true for
// as long as its link, or without that its number, is the same, so that only new
// ones are ever waited for.
type slowReader struct {
	read func(dir string) (sysfs.USBDevice, error)
	// number is the devnum of a device, which the kernel shows without the
	// lock and gives anew at each enumeration; empty where there is none. It
	// tells devices apart where the inodes of their links do not.
	number func(dir string) string
	// late is told of an answer that a scan did not wait for.
	late func()

	mu    sync.Mutex
	busy  map[string]*usbRead // what is being read, by directory
	known map[string]knownUSB
}

type knownUSB struct {
	ino    uint64
	number string
	device sysfs.USBDevice
}

// usbRead is a device that is being read.
type usbRead struct {
	since     time.Time
	abandoned bool // a scan went on without it
	done      chan struct{}
	result    usbResult // once done is closed
}

type usbResult struct {
	device sysfs.USBDevice
	known  bool // it was read before
	err    error
}

// all reads all entries, one after the other, and waits for each no longer
// than patience; the results are in the same order.
func (r *slowReader) all(ctx context.Context, entries []sysfs.Entry, patience time.Duration) ([]usbResult, error) {
	results := make([]usbResult, len(entries))
	r.forget(entries)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for i, e := range entries {
		known, reading := r.begin(e)
		if known != nil {
			results[i] = usbResult{device: *known, known: true}
			continue
		}
		timer.Reset(patience)
		if time.Since(reading.since) >= hangsAfter {
			timer.Reset(0)
		}
		select {
		case <-reading.done:
			results[i] = reading.result
		case <-timer.C:
			results[i] = r.abandon(reading)
		case <-ctx.Done():
			return nil, fmt.Errorf("scanning the usb devices: %w", ctx.Err())
		}
	}
	return results, nil
}

// begin returns what is known of a device, or else the reading of it, which may
// have begun in an earlier scan.
func (r *slowReader) begin(e sysfs.Entry) (known *sysfs.USBDevice, reading *usbRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.known[e.Path]; ok && k.ino == e.Ino && (e.Ino != 0 || k.number == r.numberOf(e.Path)) {
		return &k.device, nil
	}
	if reading = r.busy[e.Path]; reading != nil {
		return nil, reading
	}
	if r.busy == nil {
		r.busy, r.known = make(map[string]*usbRead), make(map[string]knownUSB)
	}
	reading = &usbRead{since: time.Now(), done: make(chan struct{})}
	r.busy[e.Path] = reading
	go r.run(e, reading)
	return nil, reading
}

// run reads a device, for as long as that takes.
func (r *slowReader) run(e sysfs.Entry, reading *usbRead) {
	number := r.numberOf(e.Path)
	d, err := r.read(e.Path)
	if err == nil && r.numberOf(e.Path) != number {
		// Half of it is one device's and half the next one's.
		err = fmt.Errorf("another device came into its place: %w", unix.ENODEV)
	}
	r.mu.Lock()
	delete(r.busy, e.Path)
	if err == nil && number != "" {
		r.known[e.Path] = knownUSB{e.Ino, number, d}
	}
	reading.result = usbResult{device: d, err: err}
	close(reading.done)
	abandoned := reading.abandoned
	r.mu.Unlock()
	if abandoned && r.late != nil {
		r.late()
	}
}

// abandon leaves a reading to itself, unless it has ended just now.
func (r *slowReader) abandon(reading *usbRead) usbResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-reading.done:
		return reading.result
	default:
	}
	reading.abandoned = true
	if time.Since(reading.since) < hangsAfter {
		return usbResult{err: errSlow}
	}
	return usbResult{err: errNoAnswer}
}

func (r *slowReader) numberOf(dir string) string {
	if r.number == nil {
		return ""
	}
	return r.number(dir)
}

// forget drops what is known of devices that are not among entries.
func (r *slowReader) forget(entries []sysfs.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) == 0 {
		return
	}
	here := make(map[string]bool, len(entries))
	for _, e := range entries {
		here[e.Path] = true
	}
	maps.DeleteFunc(r.known, func(dir string, _ knownUSB) bool { return !here[dir] })
}
