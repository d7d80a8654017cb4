// Package inventory turns what ghw, sysfs and /dev say into one immutable
// snapshot of the host, and says when it is time to look again.
//
// A Scanner reads, a Watcher waits; they know nothing of each other and
// nothing of what the snapshot is for. A scan either is complete but for what
// Snapshot.Problems names and what it was told to leave out, or it is an error: a
// host whose /sys or /dev can't be read is never shown as a host without devices.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// Scanner reads snapshots of one host. It may be used by several goroutines;
// their scans are done one after the other.
type Scanner struct {
	mu      sync.Mutex // held by a scan
	sysfs   sysfs.FS
	proc    proc
	dev     string
	log     *slog.Logger
	ghwOnce sync.Once // said in the log that ghw can't be used
	usb     usbReader
	attrs   slowAttributes
	memory  *memory              // of what was read; nil before the first scan
	last    scanned              // by the last scan
	noNets  bool                 // network interfaces are left out
	events  map[string]time.Time // the last of each sysfs path, of the last seconds
	scanned bool                 // there was a scan
	answers chan struct{}        // holds one: a device has answered late
	ghw     func(root string) (map[string]*device.PCI, error)
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
	s := &Scanner{sysfs: sysfs.New(root), proc: proc{root: procOf(root)}, dev: o.Dev, log: o.Log, events: make(map[string]time.Time), answers: make(chan struct{}, 1), ghw: ghwPCI}
	s.usb.read = s.usbDevice
	s.usb.number = func(dir string) string { return s.sysfs.USBNumber(dir) }
	s.usb.calls.Late = func(usbLink) { poke(s.answers) }
	return s
}

// scanned is what Attributes have of a scan.
type scanned struct {
	nodes, nets   []*device.Node
	netInterfaces map[string]sysfs.NetInterface // by name
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
	snap, _, err := s.scan(ctx)
	return snap, err
}

// scan returns the tree of device nodes along.
func (s *Scanner) scan(ctx context.Context) (*device.Snapshot, *devTree, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, tree, err := s.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	return c.snapshot, tree, nil
}

// read reads what is not remembered; whole says that nothing is.
func (s *Scanner) read(ctx context.Context, m *memory, whole bool) (*scan, *devTree, error) {
	if err := s.sysfs.Check(); err != nil {
		return nil, nil, err
	}
	// Nodes are read before the buses. The kernel puts a device on its bus
	// before its nodes are made and takes the nodes away first, so that a
	// node whose hardware is not on the bus afterwards is one that has gone.
	tree, err := walkDev(ctx, s.dev, m.dirs)
	if err != nil {
		return nil, nil, err
	}
	c := &scan{
		sysfs:      s.sysfs,
		mem:        m,
		whole:      whole,
		hardware:   make(map[string]*device.Hardware),
		interfaces: make(map[string]int),
		numa:       make(map[string]int),
		problems:   tree.problems,
		slow:       make(map[string]bool),
	}
	nodes := c.locate(tree.sortedNodes(), tree)
	s.readPCI(c)
	if err := s.readUSB(ctx, c); err != nil {
		return nil, nil, err
	}
	c.readMDev()
	nodes = c.own(nodes)
	var nets []*device.Node
	if !s.noNets {
		nets = c.readNets()
	}
	c.snapshot = &device.Snapshot{
		Nodes:    nodes,
		Nets:     nets,
		Links:    tree.resolveLinks(nodes),
		Dirs:     tree.dirs,
		Hardware: c.finish(),
		Problems: c.problems,
		Unread:   c.unread,
	}
	slices.SortFunc(c.unread, func(a, b device.Unread) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(c.snapshot.Problems, func(a, b device.Problem) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("scanning the host: %w", err)
	}
	s.last = scanned{nodes, nets, c.netInterfaces}
	return c, tree, nil
}

// scan is one scan under way.
type scan struct {
	sysfs         sysfs.FS
	mem           *memory
	whole         bool // nothing was remembered
	doubt         bool // what was remembered does not fit what was read
	snapshot      *device.Snapshot
	hardware      map[string]*device.Hardware // by path
	mdevs         []string                    // paths of those that are mediated devices
	interfaces    map[string]int              // number of a USB interface by path, -1 where it can't be read
	slow          map[string]bool             // USB devices that could not be read yet, by path
	unread        []device.Unread
	numa          map[string]int                // by path, as far as it was needed
	noBus         []device.Bus                  // buses that could not be listed
	netInterfaces map[string]sysfs.NetInterface // by name
	problems      []device.Problem
}

func (c *scan) problem(subject string, err error) {
	c.problems = append(c.problems, device.Problem{Subject: subject, Reason: reason(err)})
}

// finish completes the hardware that was found and returns it by path.
func (c *scan) finish() []*device.Hardware {
	list := make([]*device.Hardware, 0, len(c.hardware))
	for _, h := range c.hardware {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b *device.Hardware) int { return cmp.Compare(a.Path, b.Path) })
	for _, h := range list {
		h.NUMA = c.numaAt(h.Path)
		for dir := up(h.Path); dir != ""; dir = up(dir) {
			if above := c.hardware[dir]; above != nil {
				h.Parent = above
				break
			}
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
		n, err = recall(c.mem.numa, dir, c.sysfs.NUMANode)
		if err != nil && !sysfs.Gone(err) {
			c.problem(dir, err)
		}
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

// reason is an error in one line, without the path that its subject says.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Op + ": " + pe.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// notExist reports whether the kernel does not have what was looked for.
func notExist(err error) bool { return errors.Is(err, os.ErrNotExist) }
