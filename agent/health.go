package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
)

const (
	// firstResults is how long the first list of a resource waits for the
	// first results of checks: most come in a millisecond, and a list without
	// them would take all devices away for that moment whenever the program is
	// updated. A check that hangs costs the other devices no more than this.
	firstResults = 100 * time.Millisecond
	// probeFor is how long a command waits for checks.
	probeFor = 2 * time.Second
)

// checks are all that is to be looked at, by the IDs of devices.
func (v *View) checks() map[string]health.Check {
	all := map[string]health.Check{}
	for _, m := range v.Matched.Resources {
		maps.Copy(all, m.Checks)
	}
	return all
}

// fail makes the reasons of checks problems of their offers.
func (v *View) fail(reasons map[string]string) {
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			if o := &m.Offers[i]; o.Problem == "" {
				o.Problem = reasons[o.ID]
			}
		}
	}
}

// Probe runs every check of the configuration once, for two seconds at the
// most, and makes what fails a problem of its offer.
func (v *View) Probe(ctx context.Context, paths Paths) {
	v.fail(health.Once(ctx, paths.local, v.checks(), probeFor))
}

// probe has the present devices checked from now on, and makes what was found
// so far problems of their offers. It returns that, by ID.
func (l *loop) probe(v *View) map[string]string {
	l.prober.Set(v.checks())
	reasons := l.prober.Results()
	v.fail(reasons)
	return reasons
}

// restartable takes the reasons of checks out of the offers again, once the
// ledger has said who is healthy: links and CDI entries of a device that fails
// a check stay, or the container that holds it could not restart.
func restartable(out ledger.Output, reasons map[string]string) {
	for _, r := range out.Resources {
		for i := range r.Devices {
			if o := &r.Devices[i].Offer; o.Problem == reasons[o.ID] {
				o.Problem = ""
			}
		}
	}
}

// awaits returns until when the first list of a resource is not worth showing
// yet, since there is a device whose first check is about to end; zero where the
// list is to be shown.
func (s *served) awaits(listed ledger.ListedResource, now time.Time) time.Time {
	if until := s.since.Add(firstResults); !s.shown && now.Before(until) && pending(listed) {
		return until
	}
	return time.Time{}
}

func pending(listed ledger.ListedResource) bool {
	return slices.ContainsFunc(listed.Devices, func(e ledger.Entry) bool { return e.Reason == health.ReasonPending })
}
