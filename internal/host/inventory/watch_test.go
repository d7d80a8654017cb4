package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// fakeKernel has the events of a test.
type fakeKernel struct {
	events chan string
	errs   chan error
	closed chan struct{}
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{events: make(chan string), errs: make(chan error), closed: make(chan struct{})}
}

func (k *fakeKernel) next() (string, error) {
	select {
	case p := <-k.events:
		return p, nil
	case err := <-k.errs:
		return "", err
	case <-k.closed:
		return "", io.ErrClosedPipe
	}
}

func (k *fakeKernel) Close() error { close(k.closed); return nil }

// fakeFiles has every directory except for missing ones.
type fakeFiles struct {
	events chan []watch.Event
	closed chan struct{}

	mu     sync.Mutex
	wds    map[string]int
	refuse error
}

func newFakeFiles() *fakeFiles {
	return &fakeFiles{events: make(chan []watch.Event), closed: make(chan struct{}), wds: make(map[string]int)}
}

func (f *fakeFiles) setRefuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *fakeFiles) Add(dir string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return 0, f.refuse
	}
	if _, ok := f.wds[dir]; !ok {
		f.wds[dir] = len(f.wds) + 1
	}
	return f.wds[dir], nil
}

func (f *fakeFiles) Remove(int) {}

func (f *fakeFiles) Next() ([]watch.Event, error) {
	select {
	case e := <-f.events:
		return e, nil
	case <-f.closed:
		return nil, io.ErrClosedPipe
	}
}

func (f *fakeFiles) Close() error { close(f.closed); return nil }

// start runs a watcher with fakes until the end of the test, and takes its first batch.
func start(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v; want nil once cancelled", err)
		}
	})
	<-w.Changes()
	if b := w.Take(); !b.All || !b.At.IsZero() {
		t.Errorf("first batch: %+v; want All, and no event", b)
	}
}

func fakeWatcher(o WatchOptions) (*Watcher, *fakeKernel, *fakeFiles) {
	w := NewWatcher(o)
	k, f := newFakeKernel(), newFakeFiles()
	w.openKernel = func() (kernelEvents, error) { return k, nil }
	w.files.Open = func(uint32) (watch.Source, error) { return f, nil }
	return w, k, f
}

func waiting(w *Watcher) bool {
	synctest.Wait()
	select {
	case <-w.Changes():
		return true
	default:
		return false
	}
}

func TestEventsAreMergedUntilTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, k, f := fakeWatcher(WatchOptions{})
		start(t, w)
		k.events <- "devices/b"
		time.Sleep(time.Second)
		k.events <- "devices/a"
		k.events <- "devices/b"
		if !waiting(w) {
			t.Fatal("no wake-up")
		}
		equal(t, "result", Batch{Paths: []string{"devices/a", "devices/b"}, At: time.Now()}, w.Take())
		equal(t, "taken twice", Batch{}, w.Take())
		f.events <- []watch.Event{{WD: f.wds["/dev"], Mask: 0x100, Name: "x"}}
		k.events <- "devices/c"
		if !waiting(w) {
			t.Fatal("no second wake-up")
		}
		equal(t, "result", Batch{Names: true, Paths: []string{"devices/c"}, At: time.Now()}, w.Take())
		if waiting(w) {
			t.Error("woken without an event")
		}
	})
}

func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, k, _ := fakeWatcher(WatchOptions{})
		start(t, w)
		for i := range 3*maxPaths + 10 {
			k.events <- fmt.Sprintf("devices/%d", i)
		}
		waiting(w)
		b := w.Take()
		if !b.All || len(b.Paths) > maxPaths {
			t.Errorf("All %v, %d paths; want All and at most %d", b.All, len(b.Paths), maxPaths)
		}
	})
}

func TestLostEventsMeanAFullScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, k, _ := fakeWatcher(WatchOptions{})
		start(t, w)
		k.errs <- errLost
		if !waiting(w) || !w.Take().All {
			t.Error("no batch that says All")
		}
		k.events <- "devices/a"
		equal(t, "after that", []string{"devices/a"}, takePaths(w))
		if d := w.Degraded(); d != nil {
			t.Errorf("degraded: %q", d)
		}
	})
}

func takePaths(w *Watcher) []string {
	waiting(w)
	return w.Take().Paths
}

func TestIdleExceptForTheTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := fakeWatcher(WatchOptions{})
		start(t, w)
		began := time.Now()
		for i := range 3 {
			<-w.Changes()
			if d, want := time.Since(began), time.Duration(i+1)*defaultResync; d != want {
				t.Errorf("scan %d after %v; want %v", i, d, want)
			}
			equal(t, "result", Batch{All: true}, w.Take())
		}
	})
}

// A driver that fails to probe a device causes no event: the host is scanned two seconds after the last
// event of a device.
func TestScanAfterAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, k, f := fakeWatcher(WatchOptions{})
		start(t, w)
		next := func() time.Duration {
			began := time.Now()
			<-w.Changes()
			if b := w.Take(); !b.All {
				t.Errorf("%+v; want All", b)
			}
			return time.Since(began)
		}
		for range 3 {
			k.events <- "devices/a"
			time.Sleep(time.Second)
		}
		waiting(w)
		w.Take()
		if d := next(); d != time.Second {
			t.Errorf("a scan after %v; want it 2 s after the last event", d)
		}
		for _, p := range []string{"devices/virtual/net/veth1", "devices/virtual/block/loop1"} {
			k.events <- p
		}
		f.events <- []watch.Event{{WD: f.wds["/dev"], Mask: 0x100, Name: "x"}}
		waiting(w)
		w.Take()
		if d := next(); d != defaultResync {
			t.Errorf("a scan after %v; want none before the resync", d)
		}
	})
}

// If no match selects network interfaces, the interfaces of pods cause no scan.
func TestVirtualInterfacesAreLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, k, _ := fakeWatcher(WatchOptions{})
		start(t, w)
		w.LeaveOutNets(true)
		k.events <- "devices/virtual/net/veth1"
		if waiting(w) {
			t.Error("a wakeup for an interface of a pod")
		}
		w.LeaveOutNets(false)
		k.events <- "devices/virtual/net/veth1"
		equal(t, "result", []string{"devices/virtual/net/veth1"}, takePaths(w))
	})
}

func TestMissingSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w, k, f := fakeWatcher(WatchOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
		tries := 0
		w.openKernel = func() (kernelEvents, error) {
			if tries++; tries < 3 {
				return nil, errors.New("refused")
			}
			return k, nil
		}
		f.setRefuse(errors.New("no space"))
		start(t, w)
		want := []device.Problem{{Subject: "file events", Reason: `watch "/dev": no space`}, {Subject: "kernel events", Reason: "refused"}}
		equal(t, "result", want, w.Degraded())
		next := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			<-w.Changes()
			if d := time.Since(began); d != want || !w.Take().All {
				t.Errorf("a full scan after %v; want %v", d, want)
			}
			waiting(w) // both sources may request it
		}
		next(degradedResync)
		f.setRefuse(nil)
		next(degradedResync)
		if d := w.Degraded(); d != nil {
			t.Errorf("still degraded: %q", d)
		}
		next(defaultResync)
		k.errs <- errors.New("broke")
		if !waiting(w) {
			t.Error("a source that broke did not wake anybody")
		}
		equal(t, "result", []device.Problem{{Subject: "kernel events", Reason: "broke"}}, w.Degraded())
		for text, n := range map[string]int{"level=WARN": 3, "level=INFO": 2} {
			if got := strings.Count(log.String(), text); got != n {
				t.Errorf("%d lines of %s; want %d:\n%s", got, text, n, log.String())
			}
		}
	})
}

func TestDirsBelowDevAreWatchedWhereTheyAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, f := fakeWatcher(WatchOptions{Dev: "/host/dev"})
		w.SetDirs([]string{"/dev", "/dev/serial/", "/run/x"})
		start(t, w)
		var got []string
		for dir := range f.wds {
			got = append(got, dir)
		}
		want := []string{"/host/dev", "/host/dev/serial", "/run/x"}
		equal(t, "result", want, got, cmpopts.SortSlices(strings.Compare))
		waiting(w)
		w.SetDirs([]string{"/dev/serial", "/run/x", "/dev/dri"})
		if !waiting(w) || w.Take().At.IsZero() {
			t.Error("no batch for a directory that is watched for the first time")
		}
		w.SetDirs([]string{"/dev/serial"})
		if waiting(w) {
			t.Error("a batch for fewer directories")
		}
	})
}

// Changes without an event are scanned each minute, and no more often.
func TestSetResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := fakeWatcher(WatchOptions{})
		start(t, w)
		for _, c := range []struct{ set, want time.Duration }{
			{time.Minute, time.Minute}, {time.Second, time.Minute}, {0, defaultResync}, {time.Minute, time.Minute},
		} {
			w.SetResync(c.set)
			synctest.Wait()
			began := time.Now()
			<-w.Changes()
			if d := time.Since(began); d != c.want || !w.Take().All {
				t.Errorf("%v: a scan after %v; want %v", c.set, d, c.want)
			}
		}
	})
}

// realWatcher runs on real inotify, with /dev in a directory of the test.
func realWatcher(t *testing.T) (w *Watcher, dev string) {
	t.Helper()
	dev = t.TempDir()
	w = NewWatcher(WatchOptions{Dev: dev})
	w.openKernel = func() (kernelEvents, error) { return newFakeKernel(), nil }
	return w, dev
}

// await takes batches until one has an event.
func await(t *testing.T, w *Watcher, what string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case <-w.Changes():
			if !w.Take().At.IsZero() {
				return
			}
		case <-deadline:
			t.Fatalf("%s: no event in 10 s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAwaitedDirectoryOutsideDev(t *testing.T) {
	t.Parallel()
	w, _ := realWatcher(t)
	// Temporary files and this directory may be below /dev, in /dev/shm.
	run, err := os.MkdirTemp(".", ".run-*")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(run)) })
	run = "/proc/self/cwd/" + filepath.Base(run)
	w.SetDirs([]string{run + "/a/b/c"})
	start(t, w)
	// Other entries are ignored: otherwise the first batch would precede the directory.
	must(t, os.WriteFile(run+"/neighbour", nil, 0o644))
	must(t, os.MkdirAll(run+"/a/b/c", 0o755))
	await(t, w, "directory")
	must(t, os.WriteFile(run+"/a/b/c/socket", nil, 0o644))
	await(t, w, "file")
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
