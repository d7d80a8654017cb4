package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// The kernel holds the lock of a new device until its drivers are bound. That typically takes some
// 100 ms.
const (
	// slowAfter is the timeout of an attribute, and of a USB device in the first scan.
	slowAfter = 50 * time.Millisecond
	// slowUpdate is the timeout of a USB device in later scans. Another scan follows when the device
	// responds.
	slowUpdate = 5 * time.Millisecond
	// hangsAfter is the time after which an unreadable device becomes a problem.
	hangsAfter = time.Second
)

var (
	errSlow  = errors.New("can't be read yet")
	errHangs = errors.New("can't be read: its driver or a reset holds its lock")
)

// readUSB adds every USB device of the host. It reads sysfs, because ghw's list of USB devices
// (v0.26) has neither the kernel's name nor serial number, bus or device number. Nodes therefore
// cannot be assigned to the devices of that list.
func (s *Scanner) readUSB(ctx context.Context, c *scan) {
	var devices, interfaces []sysfs.Entry
	paths := make(map[string]bool)
	for _, e := range c.onBus(device.USBBus) {
		// "1-2:1.0" is interface 0 in configuration 1 of device "1-2" (usb_set_configuration in
		// drivers/usb/core/message.c).
		if strings.Contains(e.Name, ":") {
			interfaces = append(interfaces, e)
		} else {
			e.Ino = c.sysfs.Inode(busDir(device.USBBus), e.Name)
			devices = append(devices, e)
			paths[e.Path] = true
		}
	}
	if c.unlisted != nil {
		return // the scan fails, and what is not listed is not forgotten
	}
	s.usb.forgetOthers(paths)
	patience := slowUpdate
	if s.last.Snapshot == nil {
		patience = slowAfter
	}
	for _, e := range devices {
		s.readUSBDevice(ctx, c, e, patience)
	}
	// Interfaces follow, because each of them is added to its device.
	for _, e := range interfaces {
		c.readUSBInterface(e)
	}
}

// readUSBDevice adds a USB device. It waits no longer than patience.
func (s *Scanner) readUSBDevice(ctx context.Context, c *scan, e sysfs.Entry, patience time.Duration) {
	u, isNew, err := s.usb.device(ctx, e, patience)
	if sysfs.Gone(err) {
		return
	}
	if err == errSlow || err == errHangs {
		c.unread[e.Path] = device.UnreadHardware{Path: e.Path, New: isNew}
	}
	// It may respond in a moment, and is no problem yet.
	if err == errSlow {
		return
	}
	c.problems.add(e.Path, err)
	if err == errHangs {
		return
	}
	u.Port = e.Name
	u.Controller = usbController(e.Path)
	// The chain of "1-1.4" is "1.4". A root hub has none.
	_, u.Chain, _ = strings.Cut(e.Name, "-")
	c.add(&device.Hardware{
		Bus:  device.USBBus,
		Path: e.Path,
		Name: e.Name,
		NUMA: -1,
		USB:  &u,
	})
}

// readUSBInterface adds an interface to its USB device. Its device may be missing, because it was
// removed or could not be read.
func (c *scan) readUSBInterface(e sysfs.Entry) {
	h := c.hardware[up(e.Path)]
	if h == nil || h.USB == nil {
		return
	}
	i, err := readInterface(c.sysfs, e)
	if sysfs.Gone(err) {
		return
	}
	c.problems.add(e.Path, err)
	c.interfaces[e.Path] = i.Number
	h.USB.Interfaces = append(h.USB.Interfaces, i)
	list := h.USB.Interfaces
	if len(list) > 1 {
		sort.Slice(list, func(i, j int) bool {
			return list[i].Number < list[j].Number
		})
	}
}

// readUSB reads the attributes of one device
// (Documentation/ABI/testing/sysfs-bus-usb). It returns the readable attributes and the errors
// of the others. Gone reports whether the error means that the device was removed.
//
// The kernel takes the device's lock for serial, manufacturer and product
// (usb_string_attr in drivers/usb/core/sysfs.c). It holds the lock while a driver probes the device and
// during a reset, which can take seconds.
func readUSB(fs sysfs.FS, dir string) (u device.USB, err error) {
	// The kernel adds a device to the bus when it has all its attributes (device_add in
	// drivers/base/core.c). Before that, its serial number may be missing.
	current, err := fs.Device(busDir(device.USBBus), base(dir))
	if err != nil {
		return u, err
	}
	if current != dir {
		return u, fmt.Errorf("is at another port: %w", sysfs.ErrGone)
	}
	d := fs.Dir(dir)
	for _, f := range u.Files() {
		*f.Value = d.Attr(f.Name)
	}
	err = d.Err()
	if err == nil && u.Vendor == "" {
		err = fmt.Errorf("idVendor: %w", sysfs.ErrGone)
	}
	u.Vendor = strings.ToLower(u.Vendor)
	u.Product = strings.ToLower(u.Product)
	u.Class = strings.ToLower(u.Class)
	return u, err
}

// readInterface reads the attributes of one interface. Its name contains its number, "1-1.4:1.0"
// (usb_set_configuration in drivers/usb/core/message.c). It returns the readable attributes and
// the errors of the others.
func readInterface(fs sysfs.FS, e sysfs.Entry) (i device.USBInterface, err error) {
	d := fs.Dir(e.Path)
	i.Driver = d.LinkBase("driver")
	i.Class = strings.ToLower(d.Attr("bInterfaceClass"))
	err = d.Err()
	if err == nil && i.Class == "" {
		err = fmt.Errorf("bInterfaceClass: %w", sysfs.ErrGone)
	}
	var nameErr error
	i.Number, nameErr = strconv.Atoi(e.Name[strings.LastIndexByte(e.Name, '.')+1:])
	if nameErr != nil {
		i.Number = -1
		nameErr = fmt.Errorf("%q is not the name of an interface", e.Name)
	}
	return i, errors.Join(nameErr, err)
}

// usbController returns the name of the host controller of a USB device: a PCI address or
// the name of a platform device. A controller with a counted name was made by the driver of a
// dual-role controller, whose name is returned (dwc3_host_init, ci_hdrc_add_device).
func usbController(dir string) string {
	for !device.IsRootHubName(base(dir)) {
		dir = up(dir)
		if dir == "" {
			return ""
		}
	}
	controller := up(dir)
	for dir = controller; up(dir) != ""; dir = up(dir) {
		name := base(dir)
		if device.IsPCIAddress(name) || !isCounted(name) {
			return name
		}
	}
	return base(controller)
}

// usbReader reads USB devices. A read may block in the kernel while a driver probes the device and
// during a reset, and forever if its driver hangs. Neither the rest of the scan nor later scans
// wait for a blocked device. The data of a device is valid as long as its link has the same inode,
// even after a restart of the program (KnownUSB), so that scans only wait for new devices.
type usbReader struct {
	// read reads a device, and may block.
	read  func(dir string) (device.USB, error)
	calls slow.Calls[sysfs.Entry, usbResult]

	mu    sync.Mutex
	known map[string]device.KnownUSB // by directory
}

// usbResult is the result of one read.
type usbResult struct {
	device.USB // with an error, the readable part
	err        error
}

// device returns the known data of a device, or reads it. isNew is set if another device was read in its place
// before.
func (r *usbReader) device(
	ctx context.Context,
	e sysfs.Entry,
	patience time.Duration,
) (u device.USB, isNew bool, err error) {
	r.mu.Lock()
	known, isNew := r.known[e.Path]
	r.mu.Unlock()
	if isNew && e.Ino != 0 && known.Inode == e.Ino {
		return known.USB, false, nil
	}
	result, running, ok := r.calls.Do(ctx, e, patience, func() usbResult {
		return r.readNew(e)
	})
	if ok {
		return result.USB, isNew, result.err
	}
	// The time counts from the start of the read, which an earlier scan may have made.
	if running < hangsAfter {
		return device.USB{}, isNew, errSlow
	}
	return device.USB{}, isNew, errHangs
}

// readNew reads a device and keeps the result. It may end long after the scan that called it. Where
// inodes do not identify files, nothing is kept.
func (r *usbReader) readNew(e sysfs.Entry) usbResult {
	u, err := r.read(e.Path)
	if err != nil || e.Ino == 0 {
		return usbResult{u, err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[string]device.KnownUSB)
	}
	r.known[e.Path] = device.KnownUSB{Inode: e.Ino, USB: u}
	return usbResult{u, nil}
}

// forgetOthers drops devices that are not on the bus. onBus has the directories of devices.
func (r *usbReader) forgetOthers(onBus map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(dir string, _ device.KnownUSB) bool {
		return !onBus[dir]
	})
}

// KnownUSB returns all USB devices that were read, by sysfs path, for RestoreUSB. It is safe to
// call during a scan.
func (s *Scanner) KnownUSB() map[string]device.KnownUSB {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	return maps.Clone(s.usb.known)
}

// RestoreUSB restores the USB devices that an earlier process has read in the same boot. Unchanged
// devices need not be read again, which may take longer than a pod waits. No scan may run.
func (s *Scanner) RestoreUSB(known map[string]device.KnownUSB) {
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	s.usb.known = maps.Clone(known)
}
