package plugin

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// A rolling update: the new instance serves beside the old one, which then ends.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		old, stopOld := n.plugin(gpu, newSource(healthy("a", "b", "c", "d")...))
		n.waitRegistered(old, true)
		source := newSource(healthy("a", "b", "c", "d")...)
		newer, _ := n.plugin(gpu, source)
		n.waitRegistered(newer, true)
		if !old.isRegistered() {
			t.Error("the old instance is not registered any more")
		}
		n.must(n.WaitFor(n.ctx, func() bool { _, lists := n.Latest(gpu); return lists == 2 }))
		var lowest atomic.Int64
		lowest.Store(4)
		watching, stopWatching := context.WithCancel(n.ctx)
		watched := make(chan error, 1)
		go func() {
			watched <- n.WaitFor(watching, func() bool {
				lowest.Store(min(lowest.Load(), int64(n.Count(gpu).Allocatable)))
				return false
			})
		}()
		stopOld()
		source.set(healthy("a", "b", "c")...)
		n.waitAllocatable(gpu, 3)
		n.waitRegistered(newer, true)
		stopWatching()
		<-watched
		o := kubelettest.Options{}
		keying(&o)
		if o.Keying == kubelettest.BySocket && lowest.Load() < 3 {
			t.Errorf("allocatable fell to %d", lowest.Load())
		}
		n.checkRequests(gpu)
		if got := n.sockets(); len(got) != 1 {
			t.Errorf("sockets: got %q, want the newer's", got)
		}
	})
}

// An instance that has a successor keeps its streams, but never registers again: it would be the newest
// client of the kubelet, and end soon.
func TestRetiredPluginDoesNotRegisterAgain(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		source := newSource(healthy("a")...)
		p, stop := n.plugin(gpu, source)
		n.waitRegistered(p, true)
		n.watch.Retire()
		source.set(healthy("a", "b")...)
		n.waitAllocatable(gpu, 2)
		n.must(n.Restart())
		n.waitRegistered(p, false)
		n.waitKubelet(true, 2)
		stop()
		if got := n.Registrations(gpu); got != 1 {
			t.Errorf("%d registrations, want only the one before the restart of the kubelet", got)
		}
	})
}

// Tried is closed by a registration, by a refusal, and if there is no kubelet.
func TestTried(t *testing.T) {
	t.Parallel()
	down := newNode(t).run()
	p, _ := down.plugin(gpu, newSource(healthy("a")...))
	<-p.Tried()
	n := newNode(t).up()
	n.waitKubelet(true, 1)
	p, _ = n.plugin(gpu, newSource(healthy("a")...))
	<-p.Tried()
	if !p.isRegistered() {
		t.Error("tried before the resource is registered")
	}
	p, _ = n.plugin("not a name", newSource(healthy("a")...))
	<-p.Tried()
}
