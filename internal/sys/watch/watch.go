// Package watch follows directories that may come and go: by inotify(7), and by polling
// where that is unavailable.
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
	// Dirs returns the directories. It is called before each signal, since changes may
	// lead to other directories.
	Dirs func() []string
	// Quiet delays a signal until this time has passed without an event, by ten times as
	// much at most; zero does not delay it.
	Quiet time.Duration
	// Resync is the time between signals without an event, zero for never: the move of
	// an ancestor causes no event. Poll replaces it while inotify is unavailable.
	Resync, Poll time.Duration
	// Log gets one message when inotify becomes unavailable, and one when it is back.
	Log *slog.Logger
	// Open opens a source of events; nil is inotify.
	Open func(events uint32) (Source, error)
}

// Watcher signals that something in a directory may have changed.
type Watcher struct {
	Options
	changes chan struct{} // capacity 1
	refresh chan struct{} // capacity 1

	mu       sync.Mutex
	degraded error
	names    map[string]bool // of changed entries since Take
	all      bool
}

// maxNames is how many names Take returns.
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

// NewFiles returns a Watcher for files that people and programs edit. They are written in
// place, renamed into place, or are behind symbolic links that are replaced: dirs returns the
// directories in which a change can concern them. An edit in several steps counts as
// complete after a short time without an event.
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

// Changes returns a channel that has a value when something may have changed, first
// when the watches exist. It is for one reader.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Take returns the names of the changed entries since the last Take; all is set if
// others may have changed too.
func (w *Watcher) Take() (names []string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names = slices.Collect(maps.Keys(w.names))
	all = w.all
	clear(w.names)
	w.all = false
	return names, all
}

// Refresh announces that Dirs changed.
func (w *Watcher) Refresh() { signal(w.refresh) }

// Degraded returns why directories are polled, nil if they are watched.
func (w *Watcher) Degraded() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.degraded
}

// Run watches until ctx ends, and returns nil then.
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
		signal(w.changes)
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
	case <-w.refresh: // the first sync reads Dirs anyway
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
			if c = watches.handle(batch); c.resync {
				c.all = w.sync(watches) || c.all
			}
		case <-w.refresh:
			c.all = w.sync(watches)
		case <-quiet.C:
			first = time.Time{}
			w.add(change{all: w.sync(watches)})
			signal(w.changes)
		case <-resync.C:
			w.syncAll(watches)
			resync.Reset(interval)
		}
		if !c.empty() {
			w.add(c)
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(min(w.Quiet, time.Until(first.Add(10*w.Quiet))))
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
	if w.all = w.all || c.all || len(w.names) > maxNames; w.all {
		clear(w.names)
	}
}

// sync watches the directories, and reports whether one of them was not watched before.
func (w *Watcher) sync(watches *dirs) bool {
	added, err := watches.sync(w.Dirs())
	w.setDegraded(err)
	return added
}

// syncAll is sync, and signals that anything may have changed.
func (w *Watcher) syncAll(watches *dirs) {
	w.sync(watches)
	w.add(change{all: true})
	signal(w.changes)
}

func (w *Watcher) interval() time.Duration {
	if w.Degraded() != nil {
		return w.Poll
	}
	return cmp.Or(w.Resync, math.MaxInt64)
}

func (w *Watcher) setDegraded(err error) {
	w.mu.Lock()
	was := w.degraded
	w.degraded = err
	w.mu.Unlock()
	if err != nil && was == nil {
		w.Log.Warn("directories can't be watched: polling them", "source", w.Source, "interval", w.Poll, "err", err)
	} else if err == nil && was != nil {
		w.Log.Info("directories are watched again", "source", w.Source)
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

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
