package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/inotify"
)

const (
	// quietFor without an event makes files complete: whoever writes several,
	// or one by removing and making it anew, is done then. maxWait is for
	// directories in which there is always something going on.
	quietFor = 100 * time.Millisecond
	maxWait  = time.Second
	// fileResync is how often files are looked at without an event: a net below
	// what no event tells, such as a directory further up that is moved.
	// degradedFileResync is the same where there is no inotify.
	fileResync         = 10 * time.Minute
	degradedFileResync = time.Minute
)

// fileWatch says when files that people and programs edit may have changed: the
// configuration, the CDI specs of others. They are written in place, renamed
// into place, or are links that are swapped, so what is watched are the
// directories that a path leads through, anew after each change.
type fileWatch struct {
	source string                    // as Degraded names it
	dirs   func() (watched []string) // asked before every look
	log    *slog.Logger
	// changes holds one: look, the files may have changed. The first is there
	// when the watches are.
	changes chan struct{}
	redirs  chan struct{} // holds one: dirs has another answer

	mu       sync.Mutex
	degraded bool
}

func newFileWatch(source string, dirs func() []string, log *slog.Logger) *fileWatch {
	return &fileWatch{source: source, dirs: dirs, log: log, changes: make(chan struct{}, 1), redirs: make(chan struct{}, 1)}
}

// run watches until ctx is cancelled; it never gives up.
func (w *fileWatch) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		w.setDegraded(err)
		poke(w.changes)
		sleep(ctx, degradedFileResync)
	}
}

// follow watches until ctx is cancelled or inotify fails.
func (w *fileWatch) follow(ctx context.Context) error {
	instance, err := inotify.Open(inotify.Names | inotify.Attributes | inotify.Writes)
	if err != nil {
		return err
	}
	var reader sync.WaitGroup
	defer reader.Wait()
	defer instance.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, failed := make(chan []inotify.Event), make(chan error, 1)
	reader.Go(func() { failed <- pump(ctx, instance, events) })

	watches := &inotify.Dirs{Source: instance}
	resync := time.NewTimer(0) // the first look
	defer resync.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	var since time.Time // of the first event that nobody was told of
	for {
		changed := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case batch := <-events:
			var moved bool
			if changed, moved = watches.Handle(batch); moved {
				changed = w.sync(watches) || changed
			}
		case <-w.redirs:
			changed = w.sync(watches)
		case <-quiet.C:
			since = time.Time{}
			w.sync(watches)
			poke(w.changes)
		case <-resync.C:
			w.sync(watches)
			poke(w.changes)
			resync.Reset(w.interval())
		}
		if changed {
			if since.IsZero() {
				since = time.Now()
			}
			quiet.Reset(min(quietFor, time.Until(since.Add(maxWait))))
		}
	}
}

// pump hands on the events of an instance until it is closed.
func pump(ctx context.Context, instance *inotify.Instance, to chan<- []inotify.Event) error {
	for {
		events, err := instance.Next()
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

// sync watches what is to be watched now, and reports whether there is a
// directory among it that was not watched before.
func (w *fileWatch) sync(watches *inotify.Dirs) bool {
	added, err := watches.Sync(w.dirs())
	w.setDegraded(err)
	return added
}

// redir says that there are other directories to watch.
func (w *fileWatch) redir() { poke(w.redirs) }

func (w *fileWatch) interval() time.Duration {
	if w.isDegraded() {
		return degradedFileResync
	}
	return fileResync
}

func (w *fileWatch) isDegraded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.degraded
}

// setDegraded says once that events are missing, and once that they are back.
func (w *fileWatch) setDegraded(err error) {
	w.mu.Lock()
	was := w.degraded
	w.degraded = err != nil
	w.mu.Unlock()
	switch {
	case err != nil && !was:
		w.log.Warn("files can't be watched, looking at them each minute", "source", w.source, "reason", err)
	case err == nil && was:
		w.log.Info("files can be watched again", "source", w.source)
	}
}

// poke puts a value into a channel that holds one, unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
