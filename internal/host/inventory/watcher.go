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
	// defaultResync is the time between full scans without an event: a safety net for
	// changes without an event, such as a driver that makes a node without one.
	defaultResync = 10 * time.Minute
	// degradedResync is the same while an event source is missing.
	degradedResync = time.Minute
	// maxPaths is the maximum number of paths of a batch. Unplugging a hub with ten
	// devices makes some two hundred events.
	maxPaths = 1024
)

// WatchOptions are options of a Watcher.
type WatchOptions struct {
	// Dev is the directory of device nodes; empty is "/dev".
	Dev string
	// Log gets messages for an administrator; nil is discarded.
	Log *slog.Logger
}

// Batch are the events since the last batch was taken. Changes of names, below /dev or in
// one of the watched directories, need no more than a scan.
type Batch struct {
	// All is set if anything may have changed, regardless of Paths: events were lost,
	// or too many, or are missing, or a full scan is due.
	All bool
	// Paths of the devices that the kernel announced, relative to the root of
	// sysfs, sorted.
	Paths []string
	// At is the time of the latest event; zero if there was none.
	At time.Time
}

// Watcher signals when a host may have changed. It has three sources, and continues
// with the available ones: uevents, which cover all of sysfs but neither the names that
// udev makes nor mknod(1); inotify on directories, which covers names only; and a slow
// timer. Without events it is idle.
type Watcher struct {
	dev        string
	log        *slog.Logger
	openKernel func() (kernelEvents, error)
	files      *watch.Watcher

	changes  chan struct{} // capacity 1: a batch is pending
	resynced chan struct{} // capacity 1: resync has changed

	mu      sync.Mutex
	resync  time.Duration
	lastAll time.Time // when a batch that says All was last requested
	batch   Batch     // without Paths
	paths   map[string]bool
	dirs    []string // of the host, in addition to /dev
	deaf    error    // why there are no uevents
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

// Take returns the pending batch, an empty one if there is none. Its size is bounded,
// however late it is taken.
func (w *Watcher) Take() Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.batch
	// Without uevents Paths is never complete.
	b.All = b.All || w.deaf != nil
	for p := range w.paths {
		b.Paths = append(b.Paths, p)
	}
	slices.Sort(b.Paths)
	w.batch = Batch{}
	clear(w.paths)
	return b
}

// SetDirs sets the directories to watch in addition to /dev, by their path on the host.
// A missing one is awaited in its nearest existing ancestor. A new watch makes a batch, so
// that nothing is missed between the scan that named the directory and its watch.
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

// watchedDirs are the directories to watch as mounted here. Only /dev is elsewhere;
// others have their own path or are missing.
func (w *Watcher) watchedDirs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []string{w.dev}
	for _, d := range w.dirs {
		if below, ok := strings.CutPrefix(d, hostDev+"/"); ok {
			d = w.dev + "/" + below
		} else if d == hostDev {
			continue
		}
		list = append(list, d)
	}
	return list
}

// Degraded lists the missing event sources and why, sorted. Without one of them there
// is a full scan each minute.
func (w *Watcher) Degraded() []device.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []device.Problem
	if err := w.files.Degraded(); err != nil {
		list = append(list, device.Problem{Subject: "file events", Reason: err.Error()})
	}
	if w.deaf != nil {
		list = append(list, device.Problem{Subject: "kernel events", Reason: w.deaf.Error()})
	}
	return list
}

// SetResync sets the time between full scans without an event: a minute at least, 10
// minutes if d is 0. It is for changes without an event, such as interfaces of another
// network namespace (ForeignNets).
func (w *Watcher) SetResync(d time.Duration) {
	w.mu.Lock()
	w.resync = max(cmp.Or(d, defaultResync), degradedResync)
	w.mu.Unlock()
	poke(w.resynced)
}

// Run watches until ctx ends, and returns nil then. The first batch says All and comes
// once the watches exist: a scan after it misses nothing.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		_ = w.files.Run(ctx)
	}) // always nil
	k, err := w.openKernel()
	w.setDeaf(err)
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
			if w.files.Degraded() != nil {
				w.requestAll()
			} else {
				w.add(Batch{})
			}
		}
		due := w.untilResync()
		if due <= 0 {
			w.files.Refresh()
			w.requestAll()
			due = w.untilResync()
		}
		timer.Reset(due)
	}
}

// followKernel reads uevents until ctx ends, and opens their source again after an error:
// err is that of opening k.
func (w *Watcher) followKernel(ctx context.Context, k kernelEvents, err error) {
	for {
		if err == nil {
			stop := context.AfterFunc(ctx, func() {
				k.Close()
			})
			err = w.readKernel(k)
			if stop() {
				k.Close()
				w.setDeaf(err)
				w.requestAll()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(degradedResync):
		}
		k, err = w.openKernel()
		w.setDeaf(err)
		w.requestAll()
	}
}

func (w *Watcher) readKernel(k kernelEvents) error {
	for {
		p, err := k.next()
		if errors.Is(err, errLost) {
			w.add(Batch{All: true})
		} else if err != nil {
			return err
		} else {
			w.add(Batch{Paths: []string{p}})
		}
	}
}

// untilResync is the time until a full scan is due.
func (w *Watcher) untilResync() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.lastAll.Add(w.resync))
}

// requestAll requests a full scan without an event.
func (w *Watcher) requestAll() {
	w.mu.Lock()
	w.batch.All, w.lastAll = true, time.Now()
	w.mu.Unlock()
	poke(w.changes)
}

// add adds events to the pending batch.
func (w *Watcher) add(b Batch) {
	w.mu.Lock()
	w.batch.All, w.batch.At = w.batch.All || b.All, time.Now()
	for _, p := range b.Paths {
		w.paths[p] = true
	}
	if len(w.paths) > maxPaths {
		w.batch.All = true
		clear(w.paths)
	}
	w.mu.Unlock()
	poke(w.changes)
}

// setDeaf records why there are no uevents, nil if there are, and logs changes.
func (w *Watcher) setDeaf(err error) {
	w.mu.Lock()
	was := w.deaf
	w.deaf = err
	w.mu.Unlock()
	if err != nil && was == nil {
		w.log.Warn("kernel events are unavailable: full scan every minute", "err", err)
	} else if err == nil && was != nil {
		w.log.Info("kernel events are back")
	}
}

// poke puts a value into a channel with capacity 1, unless it is full.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
