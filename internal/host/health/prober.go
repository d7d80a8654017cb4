package health

import (
	"context"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// ReasonPending is the reason of a device until its first check returns.
const ReasonPending = "health check pending"

// timeout is how long a check may take before it fails. No interval is shorter. It is
// enough for a driver that must wake its device.
const timeout = 5 * time.Second

// Limits of the checks that have begun and not returned. A check costs a goroutine and a
// socket, or a thread of the kernel while it hangs in open or read.
const (
	// maxRunning is the number of checks that run at the same time. A check that hangs
	// no longer counts after timeout.
	maxRunning = 32
	// maxFailing is the number of them that failed the last time: hosts that do not
	// answer take 4 seconds each, and must not delay the checks of others.
	maxFailing = maxRunning / 2
	// maxInKernel is the number of checks that have begun to open nodes or read
	// attributes, including those that hang. Nothing can end these.
	maxInKernel = 64
)

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

	// mu guards all fields below. It is never held while a check runs.
	mu     sync.Mutex
	origin time.Time // intervals are counted from here
	// probes are the current checks, by ID.
	probes  map[string]*probe
	running map[string]*attempt // by ID: one at a time, even if the device is replaced
	// isStuck reports that maxInKernel checks hang and others wait for them.
	isStuck bool
}

// probe is the check of one device and its result. Its fields are guarded by Prober.mu.
type probe struct {
	id    string
	check device.Check
	// due is when the check should begin. It may be late, because the number of checks is
	// limited.
	due      time.Time
	failures int // since the last success
	// reason is why the device fails, or ReasonPending. It is empty if the last check passed.
	reason string
}

// inKernel reports whether the check may hang in the kernel, where no timeout ends it.
func (pr *probe) inKernel() bool {
	return len(pr.check.Open)+len(pr.check.Attrs)+len(pr.check.Links) > 0
}

// New returns a Prober, which does nothing until Run. local maps a path of the host to its path in this
// mount namespace.
func New(local func(path string) string) *Prober {
	return &Prober{
		host:    newHost(local),
		changes: make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		origin:  time.Now(),
		probes:  map[string]*probe{},
		running: map[string]*attempt{},
	}
}

// Set replaces the checks, by the ID of the device. The agent calls it after each match. A new
// device, or a device with another check, is checked as soon as possible and is pending until
// then.
func (p *Prober) Set(checks map[string]device.Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.probes {
		if _, stays := checks[id]; !stays {
			// Its running attempt goes on, and finish ignores the result.
			delete(p.probes, id)
		}
	}
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(checks)) {
		check := checks[id]
		old := p.probes[id]
		// The check keeps its result and its time, however often the host changes.
		if old != nil && reflect.DeepEqual(old.check, check) {
			continue
		}
		fresh := &probe{
			id:     id,
			check:  check,
			due:    now,
			reason: ReasonPending,
		}
		// A new interval alone does not make a healthy device pending.
		if old != nil {
			old.check.Interval = check.Interval
			onlyInterval := reflect.DeepEqual(old.check, check)
			if onlyInterval {
				fresh.reason = old.reason
				fresh.failures = old.failures
			}
		}
		// The pointer is new, so that finish can distinguish the attempts of the old check.
		p.probes[id] = fresh
		signal(p.wake)
	}
}

// Results returns the reason of each checked device, by ID. The reason is empty if the device is
// healthy. The map belongs to the caller.
func (p *Prober) Results() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make(map[string]string, len(p.probes))
	for id, pr := range p.probes {
		results[id] = pr.reason
	}
	return results
}

// Stuck reports whether devices are not checked because too many other checks hang.
// Changes signals when that changes.
func (p *Prober) Stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isStuck
}

// Changes signals that a check changed the results. Several changes may be one signal, so that
// the receiver reads all results.
func (p *Prober) Changes() <-chan struct{} { return p.changes }

// Run checks until ctx is cancelled, and returns nil then. It does not wait for checks that hang.
// It must be called once.
func (p *Prober) Run(ctx context.Context) error {
	// The timer is only created here. round decides when it fires.
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

// round fails overdue checks, starts due checks as the limits allow, and returns the time of the
// next round. It returns the zero time if only an event can cause a round.
func (p *Prober) round(ctx context.Context) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	wakeAt := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for id, a := range p.running {
		deadline := a.deadline()
		if now.Before(deadline) {
			wakeAt(deadline)
			continue
		}
		// The device may have been removed. If it was replaced, its check waits for this one, and
		// it fails as well.
		if pr := p.probes[id]; pr != nil {
			p.report(pr, a.timedOut())
		}
	}
	var due []*probe
	for id, pr := range p.probes {
		if p.running[id] != nil { // its end wakes the prober
		} else if now.Before(pr.due) {
			wakeAt(pr.due)
		} else {
			due = append(due, pr)
		}
	}
	// The check that has waited longest comes first. The ID makes the order of the others stable.
	slices.SortFunc(due, func(a, b *probe) int {
		if order := a.due.Compare(b.due); order != 0 {
			return order
		}
		return strings.Compare(a.id, b.id)
	})
	// The timeout of the new checks is the next time at which a round has something to do.
	if p.start(ctx, now, due) {
		wakeAt(now.Add(timeout))
	}
	return next
}

// start starts checks in this order as far as the limits allow, and reports whether it
// started one. The end of a running check, or its timeout, wakes the prober for the others.
func (p *Prober) start(ctx context.Context, now time.Time, due []*probe) (started bool) {
	running := 0
	failing := 0
	inKernel := 0
	add := func(a *attempt) {
		if now.Before(a.deadline()) {
			running++
			if a.hasFailed {
				failing++
			}
		}
		if a.probe.inKernel() {
			inKernel++
		}
	}
	// hangs is the number of attempts beyond their deadline.
	hangs := 0
	for _, a := range p.running {
		add(a)
		if !now.Before(a.deadline()) {
			hangs++
		}
	}
	isStuck := false
	for _, pr := range due {
		// Nothing else can start in this round.
		if running >= maxRunning {
			break
		}
		hasFailed := pr.failures > 0
		// A check that passed the last time may still start.
		if hasFailed && failing >= maxFailing {
			continue
		}
		// A check of an address may still start.
		if pr.inKernel() && inKernel >= maxInKernel {
			// Checks below their deadline do not count as stuck, because they probably return
			// soon.
			isStuck = isStuck || hangs >= maxInKernel
			continue
		}
		a := &attempt{
			probe:     pr,
			hasFailed: hasFailed,
			began:     now,
		}
		p.running[pr.id] = a
		add(a)
		started = true
		go p.attempt(ctx, a, pr.check)
	}
	if isStuck != p.isStuck {
		p.isStuck = isStuck
		signal(p.changes)
	}
	return started
}

// attempt runs a check in its own goroutine and records the result, unless ctx has ended. check
// is a parameter, because Set may change the interval in the probe.
func (p *Prober) attempt(ctx context.Context, a *attempt, check device.Check) {
	limited, cancel := context.WithDeadline(ctx, a.deadline())
	defer cancel()
	reason := p.host.run(limited, check, a)
	// At the end of the program, a cancelled connection says nothing about the device.
	if ctx.Err() == nil {
		p.finish(a, reason)
	}
}

// finish records the result of an attempt. If the device was replaced meanwhile, its new
// check is still due.
func (p *Prober) finish(a *attempt, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, a.probe.id)
	if p.probes[a.probe.id] == a.probe {
		p.report(a.probe, reason)
		p.schedule(a.probe, a.began)
	}
	signal(p.wake)
}

// report sets the reason of a check. The caller holds mu.
func (p *Prober) report(pr *probe, reason string) {
	if pr.reason != reason {
		pr.reason = reason
		signal(p.changes)
	}
}

// signal sends to a channel with room for one signal. If a signal is already waiting, one is
// enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// schedule sets when a check that has just ended is due again: at its phase of an interval
// counted from origin, so that few checks share the wake-ups of the CPU and many are spread. A
// failed check is repeated earlier. The caller holds mu.
func (p *Prober) schedule(pr *probe, began time.Time) {
	now := time.Now()
	interval := pr.check.Interval
	phase := p.phase(pr)
	// The second check follows the first, at any time, after half an interval or more.
	earliest := max(began.Add(interval/2).Sub(p.origin), now.Sub(p.origin))
	// The number of the first interval whose phase is later than earliest. Integer
	// division would round a negative number up.
	n := (earliest - phase + interval) / interval
	pr.due = p.origin.Add(n*interval + phase)
	if pr.reason == "" {
		pr.failures = 0
		return
	}
	// The limit of the shift prevents an overflow.
	wait := firstRetry << min(pr.failures, maxDoublings)
	// Retries are at full seconds from origin, so that they share wake-ups, too.
	if wait < interval/2 {
		seconds := (now.Add(wait).Sub(p.origin) + time.Second - 1).Truncate(time.Second)
		pr.due = p.origin.Add(seconds)
	}
	pr.failures++
}

// phase is when in its interval a device is checked. It is zero for all unless there are
// more checks than may run at the same time; then the IDs spread them over the interval.
func (p *Prober) phase(pr *probe) time.Duration {
	batches := (len(p.probes) + maxRunning - 1) / maxRunning
	if batches <= 1 {
		return 0
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pr.id))
	batch := int(hash.Sum32() % uint32(batches))
	return pr.check.Interval * time.Duration(batch) / time.Duration(batches)
}
