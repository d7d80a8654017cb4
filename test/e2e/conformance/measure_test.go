package conformance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
)

// took waits until check holds and returns the time since began. It polls often, to
// measure milliseconds.
func took(t testing.TB, began time.Time, what string, check func() bool) time.Duration {
	t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !check(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
	return time.Since(began)
}

// tookCount is took for a count. A failure reports the count.
func (n *node) tookCount(began time.Time, resource string, want devicemanager.Count) time.Duration {
	n.t.Helper()
	return took(n.t, began, "count of "+resource, func() bool { return n.Count(resource) == want })
}

// seen records the counts of a resource until it is stopped.
type seen struct {
	quit, done chan struct{}
	counts     []devicemanager.Count // every change
	apart      time.Duration         // how long it differed from the first
}

// watch starts recording. The kubelet must not restart meanwhile.
func (n *node) watch(resource string) *seen {
	s := &seen{quit: make(chan struct{}), done: make(chan struct{}), counts: []devicemanager.Count{n.Count(resource)}}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			now, c := time.Now(), n.Count(resource)
			if c != s.counts[0] {
				s.apart += now.Sub(last)
			}
			if last = now; c != s.counts[len(s.counts)-1] {
				s.counts = append(s.counts, c)
			}
			select {
			case <-s.quit:
				return
			case <-tick.C:
			}
		}
	}()
	return s
}

// stop ends the recording and returns it.
func (s *seen) stop() []devicemanager.Count {
	close(s.quit)
	<-s.done
	return s.counts
}

// figures formats durations by their median, their 99th percentile and the maximum.
func figures(d []time.Duration) string {
	sorted := slices.Sorted(slices.Values(d))
	at := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1)+0.5)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("n %d, p50 %v, p99 %v, max %v", len(sorted), at(0.5), at(0.99), at(1))
}
