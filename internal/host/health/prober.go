package health

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// ReasonPending is the reason of a device until its first check returns.
const ReasonPending = "health check pending"

// timeout is how long a check may take before it fails. No interval is shorter. It is
// enough for a driver that must wake its device.
const timeout = 5 * time.Second

// firstRetry is when a failed check is repeated; the delay doubles with every further
// failure until the regular check comes first.
const (
	firstRetry   = time.Second
	maxDoublings = 20
)

// Prober checks devices at their intervals. Its methods are safe for concurrent use.
// Without checks it is idle and has no timer.
type Prober struct {
	host    host
	changes chan struct{} // capacity 1: a result changed
	wake    chan struct{} // capacity 1: a check may be due

	mu      sync.Mutex
	origin  time.Time // intervals are counted from here
	probes  map[string]*probe
	running map[string]*attempt // by ID: one at a time, even if the device is replaced
}

// probe is the check of one device and its result.
type probe struct {
	check    Check
	due      time.Time
	failures int // since it passed
	reason   string
}

// New returns a Prober. local maps a path of the host to the path here. Run runs it.
func New(local func(path string) string) *Prober {
	return &Prober{
		host:    newHost(local),
		changes: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		origin: time.Now(),
		probes: map[string]*probe{}, running: map[string]*attempt{},
	}
}

// Set replaces the checks, by the ID of the device. A new device, or one whose check
// differs, is checked at once and pending until then.
func (p *Prober) Set(checks map[string]Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.probes, func(id string, _ *probe) bool { _, ok := checks[id]; return !ok })
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		c, old := checks[id], p.probes[id]
		if old != nil && reflect.DeepEqual(old.check, c) {
			continue
		}
		fresh := &probe{check: c, due: time.Now(), reason: ReasonPending}
		if old != nil {
			old.check.Interval = c.Interval
			if reflect.DeepEqual(old.check, c) {
				fresh.reason, fresh.failures = old.reason, old.failures
			}
		}
		p.probes[id] = fresh
		signal(p.wake)
	}
}

// Results returns the reason of each checked device, by ID; empty is healthy.
func (p *Prober) Results() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make(map[string]string, len(p.probes))
	for id, pr := range p.probes {
		results[id] = pr.reason
	}
	return results
}

// Changes signals that a check changed the results.
func (p *Prober) Changes() <-chan struct{} { return p.changes }

// Run checks until ctx is cancelled, and returns nil then.
func (p *Prober) Run(ctx context.Context) error {
	timer := time.NewTimer(timeout)
	timer.Stop()
	for {
		if next := p.round(ctx); !next.IsZero() {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// round starts due checks, fails overdue ones, and returns the time of the next round;
// zero if only an event can cause one.
func (p *Prober) round(ctx context.Context) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for id, pr := range p.probes {
		a, at := p.running[id], pr.due
		if a == nil && !now.Before(pr.due) {
			a = &attempt{probe: pr, began: now}
			p.running[id] = a
			check := pr.check
			go func() {
				reason := p.host.run(ctx, check, a)
				if ctx.Err() == nil {
					p.finish(id, a, reason)
				}
			}()
		}
		if a != nil {
			if at = a.began.Add(timeout); !now.Before(at) {
				p.report(pr, a.timedOut())
				continue // the end of the attempt wakes the prober
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// finish records the result of an attempt. If the device was replaced meanwhile, its new
// check is still due.
func (p *Prober) finish(id string, a *attempt, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, id)
	if p.probes[id] == a.probe {
		p.report(a.probe, reason)
		p.schedule(a.probe, a.began)
	}
	signal(p.wake)
}

func (p *Prober) report(pr *probe, reason string) {
	if pr.reason != reason {
		pr.reason = reason
		signal(p.changes)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// schedule sets when a check that has just ended is due again: at a multiple of its
// interval from origin, so that checks share wake-ups of the CPU.
func (p *Prober) schedule(pr *probe, began time.Time) {
	now, interval := time.Now(), pr.check.Interval
	// The second check follows the first, at any time, after half an interval or more.
	after := max(began.Add(interval/2).Sub(p.origin), now.Sub(p.origin))
	pr.due = p.origin.Add((after/interval + 1) * interval)
	if pr.reason == "" {
		pr.failures = 0
		return
	}
	if wait := firstRetry << min(pr.failures, maxDoublings); wait < interval/2 {
		seconds := (now.Add(wait).Sub(p.origin) + time.Second - 1).Truncate(time.Second)
		pr.due = p.origin.Add(seconds)
	}
	pr.failures++
}

// Once runs each check once and returns the results by ID. A check that takes longer
// than limit fails.
func Once(ctx context.Context, local func(path string) string, checks map[string]Check, limit time.Duration) map[string]string {
	return once(ctx, newHost(local), checks, limit)
}

func once(ctx context.Context, h host, checks map[string]Check, limit time.Duration) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct{ id, reason string }
	results := make(chan result, 2*len(checks))
	for id, c := range checks {
		a := &attempt{}
		go func() { results <- result{id, h.run(ctx, c, a)} }()
		context.AfterFunc(ctx, func() { results <- result{id, a.timedOut()} })
	}
	reasons := make(map[string]string, len(checks))
	for len(reasons) < len(checks) {
		r := <-results
		if _, ended := reasons[r.id]; !ended {
			reasons[r.id] = r.reason
		}
	}
	return reasons
}
