package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// defaultResync is how often everything is looked at without an event:
	// a net below what no event tells, such as a driver that makes a node
	// without one.
	defaultResync = 10 * time.Minute
	// degradedResync is the same while a source of events is missing.
	degradedResync = time.Minute
	// maxPaths is how many paths a batch holds. A hub with ten devices that
	// is pulled makes some two hundred events.
	maxPaths = 1024
)

// WatchOptions say what a Watcher looks at.
type WatchOptions struct {
	// Dev is the directory of device nodes; empty is "/dev".
	Dev string
	// Resync is the time between two batches that say All without an event;
	// 0 is 10 minutes.
	Resync time.Duration
	// Log gets what an administrator should know; nil is discarded.
	Log *slog.Logger
}

// Batch is everything that happened since the last one was taken.
type Batch struct {
	// All says that Paths is not the whole truth: names below /dev or in one
	// of the watched directories changed, events were lost or too many, or it
	// is time for a look at everything.
	All bool
	// Paths of the devices that the kernel told of, relative to the root of
	// sysfs, sorted.
	Paths []string
	// At is when the latest event came in; zero if there was none.
	At time.Time
}

// Watcher says when a host may have changed. It has three sources, and goes on
// with what is left of them: events of the kernel, which know all of sysfs but
// neither the names that udev makes nor what mknod(1) does; inotify on
// directories, which knows names only; and a slow timer. While nothing happens
// it does nothing.
type Watcher struct {
	dev        string
	resync     time.Duration
	log        *slog.Logger
	openKernel func() (kernelEvents, error)
	openFiles  func() (fileEvents, error)

	changes chan struct{} // holds one: something is pending
	redirs  chan struct{} // holds one: dirs changed

	mu       sync.Mutex
	all      bool
	paths    map[string]bool
	at       time.Time
	dirs     []string          // of the host, besides /dev
	degraded map[string]string // reason by source
}

// The sources as Degraded names them.
const (
	kernelSource = "kernel events"
	filesSource  = "file events"
)

// NewWatcher returns a Watcher that watches nothing until it runs.
func NewWatcher(o WatchOptions) *Watcher {
	base := Options{Dev: o.Dev, Log: o.Log}.withDefaults()
	return &Watcher{
		dev:        base.Dev,
		resync:     cmp.Or(o.Resync, defaultResync),
		log:        base.Log,
		openKernel: func() (kernelEvents, error) { return openUevents() },
		openFiles:  func() (fileEvents, error) { return openInotify() },
		changes:    make(chan struct{}, 1),
		redirs:     make(chan struct{}, 1),
		paths:      make(map[string]bool),
		degraded:   make(map[string]string),
	}
}

// Changes returns a channel that has a value when a batch is waiting to be
// taken. It is for one reader.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Take returns the batch that is waiting, an empty one if there is none.
// However long it is put off, it stays of bounded size.
func (w *Watcher) Take() Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := Batch{All: w.all, At: w.at}
	for p := range w.paths {
		b.Paths = append(b.Paths, p)
	}
	slices.Sort(b.Paths)
	w.all, w.at = false, time.Time{}
	clear(w.paths)
	return b
}

// SetDirs says which directories to watch besides /dev, by their path on the
// host, in place of those named before. What is not there yet is watched for
// in the nearest directory above it. When a watch is new in place there is a
// batch that says All, so that nothing is missed between the scan that named
// the directory and its watch.
func (w *Watcher) SetDirs(dirs []string) {
	clean := make([]string, 0, len(dirs))
	for _, d := range dirs {
		clean = append(clean, path.Clean("/"+d))
	}
	slices.Sort(clean)
	w.mu.Lock()
	w.dirs = slices.Compact(clean)
	w.mu.Unlock()
	poke(w.redirs)
}

// Degraded says which sources of events are missing and why, sorted; none is
// the normal case. Without one of them everything is looked at each minute.
func (w *Watcher) Degraded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for source, why := range w.degraded {
		list = append(list, source+": "+why)
	}
	slices.Sort(list)
	return list
}

// Run watches until ctx ends, and returns nil then. The first batch says All
// and comes once the watches are in place: a scan after it misses nothing.
func (w *Watcher) Run(ctx context.Context) error {
	r := &run{Watcher: w, kernelEnded: make(chan error), events: make(chan []fileEvent), filesEnded: make(chan error)}
	ctx, cancel := context.WithCancel(ctx)
	defer r.readers.Wait()
	defer r.close()
	defer cancel()

	r.refresh(ctx)
	w.look()
	interval := w.interval()
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		if now := w.interval(); now != interval {
			interval = now
			timer.Reset(interval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			r.refresh(ctx)
			w.look()
			timer.Reset(interval)
		case <-w.redirs:
			if r.sync() {
				w.look()
			}
		case batch := <-r.events:
			changed, moved := r.watches.handle(batch)
			if changed {
				w.happened("", true)
			}
			if moved && r.sync() {
				w.look()
			}
		case err := <-r.kernelEnded:
			r.kernel.Close()
			r.kernel = nil
			w.setDegraded(kernelSource, err)
			w.look()
		case err := <-r.filesEnded:
			r.watches.files.Close()
			r.watches = nil
			w.setDegraded(filesSource, err)
			w.look()
		}
	}
}

// run is what belongs to one call of Run.
type run struct {
	*Watcher
	kernel      kernelEvents // nil while missing
	watches     *dirSet      // nil while missing
	events      chan []fileEvent
	kernelEnded chan error
	filesEnded  chan error
	readers     sync.WaitGroup
}

// refresh opens what is missing and brings the watches up to date.
func (r *run) refresh(ctx context.Context) {
	if r.kernel == nil {
		k, err := r.openKernel()
		r.setDegraded(kernelSource, err)
		if err == nil {
			r.kernel = k
			r.readers.Go(func() { send(ctx, r.kernelEnded, r.readKernel(k)) })
		}
	}
	if r.watches == nil {
		f, err := r.openFiles()
		r.setDegraded(filesSource, err)
		if err == nil {
			r.watches = &dirSet{files: f}
			r.readers.Go(func() { send(ctx, r.filesEnded, r.readFiles(ctx, f)) })
		}
	}
	r.sync()
}

func (r *run) close() {
	if r.kernel != nil {
		r.kernel.Close()
	}
	if r.watches != nil {
		r.watches.files.Close()
	}
}

// sync brings the watches up to date and reports whether there are new ones.
func (r *run) sync() bool {
	if r.watches == nil {
		return false
	}
	r.mu.Lock()
	here := []string{r.dev}
	for _, d := range r.dirs {
		// Only /dev is elsewhere; other directories are mounted at their own
		// path or not at all.
		if below, ok := strings.CutPrefix(d, hostDev+"/"); ok {
			d = r.dev + "/" + below
		} else if d == hostDev {
			continue
		}
		here = append(here, d)
	}
	r.mu.Unlock()
	added, err := r.watches.sync(here)
	r.setDegraded(filesSource, err)
	return added
}

func (r *run) readKernel(k kernelEvents) error {
	for {
		p, err := k.next()
		switch {
		case errors.Is(err, errLost):
			r.happened("", true)
		case err != nil:
			return err
		default:
			r.happened(p, false)
		}
	}
}

func (r *run) readFiles(ctx context.Context, f fileEvents) error {
	for {
		events, err := f.next()
		if err != nil {
			return err
		}
		if !send(ctx, r.events, events) {
			return ctx.Err()
		}
	}
}

// look asks for a look at everything though nothing is known to have happened.
func (w *Watcher) look() {
	w.mu.Lock()
	w.all = true
	w.mu.Unlock()
	poke(w.changes)
}

// happened adds an event to the batch that is waiting: the device that it
// tells of, or all.
func (w *Watcher) happened(devpath string, all bool) {
	w.mu.Lock()
	w.all = w.all || all
	if devpath != "" {
		w.paths[devpath] = true
	}
	if len(w.paths) > maxPaths {
		w.all = true
		clear(w.paths)
	}
	w.at = time.Now()
	w.mu.Unlock()
	poke(w.changes)
}

// setDegraded notes that a source is missing, or with nil that it is there,
// and says in the log what is new.
func (w *Watcher) setDegraded(source string, err error) {
	w.mu.Lock()
	_, was := w.degraded[source]
	if err != nil {
		w.degraded[source] = err.Error()
	} else {
		delete(w.degraded, source)
	}
	w.mu.Unlock()
	switch {
	case err != nil && !was:
		w.log.Warn("a source of events is missing, looking at everything each minute", "source", source, "error", err)
	case err == nil && was:
		w.log.Info("a source of events is back", "source", source)
	}
}

// interval is the time to the next look at everything.
func (w *Watcher) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.degraded) > 0 {
		return min(w.resync, degradedResync)
	}
	return w.resync
}

// poke puts a value into a channel that holds one, unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send reports whether someone took v before ctx ended.
func send[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// errLost says that the kernel dropped events, since they came faster than
// they were read.
var errLost = fmt.Errorf("events were lost")
