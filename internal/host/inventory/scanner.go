// Package inventory scans ghw, sysfs and /dev into immutable snapshots of the host, and
// signals when to scan again.
//
// A Scanner reads, a Watcher waits; they are independent of each other and of the use
// of snapshots. A scan is complete except for Snapshot.Problems, Snapshot.UnreadHardware and
// what it was told to leave out, or it is an error: a host with an unreadable /sys or
// /dev is never shown as a host without devices.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/jaypipes/ghw"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// Options are the locations of a host's trees.
type Options struct {
	// Sysfs is the root of sysfs, Dev the directory of device nodes; empty is "/sys"
	// and "/dev". The paths of a snapshot are always below /dev.
	Sysfs, Dev string
}

const (
	// readAgain is how long after an event of a device each update reads it again. Some
	// changes follow the event that should announce them: a driver that fails to probe
	// a new device is shown as its driver until it has failed, which causes no event
	// (really_probe in drivers/base/dd.c).
	readAgain = 2 * time.Second
	// recent is how long before the first scan the creation of a node counts as an
	// event: well over the time in which the ledger lets devices settle.
	recent = time.Second
)

// Scanner makes snapshots of one host. It is safe for concurrent use; scans are
// serialized.
type Scanner struct {
	sysfs   sysfs.FS
	proc    proc
	dev     string
	ghw     func() (*ghw.PCIInfo, error)
	usb     usbReader
	attrs   slowAttributes
	answers chan struct{} // capacity 1: a slow read has returned

	mu     sync.Mutex           // held by a scan
	cache  *cache               // nil before the first scan
	last   scanResult           // empty before the first scan
	noNets bool                 // network interfaces are left out
	events map[string]time.Time // the last of each sysfs path, of recent seconds
}

// New returns a Scanner.
func New(o Options) *Scanner {
	root := cmp.Or(o.Sysfs, hostSysfs)
	s := &Scanner{
		sysfs: sysfs.New(root), proc: proc{root: procOf(root)}, dev: cmp.Or(o.Dev, hostDev),
		ghw: sync.OnceValues(newGHW), answers: make(chan struct{}, 1), events: make(map[string]time.Time),
	}
	s.usb.read = func(dir string) (device.USB, error) { return s.sysfs.USBDevice(dir) } // also of a traced tree
	s.usb.calls.Late = func(sysfs.Entry) { poke(s.answers) }
	s.attrs.answers = s.answers
	s.attrs.calls.Late = s.attrs.tooLate
	s.attrs.calls.Limit = maxBlocked
	return s
}

// LeaveOutNets sets whether the next scans leave out network interfaces, of which a
// node with many containers has hundreds, with some ten files each.
func (s *Scanner) LeaveOutNets(leaveOut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noNets = leaveOut
}

// Scan scans the whole host, except for LeaveOutNets. The error means that nothing is
// known of the host, because its sysfs or /dev is unreadable or ctx has ended; other
// failures are Snapshot.Problems. Devices that come or go meanwhile are in the snapshot
// or not, but never in part.
func (s *Scanner) Scan(ctx context.Context) (*device.Snapshot, error) {
	return s.Update(ctx, Batch{All: true})
}

// Update returns the result of Scan, but reads only what the batch invalidates. It
// reads everything if the batch says All, and for the first scan. No taken batch may be
// omitted.
func (s *Scanner) Update(ctx context.Context, b Batch) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.events, func(_ string, at time.Time) bool { return now.Sub(at) > readAgain })
	for _, p := range b.Paths {
		s.events[p] = b.At
		if b.At.IsZero() {
			s.events[p] = now
		}
	}
	if s.cache != nil && !b.All && len(s.events) <= maxPaths {
		s.cache.drop(slices.Collect(maps.Keys(s.events)))
	} else {
		s.cache = nil
	}
	c, err := s.scan(ctx)
	return c.snapshot, err
}

// scanResult is what Scanner and Attributes keep of a scan.
type scanResult struct {
	*device.Snapshot
	netInterfaces map[string]sysfs.NetInterface // by name
}

// scan reads what is not cached: everything without a cache. Only a scan without an error
// has a snapshot. The lock is held.
func (s *Scanner) scan(ctx context.Context) (*scan, error) {
	known, full := s.cache, s.cache == nil
	if full {
		known = newCache()
	}
	size := len(known.onBus[device.PCIBus]) + len(known.onBus[device.USBBus])
	c := &scan{
		sysfs:      s.sysfs,
		cache:      known,
		full:       full,
		hardware:   make(map[string]*device.Hardware, size),
		list:       make([]*device.Hardware, 0, size),
		interfaces: make(map[string]int),
		unread:     make(map[string]device.UnreadHardware),
		unreadPCI:  make(map[string]*device.Hardware),
	}
	s.cache = nil // until it is complete
	if err := s.sysfs.Check(); err != nil {
		return c, err
	}
	ahead := make(chan *cache, 1)
	if c.full {
		go func() { ahead <- s.readFunctions() }()
	}
	// Nodes are read before the buses. The kernel adds a device to its bus before its
	// nodes and removes the nodes first, so that a node whose hardware is not on the
	// bus afterwards has gone.
	tree, err := walkDev(ctx, s.dev, c.cache.dirs)
	if err != nil {
		return c, err
	}
	c.tree, c.problems = tree, tree.problems
	located := c.locate(tree.sortedNodes())
	s.readUSB(ctx, c)
	if c.full {
		functions := <-ahead
		maps.Copy(c.cache.onBus, functions.onBus)
		maps.Copy(c.cache.facts, functions.facts)
	}
	s.readPCI(c)
	c.readMDevs()
	nodes := c.own(located)
	var nets []*device.Node
	if !s.noNets {
		nets = c.readNets()
	}
	if err := ctx.Err(); err != nil {
		return c, fmt.Errorf("scan the host: %w", err)
	}
	c.finish(nodes)
	sort.Slice(c.problems, func(i, j int) bool {
		a, b := c.problems[i], c.problems[j]
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason)) < 0
	})
	c.snapshot = &device.Snapshot{
		Nodes:          nodes,
		Nets:           nets,
		Links:          tree.linksTo(nodes),
		Dirs:           tree.dirs,
		Hardware:       c.list,
		Problems:       slices.Compact(c.problems), // one read may serve several devices
		UnreadHardware: slices.Collect(maps.Values(c.unread)),
	}
	unread := c.snapshot.UnreadHardware
	sort.Slice(unread, func(i, j int) bool { return unread[i].Path < unread[j].Path })
	if s.last.Snapshot == nil && !tree.recording {
		s.addRecentNodes(located, time.Now())
	}
	s.last, s.cache = scanResult{c.snapshot, c.netInterfaces}, c.cache
	return c, nil
}

// addRecentNodes counts nodes made shortly before the first scan as events of their
// hardware: a driver may be about to make the next node. A write to a node or a chown looks
// the same.
func (s *Scanner) addRecentNodes(nodes []*node, now time.Time) {
	for _, n := range nodes {
		age := now.Sub(time.Unix(0, n.read.changed))
		if n.Hardware == nil || age < 0 || age > recent {
			continue
		}
		// By the monotonic clock, which ignores changes of the time.
		if made := now.Add(-age); made.After(s.events[n.Hardware.Path]) {
			s.events[n.Hardware.Path] = made
		}
	}
}

// Events are the times of the kernel events of the last two seconds, by the sysfs path of the
// device. Nodes that were made shortly before the first scan count as events.
func (s *Scanner) Events() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.events)
}

// Answered returns a channel that has a value when a device or an attribute that was unread
// in a scan could be read: an update shows it. It is for one reader.
func (s *Scanner) Answered() <-chan struct{} { return s.answers }

// scan is one scan.
type scan struct {
	sysfs         sysfs.FS
	tree          *devTree
	cache         *cache
	full          bool // without a cache
	snapshot      *device.Snapshot
	hardware      map[string]*device.Hardware // by path
	list          []*device.Hardware          // of hardware, in no order
	hasMDevs      bool
	interfaces    map[string]int                   // number of a USB interface by path
	unread        map[string]device.UnreadHardware // PCI functions and USB devices by path
	unreadPCI     map[string]*device.Hardware      // the functions by path, with what could be read
	noBus         []device.Bus                     // buses that could not be listed
	netInterfaces map[string]sysfs.NetInterface    // by name
	problems      problems
}

func (c *scan) add(h *device.Hardware) {
	c.hardware[h.Path] = h
	c.list = append(c.list, h)
}

// finish completes the nodes and the hardware, and sorts the latter by path.
func (c *scan) finish(nodes []*device.Node) {
	sort.Slice(c.list, func(i, j int) bool { return c.list[i].Path < c.list[j].Path })
	c.nameAuto()
	for _, h := range c.list {
		c.parts(h)
		var numa int
		if h.Parent, numa = c.above(h.Path); h.Bus == device.PlatformBus || h.Bus == device.MDevBus {
			h.NUMA = c.numa(h.Path)
		}
		if h.NUMA < 0 {
			h.NUMA = numa
		}
	}
	for _, n := range nodes {
		if n.SysPath == "" || strings.HasPrefix(n.SysPath, "devices/virtual/") {
			continue
		}
		// Memory devices have their NUMA node below the device of the firmware's table.
		if h := n.Hardware; h == nil || h.Bus == device.PlatformBus && h.NUMA < 0 {
			if _, numa := c.above(n.SysPath); numa >= 0 {
				n.NUMA = []int{numa}
			}
		}
	}
}

// above returns the nearest hardware above dir, which is complete, and the NUMA node of the
// nearest ancestor that has one.
func (c *scan) above(dir string) (parent *device.Hardware, numa int) {
	numa = -1
	for dir = up(dir); dir != ""; dir = up(dir) {
		if h := c.hardware[dir]; h != nil {
			if numa < 0 {
				numa = h.NUMA
			}
			return h, numa
		}
		if numa < 0 {
			numa = c.numa(dir)
		}
	}
	return nil, numa
}

// numa returns the NUMA node of dir, -1 if the kernel does not know it.
func (c *scan) numa(dir string) int {
	return fact(c, &c.cache.of(dir).numa, dir, c.sysfs.NUMANode)
}

// up returns the parent of a device directory, "" above the topmost.
func up(dir string) string {
	i := strings.LastIndexByte(dir, '/')
	if i <= len("devices") {
		return ""
	}
	return dir[:i]
}

// base returns the last element of a path.
func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// problems are failed reads.
type problems []device.Problem

// add adds an error, unless it is that of a removed file.
func (p *problems) add(subject string, err error) {
	if err != nil && !sysfs.Gone(err) {
		*p = append(*p, device.Problem{Subject: subject, Reason: reason(err)})
	}
}

// reason formats an error as one line, without the path of its subject.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Op + ": " + pe.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// notExist reports whether the kernel does not have a file.
func notExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
