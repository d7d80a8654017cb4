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
