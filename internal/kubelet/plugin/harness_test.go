package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const gpu = "example.com/gpu"

var noHooks = Hooks{Registered: func(Cause) {}, Refused: func() {}, Allocated: func(time.Duration, error) {}}

// fakeSource is a Source whose list is set by hand.
type fakeSource struct {
	allocate func(ctx context.Context, ids []string) (device.Response, error)
	prefer   func(available, must []string, size int) []string

	mu      sync.Mutex
	list    []device.Listed
	changed chan struct{}
}

func newSource(list ...device.Listed) *fakeSource {
	return &fakeSource{list: list, changed: make(chan struct{})}
}

func (s *fakeSource) set(list ...device.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeSource) Devices() ([]device.Listed, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.changed
}

func (s *fakeSource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	if s.allocate != nil {
		return s.allocate(ctx, ids)
	}
	var a device.Response
	list, _ := s.Devices()
	for _, id := range ids {
		if !slices.ContainsFunc(list, func(l device.Listed) bool { return l.ID == id && l.Healthy }) {
			return a, fmt.Errorf("device %q is unhealthy", id)
		}
		a.Nodes = append(a.Nodes, device.InjectedNode{HostPath: "/dev/" + id, ContainerPath: "/dev/" + id, Permissions: "rw"})
	}
	return a, nil
}

func (s *fakeSource) Prefer(available, must []string, size int) []string {
	if s.prefer != nil {
		return s.prefer(available, must, size)
	}
	return nil
}

// healthy lists healthy devices.
func healthy(ids ...string) []device.Listed {
	var list []device.Listed
	for _, id := range ids {
		list = append(list, device.Listed{ID: id, Healthy: true})
	}
	return list
}

func unhealthy(id, reason string) device.Listed { return device.Listed{ID: id, Reason: reason} }

// records is a slog handler that keeps the records.
type records struct {
	mu   sync.Mutex
	list []slog.Record
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec)
	return nil
}

// reasons returns the errors of all records of that message.
func (r *records) reasons(message string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reasons []string
	for _, rec := range r.list {
		if rec.Message != message {
			continue
		}
		rec.Attrs(func(a slog.Attr) bool {
			if a.Key == "err" {
				reasons = append(reasons, a.Value.String())
			}
			return true
		})
	}
	return reasons
}

// node is a machine with a kubelet, which is down at first, and plugins.
type node struct {
	*kubelettest.Kubelet
	t     testing.TB
	ctx   context.Context
	dir   string
	watch *KubeletWatch
	logs  *records
}

// newNode makes a node; set changes its kubelet.
func newNode(t testing.TB, set ...func(*kubelettest.Options)) *node {
	t.Helper()
	o := kubelettest.Options{Dir: filepath.Join(kubelettest.TempDir(t), "device-plugins")}
	for _, f := range set {
		f(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	n := &node{Kubelet: kubelettest.New(o), t: t, ctx: ctx, dir: o.Dir, logs: &records{}}
	t.Cleanup(n.Stop)
	n.watch = NewKubeletWatch(o.Dir, slog.New(n.logs))
	return n
}

// run starts the watch. Cleanups run last in first out: plugins end before it.
func (n *node) run() *node {
	n.t.Helper()
	n.background(n.watch.Run)
	return n
}

// up starts the watch and the kubelet.
func (n *node) up() *node {
	n.t.Helper()
	n.must(n.Start())
	return n.run()
}

// background runs f until the test ends or the returned func is called.
func (n *node) background(f func(context.Context) error) (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("cancelled Run: got %v, want nil", err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// plugin runs a plugin; set changes it first.
func (n *node) plugin(resource string, source Source, set ...func(*Plugin)) (p *Plugin, stop func()) {
	n.t.Helper()
	p = New(Options{Resource: resource, Watch: n.watch, Source: source, Log: slog.New(n.logs), Hooks: noHooks})
	for _, f := range set {
		f(p)
	}
	return p, n.background(p.Run)
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// waitAllocatable waits for a count.
func (n *node) waitAllocatable(resource string, count int) {
	n.t.Helper()
	n.must(n.WaitAllocatable(n.ctx, resource, count))
}

// waitStatus waits for a plugin's own view.
func (n *node) waitStatus(p *Plugin, want func(Status) bool) Status {
	n.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s := p.Status()
		if want(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			n.t.Fatalf("status: have %+v", s)
		}
	}
}

func (n *node) waitRegistered(p *Plugin, want bool) {
	n.t.Helper()
	n.waitStatus(p, func(s Status) bool { return s.Registered == want })
}

// sockets lists the names of plugins' sockets in the directory.
func (n *node) sockets() []string {
	n.t.Helper()
	entries, err := os.ReadDir(n.dir)
	n.must(err)
	var names []string
	for _, e := range entries {
		if e.Type() == os.ModeSocket && e.Name() != kubeletSocket {
			names = append(names, e.Name())
		}
	}
	return names
}

// checkRequests fails unless every registration had a unique socket.
func (n *node) checkRequests(resource string) {
	n.t.Helper()
	var seen []string
	for _, endpoint := range n.RegisterCalls(resource) {
		if slices.Contains(seen, endpoint) {
			n.t.Errorf("socket %q was registered twice", endpoint)
		}
		seen = append(seen, endpoint)
	}
}

// eachKeying runs a test against kubelets of both kinds.
func eachKeying(t *testing.T, f func(t *testing.T, keying func(*kubelettest.Options))) {
	for _, k := range []kubelettest.Keying{kubelettest.ByResource, kubelettest.BySocket} {
		t.Run("keyed by "+string(k), func(t *testing.T) {
			t.Parallel()
			f(t, func(o *kubelettest.Options) { o.Keying = k })
		})
	}
}

// discard is for tests that read no log.
var discard = slog.New(slog.DiscardHandler)
