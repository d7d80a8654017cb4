package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	entries, interfaces, err := s.sysfs.USB()
	if notExist(err) {
		return nil
	}
	if err != nil {
		c.problem("bus/usb/devices", err)
		if entries == nil {
			c.noBus = append(c.noBus, device.USBBus)
		}
	}
	results, err := s.usb.all(ctx, entries)
	if err != nil {
		return err
	}
	for i, e := range entries {
		d, err := results[i].device, results[i].err
		if sysfs.Gone(err) {
			continue
		}
		if errors.Is(err, errSlow) {
			c.again = true
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
		i, err := s.sysfs.USBInterface(e.Path)
		if sysfs.Gone(err) {
			continue
		}
		if err != nil {
			c.problem(e.Path, err)
			continue
		}
		c.interfaces[e.Path] = i.Number
		h.USB.Interfaces = append(h.USB.Interfaces, device.USBInterface{Number: i.Number, Class: i.Class, Driver: i.Driver})
	}
	return nil
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

// slowAfter is how long a scan waits for one USB device. The kernel holds the
// lock of a new one until its drivers are bound, some 100 ms as a rule, and
// sends an event then, which is when the next scan finds it.
const slowAfter = 50 * time.Millisecond

// errSlow says that a device is waited for the first time: no problem yet.
var errSlow = errors.New("is being set up")

// slowReader reads USB devices, each of which may block in the kernel for as
// long as a driver probes it or a reset lasts, and for ever if its driver
// hangs. One that does is left out; the rest of the host is not kept waiting,
// neither now nor by the next scans. What was read of a device stays true for
// as long as it has its number, so that only new ones are ever waited for.
type slowReader struct {
	read func(dir string) (sysfs.USBDevice, error)
	// number is the devnum of a device, which the kernel shows without the
	// lock and gives anew at each enumeration; empty where there is none.
	number func(dir string) string

	mu    sync.Mutex
	busy  map[string]bool // directories that are still being read
	known map[string]knownUSB
}

type knownUSB struct {
	number string
	device sysfs.USBDevice
}

type usbResult struct {
	device sysfs.USBDevice
	err    error
}

// all reads all entries, one after the other; the results are in the same
// order. It takes one goroutine, and one more for each device that does not
// answer.
func (r *slowReader) all(ctx context.Context, entries []sysfs.Entry) ([]usbResult, error) {
	results := make([]usbResult, len(entries))
	r.forget(entries)
	timer := time.NewTimer(slowAfter)
	defer timer.Stop()
	dirs, answers := r.start()
	defer func() { close(dirs) }()
	for i, e := range entries {
		known, free := r.begin(e.Path)
		if known != nil {
			results[i].device = *known
			continue
		}
		if !free {
			results[i].err = errNoAnswer
			continue
		}
		dirs <- e.Path
		timer.Reset(slowAfter)
		select {
		case results[i] = <-answers:
		case <-timer.C:
			results[i].err = errSlow
			close(dirs)
			dirs, answers = r.start()
		case <-ctx.Done():
			return nil, fmt.Errorf("scanning the usb devices: %w", ctx.Err())
		}
	}
	return results, nil
}

// start returns the two ends of a goroutine that reads directories until dirs
// is closed. It never waits for someone to take an answer.
func (r *slowReader) start() (dirs chan<- string, answers <-chan usbResult) {
	in, out := make(chan string, 1), make(chan usbResult, 1)
	go func() {
		for dir := range in {
			number := r.numberOf(dir)
			d, err := r.read(dir)
			if err == nil && r.numberOf(dir) != number {
				// Half of it is one device's and half the next one's.
				err = fmt.Errorf("another device came into its place: %w", unix.ENODEV)
			}
			r.end(dir, number, d, err)
			out <- usbResult{device: d, err: err}
		}
	}()
	return in, out
}

func (r *slowReader) numberOf(dir string) string {
	if r.number == nil {
		return ""
	}
	return r.number(dir)
}

// begin returns what is known of a device, or reports whether nobody reads it
// already, and notes that someone does.
func (r *slowReader) begin(dir string) (known *sysfs.USBDevice, free bool) {
	number := r.numberOf(dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.known[dir]; ok && k.number == number {
		return &k.device, false
	}
	if r.busy[dir] {
		return nil, false
	}
	if r.busy == nil {
		r.busy = make(map[string]bool)
	}
	r.busy[dir] = true
	return nil, true
}

// end takes down what was read while the device had a number.
func (r *slowReader) end(dir, number string, d sysfs.USBDevice, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, dir)
	if err != nil || number == "" {
		return
	}
	if r.known == nil {
		r.known = make(map[string]knownUSB)
	}
	r.known[dir] = knownUSB{number, d}
}

// forget drops what is known of devices that are not among entries.
func (r *slowReader) forget(entries []sysfs.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(dir string, _ knownUSB) bool {
		return !slices.ContainsFunc(entries, func(e sysfs.Entry) bool { return e.Path == dir })
	})
}
