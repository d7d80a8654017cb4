package plugin

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// waitKubelet waits for the watch to see a generation, present or not.
func (n *node) waitKubelet(present bool, generation uint64) {
	n.t.Helper()
	for {
		k, changed := n.watch.Kubelet()
		if k.Present == present && k.Generation == generation {
			return
		}
		select {
		case <-changed:
		case <-n.ctx.Done():
			n.t.Fatalf("kubelet socket: have %+v, want present %t, generation %d", k, present, generation)
		}
	}
}

func TestWatchGenerations(t *testing.T) {
	t.Parallel()
	n := newNode(t).run()
	n.waitKubelet(false, 0)
	for i := range uint64(5) {
		n.must(n.Start())
		n.waitKubelet(true, i+1)
		n.Stop()
		n.waitKubelet(false, i+1)
	}
	// An existing socket is one generation, however it is detected.
	n.must(n.Start())
	n.waitKubelet(true, 6)
	for range 100 {
		n.watch.check(kubeletSocket)
		n.watch.checkAll()
	}
	n.waitKubelet(true, 6)
}

// A kubelet that started first is as old as its socket.
func TestWatchKnowsTheAgeOfTheKubelet(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, time.Hour, -time.Hour} { // the last by a clock that was set back
		n := newNode(t)
		n.must(n.Start())
		made := time.Now().Add(-age)
		n.must(os.Chtimes(n.Socket(), made, made))
		n.run()
		n.waitKubelet(true, 1)
		kubelet, _ := n.watch.Kubelet()
		if off := time.Since(kubelet.Since) - max(0, age); off < 0 || off > time.Minute {
			t.Errorf("age %s, want %s", time.Since(kubelet.Since), max(0, age))
		}
	}
}

func TestWatchWithoutInotify(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch.Files.Open = func(uint32) (watch.Source, error) {
		return nil, &os.SyscallError{Syscall: "inotify_init1", Err: syscall.EMFILE}
	}
	n.watch.Files.Poll = 2 * time.Millisecond
	n.run()
	p, _ := n.plugin(gpu, newSource(healthy("a")...))
	n.must(n.Start())
	n.waitAllocatable(gpu, 1)
	if n.watch.Files.Degraded() == nil {
		t.Error("not degraded")
	}
	n.must(n.Restart())
	n.waitAllocatable(gpu, 1)
	n.waitRegistered(p, true)
	n.must(os.Remove(filepath.Join(n.dir, n.sockets()[0])))
	n.must(n.WaitFor(n.ctx, func() bool { return len(n.RegisterCalls(gpu)) >= 3 }))
	n.waitAllocatable(gpu, 1)
	if got := n.logs.reasons("cannot watch directories, polling them instead"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
}
