package slow

import (
	"context"
	"sync"
	"time"
)

// Last makes calls that may block, in rounds. A call that takes too long has the last value of its key
// instead. It is safe for concurrent use.
type Last[K comparable, V any] struct {
	Patience
	calls Calls[K, V]

	mu    sync.Mutex
	last  map[K]lastValue[V]
	round int
	// waited is the time spent in this round on late calls.
	waited time.Duration
}

// Patience is how long Last waits for calls.
type Patience struct {
	// ForOne is how long to wait for a call. After ForAll of waiting for late calls in a round, it is Brief.
	ForOne, ForAll, Brief time.Duration
	// Limit is the maximum number of calls at a time, see Calls.
	Limit int
	// OnlyLate is set if a value in time is not kept.
	OnlyLate bool
	// Late is called when a late call has returned, so that another round uses its value. It is not called
	// again until a call of that key was in time: a call that is always late must not cause endless rounds.
	Late func()
}

// NewLast returns a Last without values.
func NewLast[K comparable, V any](p Patience) *Last[K, V] {
	l := &Last[K, V]{Patience: p, last: make(map[K]lastValue[V])}
	l.calls.Limit = p.Limit
	l.calls.Late = l.late
	return l
}

// lastValue is the last value of a key.
type lastValue[V any] struct {
	value V
	// isLate is set if Late was called for the key.
	isLate bool
	// round is the last round that has made the call, or used the value.
	round int
}

// Next begins a round. It forgets values that neither this round nor the one before has used.
func (l *Last[K, V]) Next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, last := range l.last {
		if last.round < l.round {
			delete(l.last, key)
		}
	}
	l.round++
	l.waited = 0
}

// Do returns the value of f, unless a call with that key is running. If that takes too long, it returns the
// last value, or false if there is none.
func (l *Last[K, V]) Do(key K, f func() V) (value V, ok bool) {
	began := time.Now()
	// No context ends the call: a system call that blocks cannot be interrupted.
	value, _, isInTime := l.calls.Do(context.Background(), key, l.patience(), func() V {
		value := f()
		l.keep(key, value)
		return value
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case isInTime && l.OnlyLate:
		delete(l.last, key)
		return value, true
	case isInTime:
		l.last[key] = lastValue[V]{value: value, round: l.round}
		return value, true
	}
	l.waited += time.Since(began)
	last, isKnown := l.last[key]
	// The next round needs the value, too, even if the call still blocks then.
	if isKnown {
		last.round = l.round
		l.last[key] = last
	}
	return last.value, isKnown
}

// patience returns how long to wait for a call.
func (l *Last[K, V]) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waited < l.ForAll {
		return l.ForOne
	}
	return l.Brief
}

// keep keeps the value of a call that has returned.
func (l *Last[K, V]) keep(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[key] = lastValue[V]{
		value:  value,
		isLate: l.last[key].isLate,
		round:  l.round,
	}
}

// late is called when a late call has returned. The value may be forgotten already.
func (l *Last[K, V]) late(key K) {
	l.mu.Lock()
	last, isKnown := l.last[key]
	wasLate := last.isLate
	last.isLate = true
	if isKnown {
		l.last[key] = last
	}
	l.mu.Unlock()
	if !wasLate {
		l.Late()
	}
}

// Has reports whether any key with a last value meets a condition.
func (l *Last[K, V]) Has(condition func(key K) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.last {
		if condition(key) {
			return true
		}
	}
	return false
}
