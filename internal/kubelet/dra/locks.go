package dra

import (
	"context"
	"errors"
	"sync"
)

// locks are mutexes by name. A caller stops waiting when its context ends, since the holder of a
// lock may hang in a write. The zero value is ready to use.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is free
}

// lock waits for the lock of a name, and returns a function that frees it. The order of the waiting
// callers is not defined. The error means that ctx has ended.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		free := l.tryLock(name)
		if free == nil {
			unlock := func() {
				l.unlock(name)
			}
			return unlock, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, errors.New("an earlier call for the claim has not ended")
		}
	}
}

// tryLock takes a lock without waiting and returns nil. If another caller has the lock, it returns
// a channel that is closed when that caller frees it.
func (l *locks) tryLock(name string) (free <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[name]; held != nil {
		return held
	}
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	l.held[name] = make(chan struct{})
	return nil
}

// unlock frees a lock, which wakes all callers that wait for it. One of them gets it.
func (l *locks) unlock(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[name])
	delete(l.held, name)
}
