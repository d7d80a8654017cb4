package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		p, stop := n.plugin(gpu, newSource(append(healthy("a", "b"), unhealthy("c", "no node"))...))
		n.waitAllocatable(gpu, 2)
		n.waitRegistered(p, true)
		if got, want := n.Count(gpu), (kubelettest.Count{Known: true, Capacity: 3, Allocatable: 2}); got != want {
			t.Errorf("count: got %+v, want %+v", got, want)
		}
		list, _ := n.Latest(gpu)
		if diff := cmp.Diff([]string{"c"}, list.Unhealthy()); diff != "" {
			t.Errorf("unhealthy devices (-want +got):\n%s", diff)
		}
		n.checkRequests(gpu)

		// A clean end: allocatable drops at once, capacity and files stay.
		stop()
		n.waitAllocatable(gpu, 0)
		if got := n.Count(gpu).Capacity; got != 3 {
			t.Errorf("capacity after the end: got %d, want 3", got)
		}
		if got := n.sockets(); len(got) > 0 {
			t.Errorf("sockets after the end: %q", got)
		}
		if p.isRegistered() {
			t.Error("registered after the end")
		}
	})
}

func TestRegisterCause(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	causes := make(chan Cause, 10)
	p := New(Options{Resource: gpu, Watch: n.watch, Source: newSource(healthy("a")...), Hooks: noHooks, Log: discard})
	p.Hooks.Registered = func(c Cause) { causes <- c }
	n.background(p.Run)
	steps := []struct {
		do   func()
		want Cause
	}{
		{func() {}, CauseStart},
		{func() { n.must(n.Restart()) }, CauseKubelet},
		{func() { n.CutStream(gpu) }, CauseStreamEnded},
		{func() { n.must(os.Remove(filepath.Join(n.dir, n.sockets()[0]))) }, CauseSocketRemoved},
		{func() { n.must(n.Restart()) }, CauseKubelet},
	}
	for _, step := range steps {
		step.do()
		if got := <-causes; got != step.want {
			t.Errorf("cause: got %q, want %q", got, step.want)
		}
		n.waitAllocatable(gpu, 1)
	}
	n.checkRequests(gpu)
}

func TestKubeletComesLate(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T, *node){
		"no socket": func(t *testing.T, n *node) { n.must(os.MkdirAll(n.dir, 0o750)) },
		"no directory": func(t *testing.T, n *node) {
			n.must(os.MkdirAll(filepath.Dir(n.dir), 0o750))
		},
		"no directory above": func(t *testing.T, n *node) {
			n.must(os.RemoveAll(filepath.Dir(n.dir)))
		},
		"stale socket": func(t *testing.T, n *node) {
			n.must(n.Start())
			n.Kill()
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			prepare(t, n)
			n.run()
			p, _ := n.plugin(gpu, newSource(healthy("a")...))
			n.waitReason(p, func(reason string) bool {
				return reason == "the kubelet's socket does not exist" || strings.Contains(reason, "connection refused")
			})
			n.must(n.Start())
			n.waitAllocatable(gpu, 1)
			if got := n.logs.reasons("registration failed"); len(got) > 0 {
				t.Errorf("a kubelet that is not there is no failure: %q", got)
			}
		})
	}
}

// listenLate binds a socket, calls between, and listens.
func listenLate(between func(path string)) func(string) (net.Listener, error) {
	return func(path string) (net.Listener, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return nil, err
		}
		between(path)
		if err := unix.Listen(fd, 128); err != nil {
			return nil, err
		}
		return net.FileListener(f)
	}
}

func TestSocketBoundButNotListening(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(o *kubelettest.Options) {
		o.Listen = listenLate(func(path string) {
			if id, ok := socket.Identify(path); !ok || !socket.Dead(path) {
				t.Errorf("want a socket that refuses connections, have %v", id)
			}
			// A busy machine may take this long between bind and listen.
			<-time.After(30 * time.Millisecond)
		})
	}).run()
	p, _ := n.plugin(gpu, newSource(healthy("a")...))
	n.must(n.Start())
	began := time.Now()
	n.waitRegistered(p, true)
	if took := time.Since(began); took > time.Second {
		t.Errorf("registered %s after the kubelet listened", took)
	}
	if got := len(n.RegisterCalls(gpu)); got != 1 {
		t.Errorf("registrations: got %d, want 1", got)
	}
	if got := n.logs.reasons("waiting for the kubelet"); len(got) > 0 {
		t.Errorf("a refused connection right after bind was logged: %q", got)
	}
}

func TestKubeletRestart(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		p, _ := n.plugin(gpu, newSource(healthy("a", "b")...))
		n.waitAllocatable(gpu, 2)
		before, err := n.Admit(n.ctx, claim("p", "c"), 1)
		n.must(err)

		n.must(n.Restart())
		n.waitAllocatable(gpu, 2)
		n.waitRegistered(p, true)
		after, err := n.Admit(n.ctx, claim("p", "c"), 1)
		n.must(err)
		if before != after {
			t.Error("the pod's devices changed over the restart")
		}
		second, err := n.Admit(n.ctx, claim("q", "c"), 1)
		n.must(err)
		if slices.Equal(second.IDs, before.IDs) {
			t.Errorf("device %q was given twice", second.IDs)
		}
		n.checkRequests(gpu)
		if got := n.sockets(); len(got) != 1 {
			t.Errorf("sockets: got %q, want one", got)
		}
	})
}

func TestPluginRestart(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		source := newSource(healthy("a", "b")...)
		// Left by a killed plugin.
		stale, err := socket.Listen(n.dir, gpu)
		n.must(err)
		n.must(stale.Listener.Close())

		_, stop := n.plugin(gpu, source)
		n.waitAllocatable(gpu, 2)
		for range 5 {
			stop()
			n.waitAllocatable(gpu, 0)
			_, stop = n.plugin(gpu, source)
			n.waitAllocatable(gpu, 2)
		}
		if !slices.Contains(n.sockets(), stale.Name) {
			t.Error("somebody else's socket was removed")
		}
		n.checkRequests(gpu)
	})
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		p, _ := n.plugin(gpu, newSource(healthy("a")...))
		n.waitRegistered(p, true)
		for i := range 3 {
			socket := n.Connected(gpu)
			n.CutStream(gpu)
			n.must(n.WaitFor(n.ctx, func() bool {
				now := n.Connected(gpu)
				return n.Count(gpu).Allocatable == 1 && len(now) == 1 && !slices.Equal(now, socket)
			}))
			if got, want := n.Registrations(gpu), i+2; got != want {
				t.Errorf("registrations: got %d, want %d", got, want)
			}
		}
		n.checkRequests(gpu)
	})
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	var refusal atomic.Pointer[error]
	refuse := func(err error) { refusal.Store(&err) }
	refuse(errors.New("not today"))
	n := newNode(t, func(o *kubelettest.Options) {
		o.OnRegister = func(context.Context, string, string) error { return *refusal.Load() }
	}).up()
	var refused atomic.Int64
	p, _ := n.plugin(gpu, newSource(healthy("a")...), func(p *Plugin) {
		p.Hooks.Refused = func() { refused.Add(1) }
	})
	n.waitReason(p, func(r string) bool { return r == "register: not today" })
	n.must(n.WaitFor(n.ctx, func() bool { return len(n.RegisterCalls(gpu)) >= 4 }))
	refuse(errors.New("nor tomorrow"))
	n.waitReason(p, func(r string) bool { return r == "register: nor tomorrow" })
	refuse(nil)
	n.waitAllocatable(gpu, 1)
	n.waitRegistered(p, true)

	want := []string{"register: not today", "register: nor tomorrow"}
	if diff := cmp.Diff(want, n.logs.reasons("registration failed")); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
	n.checkRequests(gpu)
	if got, want := int(refused.Load()), len(n.RegisterCalls(gpu))-1; got != want {
		t.Errorf("refusals counted: got %d, want %d", got, want)
	}
	if got := n.sockets(); len(got) != 1 {
		t.Errorf("sockets: got %q, want one", got)
	}
}

// The kubelet holds Register for 10 s while it dials a socket that is gone.
func TestSocketRemovedWhileRegistering(t *testing.T) {
	t.Parallel()
	var n *node
	var first atomic.Bool
	n = newNode(t, func(o *kubelettest.Options) {
		o.OnRegister = func(_ context.Context, _, endpoint string) error {
			if first.Swap(true) {
				return nil
			}
			return os.Remove(filepath.Join(n.dir, endpoint))
		}
	}).up()
	began := time.Now()
	n.plugin(gpu, newSource(healthy("a")...))
	n.waitAllocatable(gpu, 1)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s: the lost registration was waited for", took)
	}
	if got := len(n.RegisterCalls(gpu)); got != 2 {
		t.Errorf("registrations: got %d, want 2", got)
	}
}

// hangFirst blocks the first Register call until it is cancelled or the kubelet ends.
func hangFirst(o *kubelettest.Options) {
	var first atomic.Bool
	o.OnRegister = func(ctx context.Context, _, _ string) error {
		if !first.Swap(true) {
			<-ctx.Done()
		}
		return ctx.Err()
	}
}

func TestKubeletRestartsWhileRegistering(t *testing.T) {
	t.Parallel()
	n := newNode(t, hangFirst).up()
	n.plugin(gpu, newSource(healthy("a")...))
	n.must(n.WaitFor(n.ctx, func() bool { return len(n.RegisterCalls(gpu)) == 1 }))
	n.must(n.Restart())
	n.waitAllocatable(gpu, 1)
}

func TestStopWhileRegistering(t *testing.T) {
	t.Parallel()
	n := newNode(t, hangFirst).up()
	_, stop := n.plugin(gpu, newSource(healthy("a")...))
	n.must(n.WaitFor(n.ctx, func() bool { return len(n.RegisterCalls(gpu)) == 1 }))
	stop()
	if got := n.sockets(); len(got) > 0 {
		t.Errorf("sockets after the end: %q", got)
	}
}

// A program that ends while the kubelet connects to it lets the kubelet connect: otherwise the kubelet
// would forget the resource, and with it the other instance of an update.
func TestStopWhileTheKubeletConnects(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		ctx, cancel := context.WithCancel(t.Context())
		n := newNode(t, keying, func(o *kubelettest.Options) {
			o.OnRegister = func(context.Context, string, string) error {
				cancel()
				return nil
			}
		}).up()
		p := New(Options{Resource: gpu, Watch: n.watch, Source: newSource(healthy("a")...), Log: slog.New(n.logs), Hooks: noHooks})
		n.must(p.Run(ctx))
		if _, lists := n.Latest(gpu); lists != 1 {
			t.Errorf("the kubelet got %d lists, want 1", lists)
		}
		if got := n.sockets(); len(got) > 0 {
			t.Errorf("sockets after the end: %q", got)
		}
	})
}

// The kubelet accepts, and then never opens ListAndWatch.
func TestNoStream(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		n.WithholdStreams(true)
		p, _ := n.plugin(gpu, newSource(healthy("a")...), func(p *Plugin) { p.timing.stream = 20 * time.Millisecond })
		n.must(n.WaitFor(n.ctx, func() bool { return n.Registrations(gpu) == 2 }))
		if p.isRegistered() {
			t.Error("registered without a stream")
		}
		n.WithholdStreams(false)
		n.waitAllocatable(gpu, 1)
		n.waitRegistered(p, true)
		n.checkRequests(gpu)
	})
}

// blockedSource lists devices when it is closed.
type blockedSource struct {
	*fakeSource
	unblocked chan struct{}
}

func (s blockedSource) Devices() ([]device.Listed, <-chan struct{}) {
	<-s.unblocked
	return s.fakeSource.Devices()
}

// A list that takes its time, as a long one on a busy node, is no reason to register again.
func TestSlowFirstList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := blockedSource{newSource(healthy("a")...), make(chan struct{})}
		s := testServer(source, nil)
		go func() { _ = s.ListAndWatch(nil, &fakeStream{ctx: ctx}) }()
		answered := make(chan error, 1)
		answered <- nil
		registered := false
		ended := make(chan Cause, 1)
		go func() {
			cause, _ := s.follow(ctx, s, &ownSocket{}, 0, answered, func() { registered = true })
			ended <- cause
		}()
		time.Sleep(time.Hour)
		close(source.unblocked)
		synctest.Wait()
		cancel()
		if cause := <-ended; cause != "" || !registered {
			t.Errorf("registered: %t, ended: %q, want it registered", registered, cause)
		}
	})
}

// The kubelet accepts, and disconnects before it opens ListAndWatch: kubelets up to 1.36 do
// where the stream of an older instance ends meanwhile.
func TestDisconnectedBeforeTheStream(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		var n *node
		cut := sync.OnceFunc(func() { n.CutStream(gpu) })
		n = newNode(t, keying, func(o *kubelettest.Options) {
			o.OnRegister = func(context.Context, string, string) error { cut(); return nil }
		}).up()
		p, _ := n.plugin(gpu, newSource(healthy("a")...), func(p *Plugin) { p.timing.stream = time.Hour })
		n.waitAllocatable(gpu, 1)
		n.waitRegistered(p, true)
		if got := n.Registrations(gpu); got != 2 {
			t.Errorf("registrations: got %d, want 2", got)
		}
		n.checkRequests(gpu)
	})
}

func TestKubeletDiesBeforeTheStream(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	n.WithholdStreams(true)
	n.plugin(gpu, newSource(healthy("a")...))
	n.must(n.WaitFor(n.ctx, func() bool { return n.Registrations(gpu) == 1 }))
	n.Kill()
	n.WithholdStreams(false)
	n.must(n.Start())
	n.waitAllocatable(gpu, 1)
}

// The kubelet's socket may disappear for a while without the kubelet.
func TestKubeletSocketRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	source := newSource(healthy("a")...)
	p, _ := n.plugin(gpu, source)
	n.waitRegistered(p, true)
	_, changed := n.watch.Kubelet()
	n.must(os.Remove(n.Socket()))
	<-changed
	source.set(healthy("a", "b")...)
	n.waitAllocatable(gpu, 2)
	if got := n.Registrations(gpu); got != 1 {
		t.Errorf("registrations: got %d, want 1", got)
	}
}

func TestDirectoryTooLong(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(o *kubelettest.Options) {
		o.Dir = filepath.Join(filepath.Dir(o.Dir), strings.Repeat("d", 107-len(filepath.Dir(o.Dir))-len("//"+kubeletSocket)))
	}).up()
	p, _ := n.plugin(gpu, newSource(healthy("a")...))
	reason := n.waitReason(p, func(r string) bool { return strings.Contains(r, "--kubelet-dir") })
	if !strings.Contains(reason, "at most 107 are allowed") {
		t.Errorf("got %q", reason)
	}
}

func TestManyResources(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		for i := range 20 {
			n.plugin(fmt.Sprintf("example.com/r%d", i), newSource(healthy(fmt.Sprintf("d%d", i))...))
		}
		for range 2 {
			for i := range 20 {
				n.waitAllocatable(fmt.Sprintf("example.com/r%d", i), 1)
			}
			n.must(n.Restart())
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	old := time.Hour
	refused := registration{err: errors.New("connection refused")}
	rejected := registration{err: errors.New("no"), connected: true}
	ended := registration{ended: CauseStreamEnded, connected: true, lived: time.Second}
	steadily := registration{ended: CauseStreamEnded, connected: true, lived: steady}

	var b backoff
	for range 1000 {
		if d := b.next(refused, fastWindow-1); d != retryFast {
			t.Fatalf("right after the socket was made: got %s, want %s", d, retryFast)
		}
	}
	for name, r := range map[string]registration{"refused": refused, "rejected": rejected, "ended": ended} {
		b.reset()
		if d := b.next(r, old); d != retryFast {
			t.Errorf("%s: first pause: got %s, want %s", name, d, retryFast)
		}
		last := time.Duration(0)
		for range 100 {
			d := b.next(r, old)
			if d < retryMin/2 || d > retryMax || d < last/2 {
				t.Errorf("%s: pause of %s after %s", name, d, last)
			}
			last = d
		}
		if last < retryMax*3/4 {
			t.Errorf("%s: last pause: got %s, want nearly %s", name, last, retryMax)
		}
	}
	if d := b.next(steadily, old); d != retryFast {
		t.Errorf("after a good registration: got %s, want %s", d, retryFast)
	}
}
