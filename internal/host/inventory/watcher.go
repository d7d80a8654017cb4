package inventory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

const (
	// defaultResync is the time between full scans without an event. They are a safety net for
	// changes without an event, such as a driver that makes a node without an event.
	defaultResync = 10 * time.Minute
	// degradedResync is the time between full scans while an event source is missing.
	degradedResync = time.Minute
	// probeEnds is the time from the last event of a device until another scan. While a driver probes a
	// device, it is shown as its driver, and a probe that fails causes no event (really_probe in
	// drivers/base/dd.c).
	probeEnds = 2 * time.Second
	// maxPaths is the maximum number of paths of a batch. Unplugging a hub with ten
	// devices causes some two hundred events.
	maxPaths = 1024
)

// WatchOptions are options of a Watcher.
type WatchOptions struct {
	// Dev is the directory of device nodes. An empty string means "/dev".
	Dev string
	// Log gets messages for an administrator. Messages are discarded if it is nil.
	Log *slog.Logger
}

// Batch are the events since the last batch was taken. A batch without events still requires a scan.
type Batch struct {
	// All is set if anything may have changed, regardless of Paths: events were lost or
	// unavailable, there were too many, or a full scan is due.
	All bool
	// Names is set if names changed below /dev or in a watched directory.
	Names bool
	// Paths of the devices that the kernel announced, relative to the root of
	// sysfs, sorted.
	Paths []string
	// At is the time of the latest event. It is the zero time if there was no event.
	At time.Time
}

// onlyNets reports whether all events are of network interfaces.
func (b Batch) onlyNets() bool {
	if b.All || b.Names || len(b.Paths) == 0 {
		return false
	}
	return !slices.ContainsFunc(b.Paths, isNoNet)
}

// isNoNet reports whether a path is not the path of a network interface, "…/net/eth0".
func isNoNet(p string) bool { return base(up(p)) != "net" }

// mayProbe reports whether drivers may probe the device with a path: it is neither a network interface
// nor a disk, "…/block/sda/sda1".
func mayProbe(p string) bool { return isNoNet(p) && !strings.Contains(p, "/block/") }

// Watcher signals when a host may have changed. It is idle without events. It uses the available
// ones of its three sources:
//
//   - uevents cover all of sysfs, but neither names that udev makes nor mknod(1)
//   - inotify on directories only covers names
//   - a slow timer
type Watcher struct {
	// dev is the local path of the host's /dev.
	dev string
	log *slog.Logger
	// openKernel opens the uevents. Tests replace it.
	openKernel func() (kernelEvents, error)
	// files watches the names in directories.
	files *watch.Watcher

	changes  chan struct{} // capacity 1: a batch is pending
	resynced chan struct{} // capacity 1: the next scan without an event is due at another time

	mu      sync.Mutex
	resync  time.Duration
	lastAll time.Time // of the last request for a batch with All
	probed  time.Time // when drivers have probed the device of the last event
	noNets  bool
	batch   Batch // without Paths
	paths   map[string]bool
	dirs    []string // of the host, in addition to /dev
	// noUevents is why there are no uevents. It is nil if there are uevents.
	noUevents error
}

// NewWatcher returns a Watcher that is idle until it runs.
func NewWatcher(o WatchOptions) *Watcher {
	w := &Watcher{
		dev:    cmp.Or(o.Dev, hostDev),
		resync: defaultResync,
		log:    o.Log,
		openKernel: func() (kernelEvents, error) {
			return openUevents()
		},
		changes:  make(chan struct{}, 1),
		resynced: make(chan struct{}, 1),
		paths:    make(map[string]bool),
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.files = watch.New(watch.Options{
		Source: "device nodes",
		Events: watch.Names | watch.Attributes,
		Dirs:   w.watchedDirs,
		Poll:   degradedResync,
		Log:    w.log,
	})
	return w
}

// Changes returns a channel that has a value when a batch is pending. It is for one
// reader.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Take returns the pending batch, or an empty batch. The size of a batch is limited, however late
// it is taken. The caller must scan, or the events are lost.
func (w *Watcher) Take() Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.batch
	// Without uevents, Paths is never complete.
	b.All = b.All || w.noUevents != nil
	for p := range w.paths {
		b.Paths = append(b.Paths, p)
	}
	slices.Sort(b.Paths)
	w.batch = Batch{}
	clear(w.paths)
	return b
}

// SetDirs sets the directories to watch in addition to /dev, by their paths on the host. If a
// directory is missing, its nearest existing ancestor is watched. A new watch causes a batch, so
// that no change is missed between the scan that found the directory and the watch.
func (w *Watcher) SetDirs(dirs []string) {
	clean := make([]string, 0, len(dirs))
	for _, d := range dirs {
		clean = append(clean, path.Clean("/"+d))
	}
	slices.Sort(clean)
	w.mu.Lock()
	w.dirs = slices.Compact(clean)
	w.mu.Unlock()
	w.files.Refresh()
}

// watchedDirs are the directories to watch, by their paths in this mount namespace. Only /dev may
// be mounted elsewhere. Other directories have the same path as on the host, or are missing.
func (w *Watcher) watchedDirs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []string{w.dev}
	for _, d := range w.dirs {
		if d == hostDev {
			continue
		}
		below, isBelowDev := strings.CutPrefix(d, hostDev+"/")
		if isBelowDev {
			d = w.dev + "/" + below
		}
		list = append(list, d)
	}
	return list
}

// Degraded lists the missing event sources with the reasons, sorted. If a source is missing, there
// is a full scan each minute.
func (w *Watcher) Degraded() []device.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []device.Problem
	if err := w.files.Degraded(); err != nil {
		list = append(list, device.Problem{Subject: "file events", Reason: err.Error()})
	}
	if w.noUevents != nil {
		list = append(list, device.Problem{Subject: "kernel events", Reason: w.noUevents.Error()})
	}
	return list
}

// SetResync sets the time between full scans without an event, which is at least a minute. If d is
// 0, it is 10 minutes. SetResync is for changes without an event, such as changes of interfaces in
// another network namespace (ForeignNets).
func (w *Watcher) SetResync(d time.Duration) {
	w.mu.Lock()
	w.resync = max(cmp.Or(d, defaultResync), degradedResync)
	w.mu.Unlock()
	watch.Signal(w.resynced)
}

// LeaveOutNets sets whether events of virtual network interfaces are ignored. Each pod causes some of
// them.
func (w *Watcher) LeaveOutNets(leaveOut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noNets = leaveOut
}

// Run watches until ctx ends, and then returns nil. The first batch has All set. It follows when
// the watches exist, so that no change after its scan is missed.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	// The goroutines end with this function, even if it ends before ctx.
	defer cancel()
	running.Go(func() {
		_ = w.files.Run(ctx) // always nil
	})
	k, err := w.openKernel()
	w.setNoUevents(err)
	running.Go(func() {
		w.followKernel(ctx, k, err)
	})
	select {
	case <-ctx.Done():
		return nil
	case <-w.files.Changes():
	}
	w.requestAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-w.resynced:
		case <-w.files.Changes():
			// Without inotify, this is a poll that does not know what has changed.
			if w.files.Degraded() != nil {
				w.requestAll()
			} else {
				w.add(Batch{Names: true})
			}
		}
		due := w.untilNextScan()
		if due <= 0 {
			w.files.Refresh()
			w.requestAll()
			due = w.untilNextScan()
		}
		timer.Reset(due)
	}
}

// followKernel reads uevents until ctx ends, and opens their source again after an error. err is
// the error of opening k.
func (w *Watcher) followKernel(ctx context.Context, k kernelEvents, err error) {
	for {
		if err == nil {
			stop := context.AfterFunc(ctx, func() {
				k.Close()
			})
			err = w.readKernel(k)
			// Otherwise, ctx has ended and k is closed already.
			if stop() {
				k.Close()
				w.setNoUevents(err)
				w.requestAll()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(degradedResync):
		}
		k, err = w.openKernel()
		w.setNoUevents(err)
		w.requestAll()
	}
}

// readKernel adds the events of k until k fails, or is closed.
func (w *Watcher) readKernel(k kernelEvents) error {
	for {
		p, err := k.next()
		if errors.Is(err, errLost) {
			w.add(Batch{All: true})
			continue
		}
		if err != nil {
			return err
		}
		if !w.leavesOut(p) {
			w.add(Batch{Paths: []string{p}})
		}
	}
}

// leavesOut reports whether events of a path are ignored.
func (w *Watcher) leavesOut(p string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noNets && strings.HasPrefix(p, "devices/virtual/net/")
}

// untilNextScan returns the time until a scan without an event is due.
func (w *Watcher) untilNextScan() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.lastAll.Add(w.resync)
	if w.probed.After(w.lastAll) && w.probed.Before(next) {
		next = w.probed
	}
	return time.Until(next)
}

// requestAll requests a full scan without an event.
func (w *Watcher) requestAll() {
	w.mu.Lock()
	w.batch.All = true
	w.lastAll = time.Now()
	w.mu.Unlock()
	watch.Signal(w.changes)
}

// add adds events to the pending batch.
func (w *Watcher) add(b Batch) {
	now := time.Now()
	isProbing := b.All || slices.ContainsFunc(b.Paths, mayProbe)
	w.mu.Lock()
	if isProbing {
		w.probed = now.Add(probeEnds)
	}
	w.batch.All = w.batch.All || b.All
	w.batch.Names = w.batch.Names || b.Names
	w.batch.At = now
	for _, p := range b.Paths {
		w.paths[p] = true
	}
	if len(w.paths) > maxPaths {
		w.batch.All = true
		clear(w.paths)
	}
	w.mu.Unlock()
	watch.Signal(w.changes)
	if isProbing {
		watch.Signal(w.resynced)
	}
}

// setNoUevents records why there are no uevents, and logs changes. err is nil if there are uevents.
func (w *Watcher) setNoUevents(err error) {
	w.mu.Lock()
	before := w.noUevents
	w.noUevents = err
	w.mu.Unlock()
	if err != nil && before == nil {
		w.log.Warn("kernel events are unavailable: full scan every minute", "err", err)
	}
	if err == nil && before != nil {
		w.log.Info("kernel events are back")
	}
}
