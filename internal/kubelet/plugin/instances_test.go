package plugin

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
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

// A rollback: kubelets up to 1.36 do not notify the old instance when they drop the
// resource with the new one.
func TestNewerInstanceEnds(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		fast := func(p *Plugin) { p.timing.reclaim = time.Millisecond }
		source := newSource(healthy("a")...)
		old, _ := n.plugin(gpu, source, fast)
		n.waitRegistered(old, true)
		newer, stop := n.plugin(gpu, newSource(healthy("a")...), fast)
		n.waitRegistered(newer, true)
		stop()
		n.waitAllocatable(gpu, 1)
		source.set(healthy("a", "b")...)
		n.waitAllocatable(gpu, 2)
		// On older kubelets only the list arrives, not Allocate.
		n.must(n.WaitFor(n.ctx, func() bool {
			_, err := n.Allocate(n.ctx, gpu, "a")
			return err == nil
		}))
	})
}

// An instance that is killed leaves its socket, and no event.
func TestNewerInstanceIsKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch.Files.Resync = 20 * time.Millisecond
	n.up()
	p, _ := n.plugin(gpu, newSource(healthy("a")...), func(p *Plugin) { p.timing.reclaim = time.Millisecond })
	n.waitRegistered(p, true)
	newer, err := socket.Listen(n.dir, gpu)
	n.must(err)
	n.must(newer.Listener.Close())
	n.must(n.WaitFor(n.ctx, func() bool { return n.Registrations(gpu) == 2 }))
	n.waitAllocatable(gpu, 1)
}
