package health

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// ReasonPending is why a device is not healthy whose first check has not
// ended yet.
const ReasonPending = "health check pending"

// timeout is how long a check may take before it fails. No interval is
// shorter, and a driver that has to wake its device is done by then.
const timeout = 5 * time.Second

// Prober checks devices at their intervals. Its methods may be called by any
// goroutine. While there is nothing to check it does nothing, and has no timer.
type Prober struct {
	host    host
	changes chan struct{} // holds one: the results are others
	wake    chan struct{} // holds one: look what is due

	mu      sync.Mutex
	origin  time.Time // of the turns
	probes  map[string]*probe
	running map[string]*attempt // by ID: one at a time, whatever becomes of the device
	results map[string]string   // as it was handed out; nil where another one is due
}

// probe is what is checked of one device.
type probe struct {
	check    Check
	slot     int
	due      time.Time
	failures int // since it passed
	reason   string
}

// New returns a Prober that finds the paths of the host where local says that
// they are here; nil is where the host has them. Run runs it.
func New(local func(path string) string) *Prober {
	if local == nil {
		local = func(path string) string { return path }
	}
	return &Prober{
		host:    newHost(local),
		changes: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		origin: time.Now(),
		probes: map[string]*probe{}, running: map[string]*attempt{},
	}
}

// Set replaces what is checked: the checks of all devices that are present, by
// their IDs. A device that is new, or that something else is to be looked at
// of, is checked at once, and pending until then.
func (p *Prober) Set(checks map[string]Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.probes {
		if _, ok := checks[id]; !ok {
			delete(p.probes, id)
			p.results = nil
		}
	}
	added := false
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		c, old := checks[id], p.probes[id]
		if old != nil && reflect.DeepEqual(old.check, c) {
			continue
		}
		fresh := &probe{check: c, due: time.Now(), reason: ReasonPending}
		if old != nil {
			delete(p.probes, id) // or it would count
			was := old.check
			if was.Interval = c.Interval; reflect.DeepEqual(was, c) {
				fresh.reason, fresh.failures = old.reason, old.failures
			}
		}
		fresh.slot = p.slot(c.Interval)
		p.probes[id] = fresh
		p.results, added = nil, true
	}
	if added {
		signal(p.wake)
	}
}

// Results returns why each device that is checked is not healthy, by ID; empty
// is that it is. The map is not written to again.
func (p *Prober) Results() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.results == nil {
		p.results = make(map[string]string, len(p.probes))
		for id, pr := range p.probes {
			p.results[id] = pr.reason
		}
	}
	return p.results
}

// Changes has something to receive after a check made the results others.
func (p *Prober) Changes() <-chan struct{} { return p.changes }

// Run checks until ctx ends, and returns nil then.
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

// round starts what is due, gives up what does not answer, and returns when to
// do so again; zero is not before something happens.
func (p *Prober) round(ctx context.Context) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for id, pr := range p.probes {
		a, at := p.running[id], pr.due
		if a == nil && !now.Before(pr.due) {
			a = p.start(ctx, id, pr, now)
		}
		if a != nil {
			if at = a.began.Add(timeout); !now.Before(at) {
				p.found(pr, a.stuck())
				continue // its end wakes
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// start runs a check in a goroutine of its own.
func (p *Prober) start(ctx context.Context, id string, pr *probe, now time.Time) *attempt {
	a := &attempt{of: pr, began: now}
	p.running[id] = a
	go func() {
		reason := p.host.run(ctx, pr.check, a)
		if ctx.Err() == nil {
			p.ended(id, a, reason)
		}
	}()
	return a
}

// ended takes the result of an attempt. A device that was replaced meanwhile is
// still to be checked, and is due.
func (p *Prober) ended(id string, a *attempt, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, id)
	if pr := a.of; p.probes[id] == pr {
		p.found(pr, reason)
		p.schedule(pr, a.began)
	}
	signal(p.wake)
}

// found notes the latest reason.
func (p *Prober) found(pr *probe, reason string) {
	if pr.reason != reason {
		pr.reason, p.results = reason, nil
		signal(p.changes)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Once runs each check once and returns what Results would. What takes longer
// than limit fails.
func Once(ctx context.Context, local func(path string) string, checks map[string]Check, limit time.Duration) map[string]string {
	return once(ctx, New(local).host, checks, limit)
}

func once(ctx context.Context, h host, checks map[string]Check, limit time.Duration) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct{ id, reason string }
	results := make(chan result, len(checks))
	attempts := make(map[string]*attempt, len(checks))
	for id, c := range checks {
		a := &attempt{}
		attempts[id] = a
		go func() { results <- result{id, h.run(ctx, c, a)} }()
	}
	reasons := make(map[string]string, len(checks))
	for len(attempts) > 0 {
		select {
		case r := <-results:
			reasons[r.id] = r.reason
			delete(attempts, r.id)
		case <-ctx.Done():
			for id, a := range attempts {
				reasons[id] = a.stuck()
			}
			return reasons
		}
	}
	return reasons
}
