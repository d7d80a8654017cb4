package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// gate lets the calls by which the kubelet allocates and releases devices run while this instance has
// the right to answer them, so that two instances never answer at the same time.
type gate struct {
	// opened is closed when this instance has the right to answer.
	opened chan struct{}

	mu sync.Mutex
	// isClosed is set when this instance is about to release the right.
	isClosed bool
	running  sync.WaitGroup
}

var errNotTurn = errors.New("another instance of the program answers the kubelet, and has not ended in time")

var errEnding = errors.New("this instance of the program is ending, and another one answers the kubelet")

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// open lets calls run. It is called once, when this instance has the right to answer.
func (g *gate) open() { close(g.opened) }

// isOpen reports whether enter does not wait.
func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// enter waits until this instance may answer a call. The caller calls leave when it has answered. It
// is an error if ctx ends before, or if this instance does not answer any more.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-g.opened:
	case <-ctx.Done():
		return nil, errNotTurn
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return nil, errEnding
	}
	g.running.Add(1)
	return g.running.Done, nil
}

// close refuses further calls, and reports whether the running ones have ended in time.
func (g *gate) close(within time.Duration) (isIdle bool) {
	g.mu.Lock()
	g.isClosed = true
	g.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		g.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-time.After(within):
		return false
	}
}
