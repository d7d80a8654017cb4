package plugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

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
		p, _ := n.plugin(gpu, newSource(healthy("a")...), func(p *Plugin) { p.timing.stream = 200 * time.Millisecond })
		n.must(n.WaitFor(n.ctx, func() bool { return n.Registrations(gpu) >= 2 }))
		if p.Status().Registered {
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
	own, err := kubelet.Listen(kubelettest.TempDir(t), gpu)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Remove()
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
			cause, _ := s.follow(ctx, s, own, 0, answered, func() { registered = true })
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
