package watch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// source has every directory, and the events of a test.
type source struct {
	events chan []watch.Event
	errs   chan error
	closed chan struct{}

	mu     sync.Mutex
	dirs   map[string]int
	refuse error
}

func newSource() *source {
	return &source{events: make(chan []watch.Event), errs: make(chan error), closed: make(chan struct{}), dirs: map[string]int{}}
}

func (s *source) Add(dir string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return 0, s.refuse
	}
	if s.dirs[dir] == 0 {
		s.dirs[dir] = len(s.dirs) + 1
	}
	return s.dirs[dir], nil
}

func (s *source) setRefuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *source) Remove(int) {}

func (s *source) Next() ([]watch.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case err := <-s.errs:
		return nil, err
	case <-s.closed:
		return nil, io.ErrClosedPipe
	}
}

func (s *source) Close() error { close(s.closed); return nil }

// named is an event of an entry of the first directory.
var named = []watch.Event{{WD: 1, Mask: unix.IN_CREATE, Name: "x"}}

// run runs a watcher of a source until the end of the test, starting with its first
// signal.
func run(t *testing.T, o watch.Options) *watch.Watcher {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dirs == nil {
		o.Dirs = func() []string { return []string{"/dir"} }
	}
	w := watch.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v; want nil once cancelled", err)
		}
	})
	<-w.Changes()
	return w
}

// after is how long an awaited signal took.
func after(w *watch.Watcher) time.Duration {
	began := time.Now()
	<-w.Changes()
	return time.Since(began)
}

func signalled(w *watch.Watcher) bool {
	synctest.Wait()
	select {
	case <-w.Changes():
		return true
	default:
		return false
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		w := run(t, watch.Options{Resync: time.Minute, Poll: time.Second, Open: func(uint32) (watch.Source, error) { return s, nil }})
		if signalled(w) {
			t.Error("a second signal without an event")
		}
		if names, all := w.Take(); names != nil || !all {
			t.Errorf("first: %q, %t; want all", names, all)
		}
		s.events <- named
		if !signalled(w) {
			t.Error("no signal of an event")
		}
		if names, all := w.Take(); !slices.Equal(names, []string{"x"}) || all {
			t.Errorf("after an event: %q, %t; want its name", names, all)
		}
		for i := range 2000 {
			s.events <- []watch.Event{{WD: 1, Mask: unix.IN_CREATE, Name: fmt.Sprint(i)}}
		}
		if !signalled(w) {
			t.Error("no signal of many events")
		}
		if names, all := w.Take(); names != nil || !all {
			t.Errorf("after many events: %d names, %t; want all", len(names), all)
		}
		s.events <- []watch.Event{{WD: 7, Mask: unix.IN_CREATE, Name: "x"}}
		if signalled(w) {
			t.Error("a signal of another directory")
		}
		if d := after(w); d != time.Minute {
			t.Errorf("a signal after %v; want one a minute", d)
		}
		if d := after(w); d != time.Minute {
			t.Errorf("a signal after %v; want one a minute", d)
		}
	})
}

// Events are signalled after a quiet period, or after ten times that period.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		w := run(t, watch.Options{Quiet: 100 * time.Millisecond, Resync: time.Hour, Poll: time.Second, Open: func(uint32) (watch.Source, error) { return s, nil }})
		s.events <- named
		time.Sleep(60 * time.Millisecond)
		s.events <- named
		if d := after(w); d != 100*time.Millisecond {
			t.Errorf("a signal %v after the last event", d)
		}
		began := time.Now()
		for !signalled(w) {
			s.events <- named
			time.Sleep(60 * time.Millisecond)
		}
		if d := time.Since(began); d < time.Second || d > 1100*time.Millisecond {
			t.Errorf("a signal after %v; want a second", d)
		}
	})
}

// Dirs is called before each signal, and on Refresh.
func TestOtherDirectories(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		var mu sync.Mutex
		list := []string{"/a"}
		set := func(dirs ...string) {
			mu.Lock()
			defer mu.Unlock()
			list = dirs
		}
		w := run(t, watch.Options{Resync: time.Hour, Poll: time.Second, Open: func(uint32) (watch.Source, error) { return s, nil }, Dirs: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return list
		}})
		set("/a", "/b")
		w.Refresh()
		if !signalled(w) {
			t.Error("no signal of a directory that was not watched before")
		}
		set("/b")
		w.Refresh()
		if signalled(w) {
			t.Error("a signal of fewer directories")
		}
		set("/b", "/c")
		s.events <- []watch.Event{{WD: s.dirs["/b"], Mask: unix.IN_CREATE, Name: "x"}}
		if !signalled(w) || s.dirs["/c"] == 0 {
			t.Errorf("watched: %v; want what an event led to", s.dirs)
		}
	})
}

// Without inotify directories are polled. The log has one message at the start and one
// at the end of that.
func TestPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newSource()
		tries := 0
		open := func(uint32) (watch.Source, error) {
			if tries++; tries < 3 {
				return nil, errors.New("too many")
			}
			return s, nil
		}
		s.setRefuse(errors.New("no space"))
		w := run(t, watch.Options{Source: "files", Resync: time.Hour, Poll: time.Second, Open: open, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 4 {
			if err := w.Degraded(); err == nil {
				t.Error("not degraded")
			}
			if d := after(w); d != time.Second {
				t.Errorf("a signal after %v; want one a second", d)
			}
			synctest.Wait()
		}
		if err := w.Degraded(); err == nil || err.Error() != `watch "/dir": no space` {
			t.Errorf("degraded: %v", err)
		}
		s.setRefuse(nil)
		after(w)
		synctest.Wait()
		if err := w.Degraded(); err != nil {
			t.Errorf("degraded: %v; want nothing", err)
		}
		if d := after(w); d != time.Hour {
			t.Errorf("a signal after %v; want one an hour", d)
		}
		s.errs <- errors.New("broke")
		if !signalled(w) || w.Degraded() == nil {
			t.Error("no signal of a source that broke")
		}
		for text, n := range map[string]int{"level=WARN": 2, "level=INFO": 1, "source=files": 3} {
			if got := strings.Count(log.String(), text); got != n {
				t.Errorf("%s %d times; want %d:\n%s", text, got, n, log.String())
			}
		}
	})
}
