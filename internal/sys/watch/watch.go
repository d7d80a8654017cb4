// Package watch reports changes in directories that may appear and disappear. It uses inotify(7), and
// polls while inotify is unavailable.
package watch

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Options are options of a Watcher.
type Options struct {
	// Source names the directories in the log and the status.
	Source string
	// Events is a combination of Names, Attributes and Writes.
	Events uint32
	// Dirs returns the directories to watch. It is called before each signal, because a changed
	// link may point to another directory.
	Dirs func() []string
	// Quiet delays a signal until this time has passed without an event, but at most by ten times
	// as much. Zero does not delay signals.
	Quiet time.Duration
	// Resync is the time between signals without an event. They are necessary because the move of
	// an ancestor causes no event. Zero disables them.
	Resync time.Duration
	// Poll replaces Resync while inotify is unavailable.
	Poll time.Duration
	// Log gets one message when inotify becomes unavailable, and one when it works again.
	Log *slog.Logger
	// Open opens a source of events. If it is nil, inotify is used.
	Open func(events uint32) (Source, error)
}

// Watcher signals that something in a directory may have changed.
type Watcher struct {
	Options
	changes chan struct{} // capacity 1
	refresh chan struct{} // capacity 1

	mu sync.Mutex
	// degraded is why directories are polled, or nil.
	degraded error
	// names are the names of changed entries since the last Take.
	names map[string]bool
	// all is set if any entry may have changed since the last Take.
	all bool
}

// maxNames is the maximum number of names that Take returns. If more entries changed, it reports that
// any entry may have changed.
const maxNames = 1024

// New returns a Watcher that is idle until it runs.
func New(o Options) *Watcher {
	if o.Open == nil {
		o.Open = func(events uint32) (Source, error) {
			return openInstance(events)
		}
	}
	return &Watcher{
		Options: o,
		changes: make(chan struct{}, 1),
		refresh: make(chan struct{}, 1),
		names:   make(map[string]bool),
	}
}

// NewFiles returns a Watcher for files that people and programs edit. Such files are written in place,
// renamed into place, or are targets of symbolic links that are replaced. dirs returns the directories
// in which a change can affect them. An edit in several steps is complete after a short time without
// an event.
func NewFiles(source string, dirs func() []string, log *slog.Logger) *Watcher {
	return New(Options{
		Source: source,
		Events: Names | Attributes | Writes,
		Dirs:   dirs,
		Quiet:  100 * time.Millisecond,
		Resync: 10 * time.Minute,
		Poll:   time.Minute,
		Log:    log,
	})
}

// Changes returns a channel that has a value whenever something may have changed, and once when the
// watches exist. Only one goroutine may read it.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Take returns the names of the entries that changed since the last Take. all is set if other entries
// may have changed as well.
func (w *Watcher) Take() (names []string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names = slices.Collect(maps.Keys(w.names))
	all = w.all
	clear(w.names)
	w.all = false
	return names, all
}

// Refresh must be called when Dirs returns other directories.
func (w *Watcher) Refresh() { Signal(w.refresh) }

// Degraded returns why directories are polled, or nil if they are watched.
func (w *Watcher) Degraded() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.degraded
}

// Run watches until ctx ends. Then it returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	poll := time.NewTimer(w.Poll)
	defer poll.Stop()
	for {
		source, err := w.Open(w.Events)
		if err == nil {
			err = w.follow(ctx, source)
		}
		if ctx.Err() != nil {
			return nil
		}
		w.setDegraded(err)
		w.add(change{all: true})
		Signal(w.changes)
		poll.Reset(w.Poll)
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// follow watches until ctx ends or the source fails.
func (w *Watcher) follow(ctx context.Context, source Source) error {
	events := make(chan []Event)
	failed := make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer source.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader.Go(func() {
		failed <- read(ctx, source, events)
	})

	watches := &dirs{source: source}
	select {
	case <-w.refresh: // not necessary, because the first sync calls Dirs
	default:
	}
	w.syncAll(watches)
	interval := w.interval()
	resync := time.NewTimer(interval)
	defer resync.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	var first time.Time // time of the first event since the last signal
	for {
		var c change
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case batch := <-events:
			c = watches.handle(batch)
			if c.resync && w.sync(watches) {
				c.all = true
			}
		case <-w.refresh:
			c.all = w.sync(watches)
		case <-quiet.C:
			first = time.Time{}
			w.add(change{all: w.sync(watches)})
			Signal(w.changes)
		case <-resync.C:
			w.syncAll(watches)
			resync.Reset(interval)
		}
		if !c.empty() {
			w.add(c)
			if first.IsZero() {
				first = time.Now()
			}
			latest := first.Add(10 * w.Quiet)
			quiet.Reset(min(w.Quiet, time.Until(latest)))
		}
		if now := w.interval(); now != interval {
			interval = now
			resync.Reset(interval)
		}
	}
}

// add adds a change to the result of Take.
func (w *Watcher) add(c change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range c.names {
		w.names[name] = true
	}
	if c.all || len(w.names) > maxNames {
		w.all = true
	}
	if w.all {
		clear(w.names)
	}
}

// sync updates the watches, and reports whether an existing directory was not watched before.
func (w *Watcher) sync(watches *dirs) bool {
	added, err := watches.sync(w.Dirs())
	w.setDegraded(err)
	return added
}

// syncAll updates the watches, and signals that anything may have changed.
func (w *Watcher) syncAll(watches *dirs) {
	w.sync(watches)
	w.add(change{all: true})
	Signal(w.changes)
}

// interval returns the time between signals without an event.
func (w *Watcher) interval() time.Duration {
	if w.Degraded() != nil {
		return w.Poll
	}
	return cmp.Or(w.Resync, math.MaxInt64)
}

// setDegraded stores why directories are polled, and logs changes.
func (w *Watcher) setDegraded(err error) {
	w.mu.Lock()
	was := w.degraded
	w.degraded = err
	w.mu.Unlock()
	if err != nil && was == nil {
		w.Log.Warn("cannot watch directories, polling them instead", "source", w.Source, "interval", w.Poll, "err", err)
	} else if err == nil && was != nil {
		w.Log.Info("watching directories again", "source", w.Source)
	}
}

// read forwards the events of a source until it is closed.
func read(ctx context.Context, source Source, to chan<- []Event) error {
	for {
		events, err := source.Next()
		if err != nil {
			return err
		}
		select {
		case to <- events:
		case <-ctx.Done():
			return nil
		}
	}
}

// Signal puts a value into a channel of capacity 1, unless it already has a value.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
