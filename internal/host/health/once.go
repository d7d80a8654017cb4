package health

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// onceLate is how much longer than limit Once waits: the checks that began first end at limit.
const onceLate = 100 * time.Millisecond

// Once runs each check with a Prober until all have a result, for a command, and returns the results by ID. A
// check that has not returned within limit fails, and one that had to wait for others is pending. Checks that
// hang end when the kernel returns.
func Once(
	ctx context.Context,
	local func(path string) string,
	checks map[string]device.Check,
	limit time.Duration,
) map[string]string {
	return New(local).once(ctx, checks, limit)
}

func (p *Prober) once(ctx context.Context, checks map[string]device.Check, limit time.Duration) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, limit+onceLate)
	defer cancel()
	checks = maps.Clone(checks)
	for id, c := range checks {
		c.Interval = time.Hour
		checks[id] = c
	}
	p.timeout = limit
	p.Set(ctx, checks)
	for {
		results := p.Results()
		isPending := slices.Contains(slices.Collect(maps.Values(results)), ReasonPending)
		if !isPending || ctx.Err() != nil {
			return results
		}
		select {
		case <-ctx.Done():
		case <-p.Changes():
		}
	}
}
