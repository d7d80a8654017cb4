// Package inventory turns what ghw, sysfs and /dev say into one immutable
// snapshot of the host, and says when it is time to scan again.
//
// A Scanner reads, a Watcher waits; they know nothing of each other and
// nothing of what the snapshot is for. A scan either is complete but for what
// Snapshot.Problems and Snapshot.Unread name and what it was asked to leave out, or it is
// an error: a host whose /sys or /dev can't be read is never shown as a host without
// devices.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// Options say where a host's trees are.
type Options struct {
	// Sysfs is the root of sysfs, Dev the directory of device nodes; empty is
	// "/sys" and "/dev". Whatever they are, a snapshot speaks of /dev.
	Sysfs, Dev string
	// Log gets what an administrator should know; nil is discarded.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Sysfs = cmp.Or(o.Sysfs, hostSysfs)
	o.Dev = cmp.Or(o.Dev, hostDev)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

const (
	// settling is how long after an event of a device each update reads it anew.
	// Some things are made after the event that should announce them: a driver that
	// fails to probe a new device is shown as its driver until it has failed, and
	// there is no event of that (really_probe in drivers/base/dd.c).
	settling = 2 * time.Second
	// recent is how long before the first scan the creation of a node counts as an
	// event: well over the time that devices settle for.
	recent = time.Second
)

// Scanner reads snapshots of one host. It may be used by several goroutines;
// their scans are done one after the other.
type Scanner struct {
	sysfs   sysfs.FS
	proc    proc
	dev     string
	log     *slog.Logger
	ghw     func(root string) (map[string]*device.PCI, error)
	ghwOnce sync.Once // a failure of ghw is logged
	usb     usbReader
	attrs   slowAttributes
	answers chan struct{} // capacity 1: a device has answered late

	mu     sync.Mutex           // held by a scan
	cache  *cache               // nil before the first scan
	last   scanned              // empty before the first scan
	noNets bool                 // network interfaces are left out
	events map[string]time.Time // the last of each sysfs path, of the last seconds
}

// New returns a Scanner. It sets PCIDB_PATH for the whole process unless it
// is set, see withoutPCINames.
func New(o Options) *Scanner {
	o = o.withDefaults()
	withoutPCINames()
	root := o.Sysfs
	// ghw joins the path to a root of its own, which only an absolute one
	// survives. It fails only where there is no working directory.
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	s := &Scanner{
		sysfs: sysfs.New(root), proc: proc{root: procOf(root)}, dev: o.Dev, log: o.Log, ghw: ghwPCI,
		answers: make(chan struct{}, 1), events: make(map[string]time.Time),
	}
	s.usb.read = s.usbDevice
	s.usb.number = func(dir string) string { return s.sysfs.USBNumber(dir) }
	s.usb.calls.Late = func(usbLink) { poke(s.answers) }
	return s
}

// LeaveOutNets says whether the next scans are to leave out network interfaces,
// of which a node with many containers has hundreds, each of them some ten files.
func (s *Scanner) LeaveOutNets(leaveOut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noNets = leaveOut
}

// Scan reads the host, all of it but what LeaveOutNets says. The error says that
// nothing is known of the host, because its sysfs or /dev can't be read at all or
// ctx has ended; whatever else fails is one of Snapshot.Problems. Devices that come
// or go meanwhile are in the snapshot or not, but never in part.
func (s *Scanner) Scan(ctx context.Context) (*device.Snapshot, error) {
	return s.Update(ctx, Batch{All: true})
}

// Update returns what Scan does, and reads only what the batch makes stale of what was
// read before. Everything is read again where the batch says All, where there was no
// scan before, and where the cache does not fit what is read. No batch that was taken
// may be left out.
func (s *Scanner) Update(ctx context.Context, b Batch) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.events, func(_ string, at time.Time) bool { return now.Sub(at) > settling })
	for _, p := range b.Paths {
		s.events[p] = b.At
		if b.At.IsZero() {
			s.events[p] = now
		}
	}
	if s.cache != nil && !b.All && len(s.events) <= maxPaths {
		s.cache.drop(slices.Collect(maps.Keys(s.events)))
		c, err := s.scan(ctx, s.cache)
		if err != nil || !c.misfit {
			return c.snapshot, err
		}
		s.log.Debug("the cache does not fit what is read of the host: reading everything")
	}
	c, err := s.scan(ctx, nil)
	return c.snapshot, err
}

// scanned is what is kept of a scan.
type scanned struct {
	*device.Snapshot
	netInterfaces map[string]sysfs.NetInterface // by name
}

// scan reads what is not cached: everything, if that is nil. Only a scan that ends without
// an error and that the cache fits has a snapshot. The lock is held.
func (s *Scanner) scan(ctx context.Context, cached *cache) (*scan, error) {
	c := &scan{
		sysfs:      s.sysfs,
		cache:      cached,
		hardware:   make(map[string]*device.Hardware),
		interfaces: make(map[string]int),
		unread:     make(map[string]device.Unread),
		numa:       make(map[string]int),
	}
	if cached == nil {
		c.cache, c.full = newCache(), true
	}
	s.cache = nil // until it is known to be whole
	if err := s.sysfs.Check(); err != nil {
		return c, err
	}
	// Nodes are read before the buses. The kernel puts a device on its bus
	// before its nodes are made and takes the nodes away first, so that a
	// node whose hardware is not on the bus afterwards is one that has gone.
	tree, err := walkDev(ctx, s.dev, c.cache.dirs)
	if err != nil {
		return c, err
	}
	c.tree, c.problems = tree, tree.problems
	nodes := c.locate(tree.sortedNodes())
	s.readPCI(c)
	s.readUSB(ctx, c)
	c.readMDevs()
	nodes = c.own(nodes)
	var nets []*device.Node
	if !s.noNets {
		nets = c.readNets()
	}
	if err := ctx.Err(); err != nil {
		return c, fmt.Errorf("scanning the host: %w", err)
	}
	if c.misfit {
		return c, nil
	}
	hardware := c.finish()
	slices.SortFunc(c.problems, func(a, b device.Problem) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
	})
	c.snapshot = &device.Snapshot{
		Nodes:    nodes,
		Nets:     nets,
		Links:    tree.linksTo(nodes),
		Dirs:     tree.dirs,
		Hardware: hardware,
		Problems: c.problems,
		Unread:   slices.SortedFunc(maps.Values(c.unread), func(a, b device.Unread) int { return cmp.Compare(a.Path, b.Path) }),
	}
	if s.last.Snapshot == nil && !tree.recording {
		s.addRecentNodes(nodes, tree.ids, time.Now())
	}
	s.last, s.cache = scanned{c.snapshot, c.netInterfaces}, c.cache
	return c, nil
}

// addRecentNodes counts nodes that were made shortly before the first scan as events of
// their hardware, which nobody listened to: a driver may be about to make the next node.
// A write to a node and another owner look the same.
func (s *Scanner) addRecentNodes(nodes []*device.Node, ids map[string]nodeID, now time.Time) {
	for _, n := range nodes {
		age := now.Sub(time.Unix(0, ids[n.Path].changed))
		if n.Hardware == nil || age < 0 || age > recent {
			continue
		}
		// By the clock that a change of the time leaves alone.
		if made := now.Add(-age); made.After(s.events[n.Hardware.Path]) {
			s.events[n.Hardware.Path] = made
		}
	}
}

// LastEvent returns when the kernel announced a change of the hardware at a sysfs path or
// of anything below it last; zero is not in the last two seconds. Nodes that were made
// shortly before the first scan count as events.
func (s *Scanner) LastEvent(hardware string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	for p, at := range s.events {
		if at.After(last) && (p == hardware || strings.HasPrefix(p, hardware+"/")) {
			last = at
		}
	}
	return last
}

// Answered returns a channel that has a value when a device could be read that was unread
// in a scan: an update shows it. It is for one reader.
func (s *Scanner) Answered() <-chan struct{} { return s.answers }

// scan is one scan.
type scan struct {
	sysfs         sysfs.FS
	tree          *devTree
	cache         *cache
	full          bool // nothing was cached
	misfit        bool // the cache does not fit what was read
	snapshot      *device.Snapshot
	hardware      map[string]*device.Hardware   // by path
	mdevs         []string                      // paths of those that are mediated devices
	interfaces    map[string]int                // number of a USB interface by path, -1 where it can't be read
	unread        map[string]device.Unread      // USB devices by path
	numa          map[string]int                // by path, as far as it was needed
	noBus         []device.Bus                  // buses that could not be listed
	netInterfaces map[string]sysfs.NetInterface // by name
	problems      problems
}

// finish completes the hardware that was found and returns it by path.
func (c *scan) finish() []*device.Hardware {
	list := slices.AppendSeq(make([]*device.Hardware, 0, len(c.hardware)), maps.Values(c.hardware))
	slices.SortFunc(list, func(a, b *device.Hardware) int { return cmp.Compare(a.Path, b.Path) })
	for _, h := range list {
		h.NUMA = c.numaAt(h.Path)
		for dir := up(h.Path); dir != "" && h.Parent == nil; dir = up(dir) {
			h.Parent = c.hardware[dir]
		}
	}
	return list
}

// numaAt returns the NUMA node of dir or of the nearest directory above that
// has one. USB devices have none of their own, and the kernel says -1 for
// what it does not know.
func (c *scan) numaAt(dir string) int {
	if dir == "" {
		return -1
	}
	if n, ok := c.numa[dir]; ok {
		return n
	}
	n := -1
	if h := c.hardware[dir]; h == nil || h.Bus != device.USBBus {
		var err error
		n, err = c.cache.numa.get(dir, c.sysfs.NUMANode)
		c.problems.add(dir, err)
	}
	if n < 0 {
		n = c.numaAt(up(dir))
	}
	c.numa[dir] = n
	return n
}

// up returns the directory above a device directory, "" above the topmost.
func up(dir string) string {
	i := strings.LastIndexByte(dir, '/')
	if i <= len("devices") {
		return ""
	}
	return dir[:i]
}

// base returns the last element of a path.
func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// problems are what could not be read.
type problems []device.Problem

// add adds an error. That something has gone is no problem.
func (p *problems) add(subject string, err error) {
	if err != nil && !sysfs.Gone(err) {
		*p = append(*p, device.Problem{Subject: subject, Reason: reason(err)})
	}
}

// reason is an error in one line, without the path that its subject says.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Op + ": " + pe.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// notExist reports whether the kernel does not have what was looked for.
func notExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
