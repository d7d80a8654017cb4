package inventory

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// Attributes reads data that a configuration requests and that scans do not read: sysfs attributes
// by name, drivers, and how the host uses network interfaces. It belongs to one snapshot: a value
// is read once, so that all callers get the same value. It is safe for concurrent use.
type Attributes struct {
	sysfs sysfs.FS
	proc  proc
	// slow is shared with the readers of other snapshots, so that a read that blocks is not started
	// again.
	slow *slow.Last[sysfs.File, attributeText]
	// of is the snapshot, and what was read with it.
	of scanResult

	mu      sync.Mutex // held during a read, so that other callers wait for its value
	attrs   map[attribute]attributeValues
	drivers map[string]string  // by directory
	pairs   map[string]netPair // by name of the interface
	// traffic and charDrivers are nil until they are read. charDrivers are by major number.
	traffic     *traffic
	charDrivers map[uint32]string
	problems    problems
	unread      map[string]device.UnreadHardware // hardware by path
}

// attribute is the key of a request: a directory in sysfs, and a name below it.
type attribute struct{ dir, name string }

// attributeValues is the answer to a request. values has one value for each file that was found.
type attributeValues struct {
	values []string
	unread bool
}

// maxAttributes is the maximum number of cached values. Each edit of a configuration between two
// scans adds values.
const maxAttributes = 100_000

// Attributes returns a reader for the latest snapshot.
func (s *Scanner) Attributes() *Attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attrs.Next()
	return &Attributes{
		sysfs:   s.sysfs,
		proc:    s.proc,
		slow:    s.attrs,
		of:      s.last,
		attrs:   make(map[attribute]attributeValues),
		drivers: make(map[string]string),
		unread:  make(map[string]device.UnreadHardware),
		pairs:   make(map[string]netPair),
	}
}

// Attr returns the values of an attribute of a device directory, without newlines. It returns nil
// if the attribute is missing or unreadable. Its name is a path below the directory, which may
// contain wildcards and find several files (sysfs.FS.FindAttributes). A file that can't be read in
// 50 ms has its previous value. If it has no previous value, unread is set.
// So it is if the search for the files did not end before the time until.
func (a *Attributes) Attr(dir, name string, until time.Time) (values []string, unread bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := attribute{dir, name}
	v, known := a.attrs[k]
	if known {
		return v.values, v.unread
	}
	files, complete := a.sysfs.FindAttributes(ownDir(dir), dir, name, until)
	if !complete {
		return nil, true // it is not cached, because another resource may have time left
	}
	for _, file := range files {
		a.read(file, dir, &v)
	}
	// Dropping all of them is enough: they are read again when they are needed.
	if len(a.attrs) >= maxAttributes {
		clear(a.attrs)
	}
	a.attrs[k] = v
	return v.values, v.unread
}

// ownDir returns the directory of the bus device that owns dir, otherwise dir.
func ownDir(dir string) string {
	_, hardware := busDevice(dir)
	return cmp.Or(hardware, dir)
}

// read adds the value of a file. The caller holds a.mu.
func (a *Attributes) read(file sysfs.File, dir string, v *attributeValues) {
	read, isRead := a.slow.Do(file, func() (read attributeText) {
		read.text, read.err = a.sysfs.Attribute(file.Path)
		return read
	})
	switch {
	case !isRead:
		v.unread = true
		hardware := ownDir(dir)
		// New says that another device is in this place now, whose former values do not count.
		isNew := a.unread[hardware].New || a.slow.Has(func(known sysfs.File) bool {
			return known.Path == file.Path && known.Ino != file.Ino
		})
		a.unread[hardware] = device.UnreadHardware{Path: hardware, New: isNew}
	case read.err == nil:
		v.values = append(v.values, read.text)
	case !hasNoValue(read.err):
		a.problems.add(file.Path, read.err)
	}
}

// hasNoValue reports whether an error means that an attribute has no value at present, such as the
// speed of an interface that is down, or the temperature of a sleeping device.
func hasNoValue(err error) bool {
	for _, absent := range []unix.Errno{unix.EINVAL, unix.EOPNOTSUPP, unix.ENODATA} {
		if errors.Is(err, absent) {
			return true
		}
	}
	return sysfs.Gone(err)
}

// InUse returns how the host itself uses a network interface, for an administrator: "a port of
// bridge br0". It is empty if the host does not use it, and for nodes.
func (a *Attributes) InUse(n *device.Node) string {
	if n.Type != device.NetInterface {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.netUse(n)
}

// NetUseNow returns how the host uses an interface of the snapshot now, like InUse. It reads nothing
// of other devices. It is an error if the interface is gone, or has another name by now. Calls do not
// wait for each other, or for a scan.
func (a *Attributes) NetUseNow(name string) (use string, err error) {
	i := slices.IndexFunc(a.of.Nets, func(n *device.Node) bool {
		return n.Path == name
	})
	if i < 0 {
		return "", fs.ErrNotExist
	}
	n := a.of.Nets[i]
	now, err := readNet(a.sysfs, n.SysPath)
	if err != nil {
		return "", err
	}
	if !a.sysfs.Exists(n.SysPath) {
		return "", fs.ErrNotExist
	}
	fresh := &Attributes{
		sysfs: a.sysfs,
		proc:  a.proc,
		of:    a.of,
		pairs: make(map[string]netPair),
	}
	fresh.of.netInterfaces = maps.Clone(a.of.netInterfaces)
	fresh.of.netInterfaces[name] = now
	return fresh.netUse(n), nil
}

// CharDriver returns the driver of a major number of character devices, or an empty string.
func (a *Attributes) CharDriver(major uint32) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.charDrivers == nil {
		a.charDrivers = a.readCharDrivers()
	}
	return a.charDrivers[major]
}

// readCharDrivers reads the drivers of character devices by major number. Recordings contain the
// drivers of nodes without an entry in sysfs.
func (a *Attributes) readCharDrivers() map[uint32]string {
	isRecorded := make(map[uint32]bool)
	for _, n := range a.of.Nodes {
		if n.Type == device.CharNode && n.SysPath == "" {
			isRecorded[n.Major] = true
		}
	}
	drivers := make(map[uint32]string)
	isCharPart := false
	err := a.proc.each("devices", func(line []byte) string {
		text := string(line)
		// A header begins each of the two parts of the file.
		if strings.HasSuffix(text, ":") {
			isCharPart = text == charDevices
			if isCharPart && len(isRecorded) > 0 {
				return text
			}
			return ""
		}
		number, driver, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
		parsed, err := strconv.ParseUint(number, 10, 32)
		if !isCharPart || err != nil {
			return ""
		}
		major := uint32(parsed)
		drivers[major] = driver
		if isRecorded[major] {
			return text
		}
		return ""
	})
	a.problems.add("/proc/devices", err)
	return drivers
}

// charDevices is the header of the first part of /proc/devices (chrdev_show in
// fs/char_dev.c, devinfo_show in fs/proc/devices.c).
const charDevices = "Character devices:"

// Driver returns the name of the driver that is bound to the device of a directory, or an empty
// string. An error is a problem, and counts as no driver.
func (a *Attributes) Driver(dir string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	driver, known := a.drivers[dir]
	if known {
		return driver
	}
	d := a.sysfs.Dir(dir)
	driver = d.LinkBase("driver")
	a.problems.add(dir, d.Err())
	a.drivers[dir] = driver
	return driver
}

// Problems returns the failed reads so far. It is complete once everything was read that a match
// needs.
func (a *Attributes) Problems() []device.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// UnreadHardware returns the hardware with attributes that were never read, by path.
func (a *Attributes) UnreadHardware() []device.UnreadHardware {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sortedUnread(a.unread)
}

// Any number of blocked reads delays a scan by about a second: once maxWait is spent, each further
// read gets slowAttribute. A read that does not block takes microseconds.
const (
	maxWait       = 500 * time.Millisecond
	slowAttribute = time.Millisecond
	// maxBlocked is the maximum number of blocked reads. Each of them occupies a thread, and the Go
	// runtime ends a program with 10,000 threads.
	maxBlocked = 256
)

// attributeText is the result of one read.
type attributeText struct {
	text string
	err  error
}

// newSlowAttributes returns what reads attributes that may block until their device responds. The inode
// distinguishes a file from its replacement. A round starts with each snapshot that gets a reader.
func newSlowAttributes(late func()) *slow.Last[sysfs.File, attributeText] {
	return slow.NewLast[sysfs.File, attributeText](slow.Patience{
		ForOne: slowAfter,
		ForAll: maxWait,
		Brief:  slowAttribute,
		Limit:  maxBlocked,
		Late:   late,
	})
}
