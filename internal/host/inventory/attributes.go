package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// Attributes reads data that a configuration requests and no scan reads: sysfs
// attributes by name, drivers, and network interfaces in use by the host. It is for one
// snapshot: a value is read once, so that all callers get the same. Safe for concurrent
// use.
type Attributes struct {
	sysfs sysfs.FS
	proc  proc
	slow  *slowAttributes
	of    scanResult

	mu          sync.Mutex // held by a read: callers for the same value wait for it
	attrs       map[attribute]attributeValues
	drivers     map[string]string // by directory
	pairs       map[string]sysfs.NetPair
	traffic     *traffic          // nil: not read yet
	charDrivers map[uint32]string // by major number; nil: not read yet
	problems    problems
	unread      map[string]device.UnreadHardware // hardware by path
}

type attribute struct{ dir, name string }

type attributeValues struct {
	values []string
	unread bool
	cost   int // of the search, in directory entries
}

// maxAttributes is the maximum number of values to keep. A configuration that is edited between
// two scans would add its own each time.
const maxAttributes = 100_000

// Attributes returns a reader for the latest snapshot.
func (s *Scanner) Attributes() *Attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attrs.next()
	return &Attributes{
		sysfs:   s.sysfs,
		proc:    s.proc,
		slow:    &s.attrs,
		of:      s.last,
		attrs:   make(map[attribute]attributeValues),
		drivers: make(map[string]string),
		unread:  make(map[string]device.UnreadHardware),
		pairs:   make(map[string]sysfs.NetPair),
	}
}

// Attr returns the values of an attribute of a device directory, without newlines: nil if
// it is missing or unreadable. Its name is a path below the directory, which may have
// wildcards and find several files (sysfs.FS.FindAttributes). A file that can't be read in
// 50 ms has its previous value; unread is set if it has none.
//
// *entries limits the directory entries to read, and is decremented by the cost of the
// search, whether or not the values are known from an earlier one. If it reaches 0, unread
// is set.
func (a *Attributes) Attr(dir, name string, entries *int) (values []string, unread bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := attribute{dir, name}
	v, known := a.attrs[k]
	if known {
		*entries = max(0, *entries-v.cost)
		return v.values, v.unread || *entries == 0
	}
	before := *entries
	files := a.sysfs.FindAttributes(ownDir(dir), dir, name, entries)
	if *entries == 0 {
		return nil, true // another resource may have entries left
	}
	v.cost = before - *entries
	for _, file := range files {
		a.read(file, dir, &v)
	}
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

// read adds the value of a file.
func (a *Attributes) read(file sysfs.File, dir string, v *attributeValues) {
	value, err := a.slow.read(file, a.sysfs.Attribute)
	switch {
	case err == nil:
		v.values = append(v.values, value)
	case err == errSlow:
		v.unread = true
		hardware := ownDir(dir)
		isNew := a.unread[hardware].New || a.slow.isReplacement(file)
		a.unread[hardware] = device.UnreadHardware{Path: hardware, New: isNew}
	case sysfs.Gone(err), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODATA):
		// Removed, or without a current value: the speed of an interface that is down,
		// the temperature of a sleeping device.
	default:
		a.problems.add(file.Path, err)
	}
}

// InUse returns what the host itself uses a network interface for, for an
// administrator: "a port of bridge br0". It is empty for none, and for nodes.
func (a *Attributes) InUse(n *device.Node) string {
	if n.Type != device.NetInterface {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.netUse(n)
}

// CharDriver returns the driver of a major number of character devices, "" if there is
// none.
func (a *Attributes) CharDriver(major uint32) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.charDrivers == nil {
		a.charDrivers = a.readCharDrivers()
	}
	return a.charDrivers[major]
}

// readCharDrivers reads the drivers of character devices by major number. A recording
// has those of nodes without an entry in sysfs.
func (a *Attributes) readCharDrivers() map[uint32]string {
	recorded := make(map[uint32]bool)
	for _, n := range a.of.Nodes {
		if n.Type == device.CharNode && n.SysPath == "" {
			recorded[n.Major] = true
		}
	}
	drivers := make(map[uint32]string)
	char := false
	err := a.proc.each("devices", func(line []byte) string {
		text := string(line)
		if strings.HasSuffix(text, ":") {
			char = text == charDevices
			if char && len(recorded) > 0 {
				return text
			}
			return ""
		}
		number, driver, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
		major, err := strconv.ParseUint(number, 10, 32)
		if !char || err != nil {
			return ""
		}
		drivers[uint32(major)] = driver
		if recorded[uint32(major)] {
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

// Driver returns the name of the driver bound to the device of a directory, "" if there
// is none.
func (a *Attributes) Driver(dir string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	driver, known := a.drivers[dir]
	if known {
		return driver
	}
	driver, err := a.sysfs.Driver(dir)
	a.problems.add(dir, err)
	a.drivers[dir] = driver
	return driver
}

// Problems returns the failed reads so far.
func (a *Attributes) Problems() []device.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// UnreadHardware returns the hardware with attributes that were never read, by path.
func (a *Attributes) UnreadHardware() []device.UnreadHardware {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.Collect(maps.Values(a.unread))
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
	return list
}

// slowAttributes reads attributes that may block until their device responds. A
// replacement of a file has another inode.
type slowAttributes struct {
	calls   slow.Calls[sysfs.File, attributeText]
	answers chan struct{} // a late read has returned

	mu sync.Mutex
	// texts has the reads since the last call of next, before has the previous interval's.
	texts, before map[sysfs.File]attributeText
	waited        time.Duration // for reads that timed out, since the last call of next
}

// Reads that block delay a scan by about a second at most, however many there are: after
// maxWait for those before, a file gets slowAttribute only. A read that does not block takes
// microseconds.
const (
	maxWait       = 500 * time.Millisecond
	slowAttribute = time.Millisecond
	// maxBlocked is the maximum number of blocked reads, each of which occupies a thread: the
	// runtime ends a program with 10,000 of them.
	maxBlocked = 256
)

type attributeText struct {
	text string
	err  error
	late bool // it came after a timeout
}

// next starts a new interval.
func (s *slowAttributes) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = s.texts
	s.texts = make(map[sysfs.File]attributeText)
	s.waited = 0
}

// read returns the text of an attribute: the previous one if it times out, or errSlow
// without one.
func (s *slowAttributes) read(file sysfs.File, read func(string) (string, error)) (string, error) {
	started := time.Now()
	result, _, ok := s.calls.Do(context.Background(), file, s.patience(), func() attributeText {
		text, err := read(file.Path)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.texts[file] = attributeText{text: text, err: err}
		return s.texts[file]
	})
	if ok {
		return result.text, result.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited += time.Since(started)
	v, known := s.before[file]
	if !known {
		return "", errSlow
	}
	s.texts[file] = v
	return v.text, v.err
}

// patience returns how long to wait for a file.
func (s *slowAttributes) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waited < maxWait {
		return slowAfter
	}
	return slowAttribute
}

// isReplacement reports whether an attribute that can't be read has replaced one that could.
func (s *slowAttributes) isReplacement(file sysfs.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known := range s.before {
		if known.Path == file.Path && known.Ino != file.Ino {
			return true
		}
	}
	return false
}

// tooLate requests a scan for an attribute that was read after a timeout, unless the
// previous text was late, too: one that is always slow must not cause endless scans.
func (s *slowAttributes) tooLate(file sysfs.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.before[file].late {
		poke(s.answers)
	}
	v := s.texts[file]
	v.late = true
	s.texts[file] = v
}
