package inventory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/inotify"
)

// Run watches until ctx ends, and returns nil then. The first batch says All
// and comes once the watches are in place: a scan after it misses nothing.
func (w *Watcher) Run(ctx context.Context) error {
	r := &run{Watcher: w, kernelEnded: make(chan error), events: make(chan []inotify.Event), filesEnded: make(chan error)}
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
				w.lookAtNames()
			}
		case batch := <-r.events:
			changed, moved := r.watches.Handle(batch)
			if changed {
				w.happened(Batch{Names: true})
			}
			if moved && r.sync() {
				w.lookAtNames()
			}
		case err := <-r.kernelEnded:
			r.kernel.Close()
			r.kernel = nil
			w.setDegraded(kernelSource, err)
			w.look()
		case err := <-r.filesEnded:
			r.watches.Source.Close()
			r.watches = nil
			w.setDegraded(filesSource, err)
			w.look()
		}
	}
}

// run is what belongs to one call of Run.
type run struct {
	*Watcher
	kernel      kernelEvents  // nil while missing
	watches     *inotify.Dirs // nil while missing
	events      chan []inotify.Event
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
			r.watches = &inotify.Dirs{Source: f}
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
		r.watches.Source.Close()
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
	added, err := r.watches.Sync(here)
	r.setDegraded(filesSource, err)
	return added
}

func (r *run) readKernel(k kernelEvents) error {
	for {
		p, err := k.next()
		switch {
		case errors.Is(err, errLost):
			r.happened(Batch{All: true})
		case err != nil:
			return err
		default:
			r.happened(Batch{Paths: []string{p}})
		}
	}
}

func (r *run) readFiles(ctx context.Context, f inotify.Source) error {
	for {
		events, err := f.Next()
		if err != nil {
			return err
		}
		if !send(ctx, r.events, events) {
			return ctx.Err()
		}
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
