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
	unread      map[string]device.Unread // hardware by path
}

type attribute struct{ dir, name string }

type attributeValues struct {
	values []string
	unread bool
}

// Attributes returns a reader for the latest snapshot.
func (s *Scanner) Attributes() *Attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attrs.next()
	return &Attributes{
		sysfs: s.sysfs, proc: s.proc, slow: &s.attrs, of: s.last,
		attrs: make(map[attribute]attributeValues), drivers: make(map[string]string), unread: make(map[string]device.Unread), pairs: make(map[string]sysfs.NetPair),
	}
}

// Attr returns the values of an attribute of a device directory, without newlines: nil if
// it is missing or unreadable. Its name is a path below the directory, which may have
// wildcards and find several files (sysfs.FS.FindAttributes). A file that can't be read in
// 50 ms has its previous value; unread is set if it has none.
func (a *Attributes) Attr(dir, name string) (values []string, unread bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := attribute{dir, name}
	v, known := a.attrs[k]
	if !known {
		for _, file := range a.sysfs.FindAttributes(dir, name) {
			value, err := a.slow.read(file, a.sysfs.Attribute)
			switch {
			case err == nil:
				v.values = append(v.values, value)
			case err == errSlow:
				v.unread = true
				_, hardware := busDevice(dir)
				hardware = cmp.Or(hardware, dir)
				a.unread[hardware] = device.Unread{Path: hardware, New: a.unread[hardware].New || a.slow.isReplacement(file)}
			case sysfs.Gone(err), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODATA):
				// Removed, or without a current value: the speed of an interface that is down,
				// the temperature of a sleeping device.
			default:
				a.problems.add(file.Path, err)
			}
		}
		a.attrs[k] = v
	}
	return v.values, v.unread
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

// Unread returns the hardware with attributes that were never read, by path.
func (a *Attributes) Unread() []device.Unread {
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
}

type attributeText struct {
	text string
	err  error
	late bool // it came after a timeout
}

// next starts a new interval.
func (s *slowAttributes) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts, s.before = make(map[sysfs.File]attributeText), s.texts
}

// read returns the text of an attribute: the previous one if it times out, or errSlow
// without one.
func (s *slowAttributes) read(file sysfs.File, read func(string) (string, error)) (string, error) {
	result, _, ok := s.calls.Do(context.Background(), file, slowAfter, func() attributeText {
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
	if v, known := s.before[file]; known {
		s.texts[file] = v
		return v.text, v.err
	}
	return "", errSlow
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
