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
	// running is read-locked by each call, and locked when this instance is about to release the right.
	running sync.RWMutex
}

var errNotTurn = errors.New("another instance of the program answers the kubelet, and has not ended in time")

var errEnding = errors.New("this instance of the program is ending, and another one answers the kubelet")

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// open lets calls run. It is called once, when this instance has the right to answer.
func (g *gate) open() { close(g.opened) }

// enter waits until this instance may answer a call. The caller calls leave when it has answered. It
// is an error if ctx ends before, or if this instance does not answer any more.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-g.opened:
	case <-ctx.Done():
		return nil, errNotTurn
	}
	if !g.running.TryRLock() {
		return nil, errEnding
	}
	return g.running.RUnlock, nil
}

// close refuses further calls, and reports whether the running ones have ended in time.
func (g *gate) close(within time.Duration) (isIdle bool) {
	idle := make(chan struct{})
	go func() {
		g.running.Lock() // for ever
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-time.After(within):
		return false
	}
}

// enter admits a call of the kubelet, see gate.enter. An instance that has lost its lock refuses it, and ends.
func (a *Agent) enter(ctx context.Context) (leave func(), err error) {
	if a.turn.isLost() {
		a.wake.send()
		return nil, errLost
	}
	return a.gate.enter(ctx)
}
