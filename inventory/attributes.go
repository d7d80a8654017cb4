package inventory

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
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

	scanned

	mu          sync.Mutex // held by a read: who asks for the same waits for it
	attrs       map[attribute]attributeValue
	drivers     map[string]string // by directory
	usedNets    map[string]string // why, by name; nil: not read yet
	charDrivers map[uint32]string // by major number; nil: not read yet
	problems    []device.Problem
	again       bool
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
	return &Attributes{
		sysfs: s.sysfs, proc: s.proc, slow: &s.attrs, scanned: s.last,
		attrs: make(map[attribute]attributeValue), drivers: make(map[string]string),
	}
}

// Attr returns an attribute of a device directory, without its newline. Its
// name is a path below the directory, which may have wildcards: the first in
// sorted order counts (sysfs.FS.FindAttribute). found is false where there is
// none, where it can't be read, and where it does not answer in 50 ms.
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
	file, found := a.sysfs.FindAttribute(dir, name)
	if !found {
		return attributeValue{}
	}
	value, err := a.slow.read(file, a.sysfs.Attribute)
	switch {
	case err == nil:
		return attributeValue{value, true}
	case errors.Is(err, errSlow):
		a.again = true
	case sysfs.Gone(err), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODATA):
		// It has gone, or says that it has no value now: the speed of an
		// interface that is down, the temperature of what is asleep.
	default:
		a.problem(file, err)
	}
	return attributeValue{}
}

func (a *Attributes) problem(subject string, err error) {
	p := device.Problem{Subject: subject, Reason: reason(err)}
	if !slices.Contains(a.problems, p) {
		a.problems = append(a.problems, p)
	}
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
	for _, n := range a.nodes {
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
	if err != nil {
		a.problem("/proc/devices", err)
	}
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
	if err != nil && !sysfs.Gone(err) {
		a.problem(dir, err)
	}
	a.drivers[dir] = driver
	return driver
}

// Problems returns what could not be read so far, and why.
func (a *Attributes) Problems() []device.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// Again reports whether an attribute that did before has not answered in time,
// as Snapshot.Again does: it is worth looking again soon.
func (a *Attributes) Again() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.again
}

// errSilent says that an attribute did not answer in time, not for the first
// time in a row: that alone is no problem yet (errSlow).
var errSilent = errors.New("does not answer")

// slowAttributes reads attributes that may wait for their device. One that does
// not answer keeps nobody else waiting: it is given up, and not asked again
// before the kernel has let go of the first that asked.
type slowAttributes struct {
	mu     sync.Mutex
	busy   map[string]bool // files that are still being read
	silent map[string]bool // files that did not answer when they were last asked for
}

func (s *slowAttributes) read(file string, read func(string) (string, error)) (string, error) {
	if !s.begin(file) {
		return "", s.gaveUp(file)
	}
	type answer struct {
		value string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read(file)
		s.end(file)
		answers <- answer{value, err}
	}()
	timer := time.NewTimer(slowAfter)
	defer timer.Stop()
	select {
	case a := <-answers:
		s.answered(file)
		return a.value, a.err
	case <-timer.C:
		return "", s.gaveUp(file)
	}
}

// begin reports whether nobody reads a file, and notes that someone does.
func (s *slowAttributes) begin(file string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[file] {
		return false
	}
	if s.busy == nil {
		s.busy, s.silent = make(map[string]bool), make(map[string]bool)
	}
	s.busy[file] = true
	return true
}

func (s *slowAttributes) end(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, file)
}

func (s *slowAttributes) answered(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.silent, file)
}

// gaveUp notes that a file did not answer, and says whether that is new.
func (s *slowAttributes) gaveUp(file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent[file] {
		return errSilent
	}
	s.silent[file] = true
	return errSlow
}
