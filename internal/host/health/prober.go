package health

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// ReasonPending is the reason of a device until its first check returns.
const ReasonPending = "health check pending"

// timeout is Prober.timeout. No interval is shorter. It is enough for a driver that must wake its
// device.
const timeout = 5 * time.Second

// Limits of the checks. A check costs a socket, or a thread of the kernel while it hangs in open or read.
const (
	// maxRunning is the number of checks that run at the same time. A check gives its place back when it
	// returns, and at its timeout.
	maxRunning = 32
	// maxFailing is the number of them that failed the last time: hosts that do not
	// answer take 4 seconds each, and must not delay the checks of others.
	maxFailing = maxRunning / 2
	// maxHung is the number of checks beyond their timeout from which on no check begins that may hang in
	// the kernel, where nothing can end it. The checks that run at that time may hang, too.
	maxHung = 64
)

// firstRetry is when a failed check is repeated; the delay doubles with every further
// failure until the regular check comes first.
const (
	firstRetry   = time.Second
	maxDoublings = 20
)

// Prober checks devices at their intervals. Each device has a goroutine, which waits for its time, then for
// a place among the running checks. The methods are safe for concurrent use. Without checks there is
// neither a goroutine nor a timer.
type Prober struct {
	host host
	// timeout is how long a check may take before it fails.
	timeout time.Duration
	changes chan struct{} // capacity 1: a result changed
	origin  time.Time     // intervals are counted from here
	// running and failing are semaphores: who sends gets a place, in the order of arrival. A check that
	// failed the last time needs a place in both.
	running chan struct{}
	failing chan struct{}

	// mu guards all fields below. It is never held while a check runs.
	mu sync.Mutex
	// probes are the current checks, by ID.
	probes map[string]*probe
	// hung is the number of checks beyond their timeout.
	hung int
}

// probe is the check of one device and its result. Prober.mu guards reason. The other fields belong to the
// goroutine of the device.
type probe struct {
	check device.Check
	// stop ends the goroutine, when the device is removed or has another check.
	stop context.CancelFunc
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

// New returns a Prober without checks. local maps a path of the host to its path in this
// mount namespace.
func New(local func(path string) string) *Prober {
	return &Prober{
		host:    newHost(local),
		timeout: timeout,
		changes: make(chan struct{}, 1),
		origin:  time.Now(),
		running: make(chan struct{}, maxRunning),
		failing: make(chan struct{}, maxFailing),
		probes:  map[string]*probe{},
	}
}

// Set replaces the checks, by the ID of the device, until ctx is cancelled. The agent calls it after each
// match. A new device, or a device with another check, is checked as soon as possible and is pending until
// then.
func (p *Prober) Set(ctx context.Context, checks map[string]device.Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, pr := range p.probes {
		if _, stays := checks[id]; !stays {
			pr.stop()
			delete(p.probes, id)
		}
	}
	now := time.Now()
	for id, check := range checks {
		old := p.probes[id]
		// The check keeps its result and its time, however often the host changes.
		if old != nil && reflect.DeepEqual(old.check, check) {
			continue
		}
		fresh := &probe{
			check:  check,
			due:    now,
			reason: ReasonPending,
		}
		if old != nil {
			old.stop()
			// A new interval alone does not make a healthy device pending.
			before := old.check
			before.Interval = check.Interval
			if reflect.DeepEqual(before, check) {
				fresh.reason = old.reason
			}
		}
		p.probes[id] = fresh
		ctx, stop := context.WithCancel(ctx)
		fresh.stop = stop
		go p.follow(ctx, fresh)
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
	return p.hung >= maxHung
}

// Changes signals that a check changed the results. Several changes may be one signal, so that
// the receiver reads all results.
func (p *Prober) Changes() <-chan struct{} { return p.changes }

// follow checks a device until ctx is cancelled. It does not wait for a check that hangs.
func (p *Prober) follow(ctx context.Context, pr *probe) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(pr.due)):
			p.checkOnce(ctx, pr)
		}
	}
}

// checkOnce waits for a place, runs a check, and records the result. It returns without a result if ctx is
// cancelled before the check begins.
func (p *Prober) checkOnce(ctx context.Context, pr *probe) {
	places := []chan struct{}{p.running}
	if pr.failures > 0 {
		places = []chan struct{}{p.failing, p.running}
	}
	held := 0
	release := sync.OnceFunc(func() {
		for _, place := range places[:held] {
			<-place
		}
	})
	defer release()
	for _, place := range places {
		select {
		case <-ctx.Done():
			return
		case place <- struct{}{}:
			held++
		}
	}
	began := time.Now()
	if pr.inKernel() && p.Stuck() {
		p.finish(pr, began, pr.reason)
		return
	}
	// A check that hangs counts as hung, even if its device is gone.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	a := &attempt{}
	result := make(chan string, 1)
	go func() {
		result <- p.host.run(limited, pr.check, a)
	}()
	var reason string
	select {
	case reason = <-result:
	case <-limited.Done():
		p.report(pr, a.timedOut(), 1)
		release() // the next check sees that this one hangs
		reason = <-result
		p.report(pr, reason, -1)
	}
	p.finish(pr, began, reason)
}

// finish records the result of a check, and sets when it is due again: at its regular time, or earlier if it
// failed.
func (p *Prober) finish(pr *probe, began time.Time, reason string) {
	p.report(pr, reason, 0)
	interval := pr.check.Interval
	// Intervals are counted from origin, so that checks share the wake-ups of the CPU. The second check
	// follows the first after half an interval or more.
	passed := max(began.Add(interval/2).Sub(p.origin), time.Since(p.origin))
	pr.due = p.origin.Add((passed/interval + 1) * interval)
	if reason == "" {
		pr.failures = 0
		return
	}
	// The limit of the shift prevents an overflow.
	wait := firstRetry << min(pr.failures, maxDoublings)
	if wait < interval/2 {
		pr.due = time.Now().Add(wait)
	}
	pr.failures++
}

// report sets the reason of a check. hung is 1 if the check has reached its timeout, and -1 if such a check
// has returned at last.
func (p *Prober) report(pr *probe, reason string, hung int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wasStuck := p.hung >= maxHung
	p.hung += hung
	isStuck := p.hung >= maxHung
	if pr.reason != reason || isStuck != wasStuck {
		pr.reason = reason
		watch.Signal(p.changes)
	}
}
