package health

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// onceLate is how much longer than limit Once waits: the checks that began first end at limit.
const onceLate = 100 * time.Millisecond

// Once runs each check with a Prober until all have a result, for a command, and returns the results by ID. A
// check that has not returned within limit fails. Checks that hang end when the kernel returns.
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
	p.Set(checks)
	go func() {
		_ = p.Run(ctx) // always nil
	}()
	for {
		results := p.Results()
		isComplete := true
		for id, reason := range results {
			if reason == ReasonPending {
				isComplete = false
				results[id] = fmt.Sprintf("not checked within %s: other checks took longer", limit)
			}
		}
		if isComplete || ctx.Err() != nil {
			return results
		}
		select {
		case <-ctx.Done():
		case <-p.Changes():
		}
	}
}
