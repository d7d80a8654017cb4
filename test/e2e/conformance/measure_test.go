package conformance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// timeTo waits until check holds and returns the time since began. It polls often, to
// measure milliseconds.
func timeTo(t testing.TB, began time.Time, what string, check func() error) time.Duration {
	t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	deadline := time.Now().Add(limit)
	for err := check(); err != nil; err = check() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-tick.C
	}
	return time.Since(began)
}

// timeToCount is timeTo for a count.
func (n *node) timeToCount(began time.Time, resource string, want devicemanager.Count) time.Duration {
	n.t.Helper()
	return timeTo(n.t, began, "count of "+resource, wait.Equal(want, func() devicemanager.Count { return n.Count(resource) }))
}

// recording is the counts of a resource until it is stopped.
type recording struct {
	quit, done  chan struct{}
	counts      []devicemanager.Count // every change
	unavailable time.Duration         // how long the count differed from the first one
}

// record starts recording. The kubelet must not restart meanwhile.
func (n *node) record(resource string) *recording {
	r := &recording{quit: make(chan struct{}), done: make(chan struct{}), counts: []devicemanager.Count{n.Count(resource)}}
	go func() {
		defer close(r.done)
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			now, c := time.Now(), n.Count(resource)
			if c != r.counts[0] {
				r.unavailable += now.Sub(last)
			}
			if last = now; c != r.counts[len(r.counts)-1] {
				r.counts = append(r.counts, c)
			}
			select {
			case <-r.quit:
				return
			case <-tick.C:
			}
		}
	}()
	return r
}

// stop ends the recording and returns it.
func (r *recording) stop() []devicemanager.Count {
	close(r.quit)
	<-r.done
	return r.counts
}

// wantCapacity ends the recording and checks that the kubelet always listed a number of
// devices.
func (r *recording) wantCapacity(t testing.TB, want int64) {
	t.Helper()
	for _, c := range r.stop() {
		if c.Capacity != want {
			t.Errorf("capacity was %d meanwhile, want %d", c.Capacity, want)
		}
	}
}

// wantNoChange ends the recording and checks that the count never changed.
func (r *recording) wantNoChange(t testing.TB) {
	t.Helper()
	if counts := r.stop(); len(counts) != 1 {
		t.Errorf("counts were %v, want no change", counts)
	}
}

// logUnavailable ends the recording and logs how long the resource was unavailable.
func (r *recording) logUnavailable(t testing.TB) {
	t.Helper()
	r.stop()
	t.Logf("resource unavailable for %v", r.unavailable.Round(10*time.Microsecond))
}

// figures formats durations by their median, their 99th percentile and the maximum.
func figures(d []time.Duration) string {
	sorted := slices.Sorted(slices.Values(d))
	at := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1)+0.5)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("n %d, p50 %v, p99 %v, max %v", len(sorted), at(0.5), at(0.99), at(1))
}
