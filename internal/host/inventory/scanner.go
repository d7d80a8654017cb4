// Package inventory scans ghw, sysfs and /dev into immutable snapshots of the host, and
// signals when to scan again.
//
// A Scanner reads and a Watcher waits. They do not depend on each other, nor on the use
// of snapshots. A scan either fails, or it is complete except for Snapshot.Problems,
// Snapshot.UnreadHardware and LeaveOutNets. A host with an unreadable /sys or /dev is never shown
// as a host without devices.
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
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Options are the locations of a host's trees.
type Options struct {
	// Sysfs is the root of sysfs. An empty string means "/sys".
	Sysfs string
	// Dev is the directory of device nodes. An empty string means "/dev". The paths of a snapshot
	// are always below /dev.
	Dev string
}

const (
	// keepEvents is how long Events has an event, well over the time in which the ledger lets devices
	// settle.
	keepEvents = 2 * time.Second
	// recent is the age up to which a node counts as an event of its hardware in the first scan.
	// It is well over the time in which the ledger lets devices settle.
	recent = time.Second
)

// Scanner makes snapshots of one host. It is safe for concurrent use; scans are
// serialized.
type Scanner struct {
	sysfs sysfs.FS
	// proc is the /proc that belongs to sysfs.
	proc proc
	dev  string
	// ghw parses the identifiers of PCI functions. It is made at the first use.
	ghw func() (*ghw.PCIInfo, error)
	// usb and attrs make reads that may block. Their results outlive a scan.
	usb     usbReader
	attrs   *slow.Last[sysfs.File, attributeText]
	nets    netNumbers
	answers chan struct{} // capacity 1: a slow read has returned

	mu   sync.Mutex // held by a scan
	base *scan      // the last scan without network interfaces, nil if it failed
	last scanResult // empty before the first scan
	// virtual are the virtual PCI functions, by path.
	virtual map[string]virtualFunction
	// noNets is set if network interfaces are left out.
	noNets bool
	// events has the time of the last event of each sysfs path.
	events map[string]time.Time
}

// New returns a Scanner. It reads nothing yet.
func New(o Options) *Scanner {
	root := cmp.Or(o.Sysfs, hostSysfs)
	s := &Scanner{
		sysfs:   sysfs.New(root),
		proc:    proc{root: procOf(root)},
		dev:     cmp.Or(o.Dev, hostDev),
		ghw:     sync.OnceValues(newGHW),
		answers: make(chan struct{}, 1),
		events:  make(map[string]time.Time),
		virtual: make(map[string]virtualFunction),
	}
	s.usb.read = func(dir string) (device.USB, error) {
		return readUSB(s.sysfs, dir) // Read replaces s.sysfs
	}
	late := func() {
		watch.Signal(s.answers)
	}
	s.usb.calls.Late = func(sysfs.Entry) {
		late()
	}
	s.attrs = newSlowAttributes(late)
	return s
}

// LeaveOutNets sets whether the next scans leave out network interfaces. A node with many
// containers has hundreds of interfaces, each with some ten files to read.
func (s *Scanner) LeaveOutNets(leaveOut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noNets = leaveOut
}

// Scan scans the whole host, except for LeaveOutNets. The error means that nothing is known about
// the host, because its sysfs, a bus or /dev is unreadable or ctx has ended. Other failures are
// Snapshot.Problems. A device that appears or disappears meanwhile is completely in the snapshot or
// not at all.
func (s *Scanner) Scan(ctx context.Context) (*device.Snapshot, error) {
	return s.Update(ctx, Batch{All: true})
}

// Update returns the result of Scan. After events of only network interfaces, it reads only them, and
// uses everything else of the last scan. The caller must pass every batch that it has taken.
func (s *Scanner) Update(ctx context.Context, b Batch) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addEvents(b, time.Now())
	if s.base != nil && b.onlyNets() {
		c, err := s.complete(s.base)
		return c.snapshot, err
	}
	c, err := s.scan(ctx)
	return c.snapshot, err
}

// addEvents adds the events of a batch, and forgets old events.
func (s *Scanner) addEvents(b Batch, now time.Time) {
	maps.DeleteFunc(s.events, func(_ string, at time.Time) bool {
		return now.Sub(at) > keepEvents
	})
	at := b.At
	if at.IsZero() {
		at = now
	}
	for _, p := range b.Paths {
		s.events[p] = at
	}
}

// scanResult is the part of a scan that Scanner and Attributes need later.
type scanResult struct {
	*device.Snapshot
	netInterfaces map[string]netInterface // by name
}

// scan scans the host. Only a scan without an error has a snapshot. The lock is held.
func (s *Scanner) scan(ctx context.Context) (*scan, error) {
	base := &scan{
		sysfs:      s.sysfs,
		hardware:   make(map[string]*device.Hardware),
		interfaces: make(map[string]int),
		unread:     make(map[string]device.UnreadHardware),
		unreadPCI:  make(map[string]*device.Hardware),
	}
	s.base = nil // until the scan is complete
	if err := s.sysfs.Check(); err != nil {
		return base, err
	}
	// Nodes are read before the buses. The kernel adds a device to its bus before its
	// nodes and removes the nodes first, so that a node whose hardware is not on the
	// bus afterwards has been removed.
	tree, err := walkDev(ctx, s.dev)
	if err != nil {
		return base, err
	}
	base.tree = tree
	base.problems = tree.problems
	located := base.locate(tree.sortedNodes())
	s.readUSB(ctx, base)
	s.readFunctions(base)
	base.readMDevs()
	base.nodes = base.own(located)
	if err := ctx.Err(); err != nil {
		return base, fmt.Errorf("scan the host: %w", err)
	}
	// A recording has no times of creation.
	isFirst := s.last.Snapshot == nil
	if isFirst && !tree.recording {
		s.addRecentNodes(located, time.Now())
	}
	c, err := s.complete(base)
	if err == nil {
		s.base = base
	}
	return c, err
}

// complete adds the network interfaces to a scan without them, which it does not change, and makes the
// snapshot, unless a list is missing.
func (s *Scanner) complete(base *scan) (*scan, error) {
	c := base.copy()
	c.isOld = base == s.base
	var nets []*device.Node
	if !s.noNets && c.unlisted == nil {
		nets = c.readNets(&s.nets)
	}
	if c.unlisted != nil {
		return c, fmt.Errorf("scan the host: %w", c.unlisted)
	}
	c.finish()
	c.makeSnapshot(nets)
	s.last = scanResult{c.snapshot, c.netInterfaces}
	return c, nil
}

// copy returns a copy with its own hardware and nodes.
func (c *scan) copy() *scan {
	d := *c
	d.problems = slices.Clone(c.problems)
	d.hardware = make(map[string]*device.Hardware, len(c.list))
	d.list = make([]*device.Hardware, 0, len(c.list))
	for _, h := range c.list {
		own := *h
		own.Nodes = nil
		d.add(&own)
	}
	d.nodes = make([]*device.Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		own := *n
		if n.Hardware != nil {
			own.Hardware = d.hardware[n.Hardware.Path]
			own.Hardware.Nodes = append(own.Hardware.Nodes, &own)
		}
		d.nodes = append(d.nodes, &own)
	}
	return &d
}

// addUnlisted records why a list can't be read, so that the scan fails. A list for which the permission is missing
// stays unreadable, so its devices are left out instead.
func (c *scan) addUnlisted(err error) {
	if !errors.Is(err, fs.ErrPermission) {
		c.unlisted = errors.Join(c.unlisted, err)
	}
}

// onBus lists the devices on a bus. A bus that the kernel does not have has no devices.
func (c *scan) onBus(bus device.Bus) []sysfs.Entry {
	dir := busDir(bus)
	entries, err := c.sysfs.Entries(dir)
	if notExist(err) {
		return nil
	}
	c.problems.add(dir, err)
	if entries == nil {
		c.addUnlisted(err)
	}
	return entries
}

// busDir is the directory of the devices on a bus.
func busDir(bus device.Bus) string { return "bus/" + string(bus) + "/devices" }

// report records the errors of reads as problems of their directory.
func (c *scan) report(d *sysfs.Dir) { c.problems.add(d.Path, d.Err()) }

// number reads a number that a device may have, or -1.
func (c *scan) number(dir, name string) int {
	d := c.sysfs.Dir(dir)
	defer c.report(d)
	return d.Number(name)
}

// attr reads an attribute that a device may have.
func (c *scan) attr(dir, name string) string {
	d := c.sysfs.Dir(dir)
	defer c.report(d)
	return d.Attr(name)
}

// inHalves has two goroutines read a half of a list each, and returns the problems of both: serve runs
// on two CPUs.
func inHalves[E any](list []E, read func(half []E) problems) problems {
	half := len(list) / 2
	var second problems
	var running sync.WaitGroup
	running.Go(func() {
		second = read(list[half:])
	})
	first := read(list[:half])
	running.Wait()
	return append(first, second...)
}

// makeSnapshot makes the snapshot of a complete scan.
func (c *scan) makeSnapshot(nets []*device.Node) {
	c.problems.sort()
	c.snapshot = &device.Snapshot{
		Nodes:          c.nodes,
		Nets:           nets,
		Links:          c.tree.linksTo(c.nodes),
		Dirs:           c.tree.dirs,
		Hardware:       c.list,
		Problems:       slices.Compact(c.problems), // one read may serve several devices
		UnreadHardware: sortedUnread(c.unread),
	}
}

// sortedUnread returns unread hardware by path.
func sortedUnread(byPath map[string]device.UnreadHardware) []device.UnreadHardware {
	list := slices.Collect(maps.Values(byPath))
	sort.Slice(list, func(i, j int) bool {
		return list[i].Path < list[j].Path
	})
	return list
}

// addRecentNodes counts nodes that were made shortly before the first scan as events of their
// hardware, because a driver may be about to make the next node. A write to a node and a chown
// cannot be distinguished from its creation. A time in the future, as after a change of the clock,
// does not count.
func (s *Scanner) addRecentNodes(nodes []*node, now time.Time) {
	for _, n := range nodes {
		age := now.Sub(n.changed)
		if n.Hardware == nil || age < 0 || age > recent {
			continue
		}
		// The result has a monotonic clock, which ignores changes of the time.
		made := now.Add(-age)
		if made.After(s.events[n.Hardware.Path]) {
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
// in a scan could be read. An update shows it. The channel is for one reader.
func (s *Scanner) Answered() <-chan struct{} { return s.answers }

// scan is one scan. It is used by one goroutine, except for locateEach.
type scan struct {
	sysfs         sysfs.FS
	tree          *devTree
	isOld         bool // everything but network interfaces is from an earlier scan
	snapshot      *device.Snapshot
	nodes         []*device.Node              // by path
	hardware      map[string]*device.Hardware // by path
	list          []*device.Hardware          // all hardware, in no order
	hasMDevs      bool
	interfaces    map[string]int                   // numbers of USB interfaces by path
	unread        map[string]device.UnreadHardware // PCI functions and USB devices by path
	unreadPCI     map[string]*device.Hardware      // PCI functions by path, with their readable attributes
	unlisted      error                            // why a bus or the interfaces can't be listed: what is in the list is not gone
	netInterfaces map[string]netInterface          // by name
	problems      problems
}

// add adds hardware. Nothing else has its path.
func (c *scan) add(h *device.Hardware) {
	c.hardware[h.Path] = h
	c.list = append(c.list, h)
}

// finish completes nodes and hardware, and sorts hardware by path. After sorting, hardware above
// other hardware comes first, so that its NUMA node is known.
func (c *scan) finish() {
	sort.Slice(c.list, func(i, j int) bool {
		return c.list[i].Path < c.list[j].Path
	})
	c.nameAutomatic()
	partitions := c.partitions()
	for _, h := range c.list {
		c.findParts(h)
		// The GPU of a partition is complete: platform devices come after PCI functions.
		if gpu := partitions[h]; gpu != nil {
			h.Parent = gpu
			h.NUMA = gpu.NUMA
			continue
		}
		// A PCI function has read its own, and a USB device has the one of its controller.
		switch h.Bus {
		case device.PlatformBus, device.MDevBus:
			h.NUMA = c.number(h.Path, "numa_node")
		}
		h.Parent, h.NUMA = c.above(h.Path, h.NUMA)
	}
	for _, n := range c.nodes {
		c.findNUMA(n)
	}
}

// findNUMA finds the NUMA node of a device node whose hardware has none. Memory devices have their
// NUMA node below the device of the firmware's table.
func (c *scan) findNUMA(n *device.Node) {
	isVirtual := strings.HasPrefix(n.SysPath, "devices/virtual/")
	if n.SysPath == "" || isVirtual {
		return
	}
	h := n.Hardware
	isUnknown := h == nil || h.Bus == device.PlatformBus && h.NUMA < 0
	if !isUnknown {
		return
	}
	_, numa := c.above(n.SysPath, -1)
	if numa >= 0 {
		n.NUMA = []int{numa}
	}
}

// above returns the nearest hardware above dir, and the NUMA node of dir: own, or if that is negative, the NUMA
// node of the nearest ancestor that has one, or -1. The hardware above dir must be complete.
func (c *scan) above(dir string, own int) (parent *device.Hardware, numa int) {
	numa = own
	for dir = up(dir); dir != ""; dir = up(dir) {
		h := c.hardware[dir]
		if h != nil {
			if numa < 0 {
				numa = h.NUMA
			}
			return h, numa
		}
		if numa < 0 {
			numa = c.number(dir, "numa_node")
		}
	}
	return nil, numa
}

// up returns the parent of a device directory, or an empty string at the top.
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

// sort sorts problems by subject and reason, so that equal problems are adjacent.
func (p problems) sort() {
	order.Sort(p, func(a, b device.Problem) int {
		return cmp.Or(
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
}

// add adds an error, unless the error means that a file was removed.
func (p *problems) add(subject string, err error) {
	if err != nil && !sysfs.Gone(err) {
		*p = append(*p, device.Problem{Subject: subject, Reason: reason(err)})
	}
}

// reason formats an error as one line, without the path of its subject.
func reason(err error) string {
	// The subject already names the path.
	pathError, isPathError := errors.AsType[*fs.PathError](err)
	if isPathError {
		return pathError.Op + ": " + pathError.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// notExist reports whether the kernel does not have a file.
func notExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
