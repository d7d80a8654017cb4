package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// After any sequence of failures the result is a registered plugin with its latest list,
// and never two of its sockets exist at once.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		var n *node
		n = newNode(t, keying, func(o *kubelettest.Options) {
			o.OnRegister = func(_ context.Context, _, endpoint string) error {
				for _, name := range n.sockets() {
					if name != endpoint {
						t.Errorf("%q is registered while %q is there", endpoint, name)
					}
				}
				return nil
			}
		}).up()
		source := newSource()
		p, _ := n.plugin(gpu, source)
		random := rand.New(rand.NewPCG(1, 0))
		var list []device.Listed
		for i := range 60 {
			switch random.IntN(8) {
			case 0:
				n.must(n.Restart())
			case 1:
				n.CutStream(gpu)
			case 2:
				for _, name := range n.sockets() {
					_ = os.Remove(filepath.Join(n.dir, name))
				}
			case 3:
				n.Kill()
				for os.RemoveAll(n.dir) != nil {
					runtime.Gosched() // the plugin made a socket meanwhile
				}
				n.must(n.Start())
			case 4:
				n.waitRegistered(p, true)
			case 5:
				n.Stop()
				n.must(n.Start())
			default:
				list = append(list[:len(list):len(list)], healthy(fmt.Sprintf("d%d", i))...)
				source.set(list...)
			}
		}
		source.set(healthy("x", "y", "z")...)
		n.waitAllocatable(gpu, 3)
		n.waitRegistered(p, true)
		// The last failure may be detected only now.
		err := n.WaitFor(n.ctx, func() bool {
			_, err := n.Allocate(n.ctx, gpu, "x", "y")
			return err == nil && len(n.sockets()) == 1
		})
		if err != nil {
			t.Errorf("%v, sockets %q", err, n.sockets())
		}
		n.checkRequests(gpu)
	})
}

// resources counts the goroutines and open files of the process.
func resources(t *testing.T) (goroutines, files int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return runtime.NumGoroutine(), len(entries)
}

// waitResources waits until there are no more goroutines and files than allowed: connections
// end shortly after they are closed.
func waitResources(t *testing.T, ctx context.Context, what string, goroutines, files int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		g, f := resources(t)
		if g <= goroutines && f <= files {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Fatalf("%s: %d goroutines, %d files, want at most %d, %d\n%s", what, g, f, goroutines, files, stacks)
		}
	}
}

// Not parallel: it counts resources of the whole process.
func TestNothingLeaks(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(n.ctx, 20*time.Second)
	defer cancel()
	// The first use of the network poller opens permanent files.
	n.must(n.Start())
	n.Stop()
	g0, f0 := resources(t)
	n.up()
	source := newSource(healthy("a")...)
	_, stop := n.plugin(gpu, source)
	n.waitAllocatable(gpu, 1)
	g1, f1 := resources(t)
	for i := range 100 {
		if i%2 == 0 {
			n.must(n.Restart())
		} else {
			n.CutStream(gpu)
		}
		source.set(healthy(fmt.Sprintf("d%d", i))...)
		n.must(n.WaitFor(n.ctx, func() bool {
			list, _ := n.Latest(gpu)
			return n.Count(gpu).Allocatable == 1 && list.Healthy()[0] == fmt.Sprintf("d%d", i)
		}))
	}
	waitResources(t, ctx, "after 100 restarts", g1, f1)
	stop()
	n.Stop()
	// The watch still runs: four goroutines and an inotify instance.
	waitResources(t, ctx, "after the end", g0+4, f0+1)
}

// Allocate, changes, restarts and streams all at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	source := newSource(healthy("a", "b")...)
	p, _ := n.plugin(gpu, source)
	n.waitAllocatable(gpu, 2)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				_, _ = n.Allocate(n.ctx, gpu, "a")
				_, _ = n.Prefer(n.ctx, gpu, []string{"a", "b"}, nil, 1)
				p.isRegistered()
			}
		})
	}
	group.Go(func() {
		for i := range 50 {
			source.set(append(healthy("a", "b"), unhealthy(fmt.Sprint(i), "unplugged"))...)
		}
	})
	group.Go(func() {
		for range 5 {
			n.CutStream(gpu)
			n.waitAllocatable(gpu, 2)
		}
	})
	group.Wait()
	n.waitAllocatable(gpu, 2)
}
