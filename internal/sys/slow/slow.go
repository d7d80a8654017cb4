// Package slow limits the time to wait for calls that may block: in the kernel while a driver probes a
// device, or on another process.
package slow

import (
	"context"
	"sync"
	"time"
)

// Calls runs calls, at most one at a time for each key. The zero value is ready to use. Calls is safe
// for concurrent use.
type Calls[K comparable, V any] struct {
	// Late is called with the key of each call that returns after a caller gave up. It may be
	// nil.
	Late func(K)
	// Limit is the maximum number of calls at a time, because each call may block a thread. 0 is no
	// limit. A call above the limit does not run, and is reported as a call that blocks.
	Limit int

	mu      sync.Mutex
	running map[K]*call[V]
}

// call is a running call.
type call[V any] struct {
	since time.Time
	done  chan struct{}
	// result is valid after done is closed.
	result V
	// late is set if a caller gave up.
	late bool
}

// Do runs f, unless a call with that key is already running, and waits for the result until the call has
// run for the time patience. Later callers do not wait again for a call that blocks. Do returns the
// result, or false and how long the call has been running. An abandoned call keeps running.
func (c *Calls[K, V]) Do(
	ctx context.Context,
	key K,
	patience time.Duration,
	f func() V,
) (result V, running time.Duration, ok bool) {
	r := c.start(key, f)
	if r == nil {
		return result, 0, false
	}
	timer := time.NewTimer(patience - time.Since(r.since))
	defer timer.Stop()
	select {
	case <-r.done:
		return r.result, 0, true
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-r.done:
		return r.result, 0, true
	default:
		r.late = true
		return result, time.Since(r.since), false
	}
}

// start returns the running call of a key, or starts a call of f. It returns nil if the limit is
// reached.
func (c *Calls[K, V]) start(key K, f func() V) *call[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.running[key]; r != nil {
		return r
	}
	if c.Limit > 0 && len(c.running) >= c.Limit {
		return nil
	}
	if c.running == nil {
		c.running = make(map[K]*call[V])
	}
	r := &call[V]{since: time.Now(), done: make(chan struct{})}
	c.running[key] = r
	go func() {
		result := f()
		c.mu.Lock()
		r.result = result
		delete(c.running, key)
		close(r.done)
		late := r.late
		c.mu.Unlock()
		if late && c.Late != nil {
			c.Late(key)
		}
	}()
	return r
}
