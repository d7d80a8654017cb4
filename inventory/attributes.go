package inventory

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/slow"
	"github.com/generic-dp/generic-dp/sysfs"
)

// Attributes reads what a configuration may ask for and no scan reads: attributes
// of sysfs by name, drivers, and network interfaces that the host itself uses. It is
// made for one snapshot: a value is read once, so that all who ask get one answer. It
// may be used by several goroutines.
type Attributes struct {
	sysfs sysfs.FS
	proc  proc
	slow  *slowAttributes
	of    scanned

	mu          sync.Mutex // held by a read: who asks for the same waits for it
	attrs       map[attribute]attributeValue
	drivers     map[string]string // by directory
	usedNets    map[string]string // why, by name; nil: not read yet
	charDrivers map[uint32]string // by major number; nil: not read yet
	problems    problems
	unread      map[string]bool // hardware
}

type attribute struct{ dir, name string }

type attributeValue struct {
	value string
	found bool
}

// Attributes returns a reader for the snapshot that was scanned last.
func (s *Scanner) Attributes() *Attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attrs.next()
	return &Attributes{
		sysfs: s.sysfs, proc: s.proc, slow: &s.attrs, of: s.last,
		attrs: make(map[attribute]attributeValue), drivers: make(map[string]string), unread: make(map[string]bool),
	}
}

// Attr returns an attribute of a device directory, without its newline. Its
// name is a path below the directory, which may have wildcards: the first in
// sorted order counts (sysfs.FS.FindAttribute). One that can't be read in 50 ms has the
// value of the snapshot before. found is false where there is none, and where it can't
// be read.
func (a *Attributes) Attr(dir, name string) (value string, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := attribute{dir, name}
	v, known := a.attrs[k]
	if !known {
		v = a.read(dir, name)
		a.attrs[k] = v
	}
	return v.value, v.found
}

func (a *Attributes) read(dir, name string) attributeValue {
	file, ino, found := a.sysfs.FindAttribute(dir, name)
	if !found {
		return attributeValue{}
	}
	value, late, err := a.slow.read(file, ino, a.sysfs.Attribute)
	if late {
		_, hardware := busDevice(dir)
		a.unread[cmp.Or(hardware, dir)] = true
	}
	switch {
	case err == nil:
		return attributeValue{value, true}
	case err == errSlow:
	case sysfs.Gone(err), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODATA):
		// It has gone, or says that it has no value now: the speed of an
		// interface that is down, the temperature of what is asleep.
	default:
		a.problems.add(file, err)
	}
	return attributeValue{}
}

// InUse says what the host itself uses a network interface for, in words for an
// administrator: "a port of bridge br0". It is empty for nothing, and for nodes.
func (a *Attributes) InUse(n *device.Node) string {
	if n.Type != device.NetInterface {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.usedNets == nil {
		a.usedNets = a.netUse()
	}
	return a.usedNets[n.Path]
}

// CharDriver returns the driver that has a major number of character devices, "" where
// none has.
func (a *Attributes) CharDriver(major uint32) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.charDrivers == nil {
		a.charDrivers = a.readCharDrivers()
	}
	return a.charDrivers[major]
}

// readCharDrivers reads the drivers of character devices by major number. A recording
// has those of the nodes that sysfs does not know.
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

// Driver returns the name of the driver that is bound to the device of a
// directory, "" where none is.
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

// Problems returns what could not be read so far, and why.
func (a *Attributes) Problems() []device.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// Unread returns the hardware that has an attribute which could not be read in time, by
// path: the next scan may read it. One that could not be read the time before either is
// not among them.
func (a *Attributes) Unread() []device.Unread {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []device.Unread
	for _, path := range slices.Sorted(maps.Keys(a.unread)) {
		list = append(list, device.Unread{Path: path})
	}
	return list
}

// slowAttributes reads attributes that may wait for their device.
type slowAttributes struct {
	calls slow.Calls[string, textResult]

	mu     sync.Mutex
	silent map[string]bool // files that could not be read in time when they were last asked for
	// values are those that were read since the last call of next, by file, and before
	// those of the time between the calls before.
	values, before map[string]fileValue
}

type textResult struct {
	text string
	err  error
}

// fileValue is the value of an attribute. Another file in its place has another inode.
type fileValue struct {
	ino  uint64
	text string
}

// next begins a new reading of attributes.
func (s *slowAttributes) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.before = make(map[string]fileValue), s.values
}

// read returns the text of an attribute. Where it can't be read in time it returns the
// text of the reading before, or errSlow where there is none; late says so where that did
// not happen the time before, too.
func (s *slowAttributes) read(file string, ino uint64, read func(string) (string, error)) (text string, late bool, err error) {
	result, _, ok := s.calls.Do(context.Background(), file, slowAfter, func() textResult {
		text, err := read(file)
		return textResult{text, err}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		delete(s.silent, file)
		if result.err == nil && s.values != nil {
			s.values[file] = fileValue{ino, result.text}
		}
		return result.text, false, result.err
	}
	late = !s.silent[file]
	if s.silent == nil {
		s.silent = make(map[string]bool)
	}
	s.silent[file] = true
	if v, known := s.before[file]; known && v.ino == ino {
		s.values[file] = v
		return v.text, late, nil
	}
	return "", late, errSlow
}

const hostSysfs = "/sys"

// procOf returns the /proc that belongs to a sysfs: this kernel's for this kernel's
// own, and the directory beside it for every other, such as that of a recorded machine,
// of which the running host says nothing.
func procOf(root string) string {
	if root == hostSysfs || sysfs.New(root).Kernel() {
		return "/proc"
	}
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "proc")
}

// proc reads files below /proc that have one record a line.
type proc struct {
	root string
	kept map[string]string // for a recording: lines that were made use of, by file; nil keeps none
}

// each calls use for every line of a file, which returns what of the line matters
// to the scan, as a line that another scan takes for the same: the rest is
// nobody's business and in no recording. A file that is not there has no lines.
func (p proc) each(file string, use func(line []byte) (matters string)) error {
	f, err := os.Open(filepath.Join(p.root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var kept strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := use(lines.Bytes()); line != "" && p.kept != nil {
			kept.WriteString(line + "\n")
		}
	}
	if kept.Len() > 0 {
		p.kept[file] = kept.String()
	}
	return lines.Err()
}
