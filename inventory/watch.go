package inventory

import (
	"cmp"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/inotify"
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
	// Resync is the time between two batches that say All without an event,
	// until SetResync says another; 0 is 10 minutes.
	Resync time.Duration
	// Log gets what an administrator should know; nil is discarded.
	Log *slog.Logger
}

// Batch is everything that happened since the last one was taken.
type Batch struct {
	// All says that anything may have changed, whatever Paths says: events were
	// lost, or too many, or are missing, or it is time for a look at everything.
	All bool
	// Names says that names below /dev or in one of the watched directories
	// changed.
	Names bool
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
	log        *slog.Logger
	openKernel func() (kernelEvents, error)
	openFiles  func() (inotify.Source, error)

	changes chan struct{} // holds one: something is pending
	redirs  chan struct{} // holds one: dirs changed

	mu       sync.Mutex
	resync   time.Duration
	all      bool
	names    bool
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
		openFiles:  func() (inotify.Source, error) { return inotify.Open(inotify.Names | inotify.Attributes) },
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
	// Without the events of the kernel Paths never is the whole truth.
	_, deaf := w.degraded[kernelSource]
	b := Batch{All: w.all || deaf, Names: w.names, At: w.at}
	for p := range w.paths {
		b.Paths = append(b.Paths, p)
	}
	slices.Sort(b.Paths)
	w.all, w.names, w.at = false, false, time.Time{}
	clear(w.paths)
	return b
}

// SetDirs says which directories to watch besides /dev, by their path on the
// host, in place of those named before. What is not there yet is watched for
// in the nearest directory above it. When a watch is new in place there is a
// batch that says Names, so that nothing is missed between the scan that named
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

// SetResync says how often to look at everything without an event: each minute
// if d is shorter than that, 10 minutes if it is 0. It is for what no event
// tells, such as the interfaces of a network namespace that is not our own
// (ForeignNets).
func (w *Watcher) SetResync(d time.Duration) {
	if d = cmp.Or(d, defaultResync); d < degradedResync {
		d = degradedResync
	}
	w.mu.Lock()
	changed := w.resync != d
	w.resync = d
	w.mu.Unlock()
	if changed {
		poke(w.redirs)
	}
}

// look asks for a look at everything, though nothing is known to have happened.
func (w *Watcher) look() {
	w.mu.Lock()
	w.all = true
	w.mu.Unlock()
	poke(w.changes)
}

// lookAtNames asks for a look at names likewise.
func (w *Watcher) lookAtNames() {
	w.mu.Lock()
	w.names = true
	w.mu.Unlock()
	poke(w.changes)
}

// happened adds events to the batch that is waiting.
func (w *Watcher) happened(b Batch) {
	w.mu.Lock()
	w.all, w.names = w.all || b.All, w.names || b.Names
	for _, p := range b.Paths {
		w.paths[p] = true
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
