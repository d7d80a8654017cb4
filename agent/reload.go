package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/matchers"
)

// loaded is what came of the configuration last.
type loaded struct {
	hash string    // of what is served
	at   time.Time // when that was loaded
	// generation counts what was served, from 1.
	generation int
	broken     error // why it is not what is on disk; nil where it is
}

// reading is one reading of the configuration on disk: it is in order, or err
// says what is wrong.
type reading struct {
	config *config.Config
	files  []config.File
	err    error
	asked  bool // somebody wants to hear of it whatever it is
}

func sameFile(a, b config.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// configReader reads the configuration whenever it may have changed, and hands
// on what is new. Reading and checking are done here, so that a slow disk keeps
// no device waiting.
type configReader struct {
	source   source
	files    *fileWatch
	asked    chan struct{} // holds one
	readings chan reading
	last     reading // what was handed on last
}

// newConfigReader makes one for what was read first.
func newConfigReader(s source, first reading, log *slog.Logger) *configReader {
	return &configReader{
		source: s, files: newFileWatch("configuration", func() []string { return configDirs(s.path) }, log),
		asked: make(chan struct{}, 1), readings: make(chan reading), last: first,
	}
}

// ask has the configuration read at once.
func (r *configReader) ask() { poke(r.asked) }

// run reads until ctx is cancelled.
func (r *configReader) run(ctx context.Context) error {
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { r.files.run(ctx) })
	for {
		var next reading
		select {
		case <-ctx.Done():
			return nil
		case <-r.files.changes:
		case <-r.asked:
			next.asked = true
		}
		next.files, next.err = r.source.read()
		if next.err == nil {
			if !next.asked && r.last.err == nil && slices.EqualFunc(next.files, r.last.files, sameFile) {
				continue
			}
			next.config, next.err = r.source.check(next.files)
		}
		if !next.asked && next.err != nil && r.last.err != nil && next.err.Error() == r.last.err.Error() {
			continue // it is broken in the same way
		}
		r.last = next
		select {
		case <-ctx.Done():
			return nil
		case r.readings <- next:
		}
	}
}

// reload takes in a reading: one that is broken changes nothing but what is said
// about it, one that is another configuration is served from now on.
func (l *loop) reload(ctx context.Context, r reading) {
	was := l.loaded.Load()
	now, switched := *was, false
	now.broken = r.err
	l.metrics.CountLoad(r.err)
	path := l.options.Config
	switch {
	case r.err != nil:
		logBroken(l.log, path, r.err)
		l.happened("", "", "the configuration on disk is broken")
	case r.config.Hash != was.hash:
		now.hash, now.at, now.generation = r.config.Hash, l.now(), was.generation+1
		l.config, switched = r.config, true
		l.usesNets = matchers.UsesNets(l.config)
		l.happened("", "", "another configuration is served")
		l.log.Info("configuration loaded", "config", path, "resources", len(r.config.Resources), "hash", r.config.Hash)
	case was.broken != nil:
		l.log.Info("configuration is in order again and has not changed", "config", path, "hash", was.hash)
	default:
		l.log.Info("configuration has not changed", "config", path, "hash", was.hash)
	}
	l.loaded.Store(&now)
	if r.err == nil {
		err := l.source.keep(r.files)
		l.sayOnce("last good configuration", text(err), "a copy of the configuration can't be kept: a broken one at the next start has none to stand in for it")
	}
	if switched {
		// What is known of containers is older than what they may hold now.
		l.switched, l.asked = now.at, time.Time{}
		l.watch(ctx)
	}
}

// logBroken says every problem of a broken configuration on a line of its own,
// with its hint.
func logBroken(log *slog.Logger, path string, broken error) {
	log.Error("configuration is broken: the last good one is served", "config", path)
	var problems config.Problems
	if !errors.As(broken, &problems) {
		log.Error("configuration problem", "config", path, "problem", strings.ReplaceAll(broken.Error(), "\n", "; "))
	}
	for _, p := range problems {
		args := []any{"config", path}
		if at := p.Position(); at != "" {
			args = append(args, "position", at)
		}
		args = append(args, "problem", p.Message())
		if p.Hint != "" {
			args = append(args, "hint", p.Hint)
		}
		log.Error("configuration problem", args...)
	}
}
