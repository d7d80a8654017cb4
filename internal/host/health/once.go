package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Once runs each check once, a limited number at a time, and returns the results by ID. A
// check that has not returned within limit fails.
//
// The commands call it for a single result. The service uses a Prober. Once returns at limit, or
// when ctx is cancelled, even if checks hang: their goroutines end when the kernel returns.
func Once(
	ctx context.Context,
	local func(path string) string,
	checks map[string]device.Check,
	limit time.Duration,
) map[string]string {
	return once(ctx, newHost(local), checks, limit)
}

func once(ctx context.Context, h host, checks map[string]device.Check, limit time.Duration) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct {
		id     string
		reason string
	}
	var (
		reasons = make(map[string]string, len(checks))
		running = map[string]*attempt{}
		// The channel has room for all running checks, so that a late check can always end.
		results = make(chan result, maxRunning)
		// The order decides which checks are not run in time, so that it must not be random.
		waiting = slices.Sorted(maps.Keys(checks))
	)
	for len(waiting) > 0 || len(running) > 0 {
		for len(waiting) > 0 && len(running) < maxRunning {
			id := waiting[0]
			waiting = waiting[1:]
			a := &attempt{}
			running[id] = a
			go func() {
				results <- result{id, h.run(ctx, checks[id], a)}
			}()
		}
		select {
		case r := <-results:
			reasons[r.id] = r.reason
			delete(running, r.id)
		case <-ctx.Done():
			for id, a := range running {
				reasons[id] = a.timedOut()
			}
			for _, id := range waiting {
				reasons[id] = fmt.Sprintf("not checked within %s: other checks took longer", limit)
			}
			return reasons
		}
	}
	return reasons
}
