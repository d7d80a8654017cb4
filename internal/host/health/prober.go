package health

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
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
	wake    chan struct{} // capacity 1: there are new checks
	origin  time.Time     // intervals are counted from here
	// running and failing are semaphores: who sends gets a place, in the order of arrival. A check that
	// failed the last time needs a place in both.
	running chan struct{}
	failing chan struct{}

	// mu guards all fields below. It is never held while a check runs.
	mu sync.Mutex
	// probes are the current checks, by ID.
	probes map[string]*probe
	// following has the IDs that have a goroutine, with the reason of the check that hangs, if one does.
	following map[string]string
	// hung is the number of checks beyond their timeout.
	hung int
}

// probe is the check of one device and its result. Prober.mu guards reason. The other fields belong to the
// goroutine of the device.
type probe struct {
	id    string
	check device.Check
	// replaced is closed when the device is removed or has another check.
	replaced chan struct{}
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
		host:      newHost(local),
		timeout:   timeout,
		changes:   make(chan struct{}, 1),
		wake:      make(chan struct{}, 1),
		origin:    time.Now(),
		running:   make(chan struct{}, maxRunning),
		failing:   make(chan struct{}, maxFailing),
		probes:    map[string]*probe{},
		following: map[string]string{},
	}
}

// Set replaces the checks, by the ID of the device. The agent calls it after each match. A new
// device, or a device with another check, is checked as soon as possible and is pending until
// then.
func (p *Prober) Set(checks map[string]device.Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, pr := range p.probes {
		if _, stays := checks[id]; !stays {
			close(pr.replaced)
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
			id:       id,
			check:    check,
			replaced: make(chan struct{}),
			due:      now,
			// The check waits for a check that hangs, and fails as well.
			reason: cmp.Or(p.following[id], ReasonPending),
		}
		if old != nil {
			close(old.replaced)
			// A new interval alone does not make a healthy device pending.
			before := old.check
			before.Interval = check.Interval
			if reflect.DeepEqual(before, check) {
				fresh.reason = old.reason
			}
		}
		p.probes[id] = fresh
		watch.Signal(p.wake)
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

// Run checks until ctx is cancelled, and returns nil then. It does not wait for checks that hang.
// It must be called once.
func (p *Prober) Run(ctx context.Context) error {
	for {
		p.mu.Lock()
		for _, id := range slices.Sorted(maps.Keys(p.probes)) {
			if _, isFollowed := p.following[id]; !isFollowed {
				p.following[id] = ""
				go p.follow(ctx, id)
			}
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
}

// follow checks a device until it is removed. If it is replaced during a check, the check of the new device
// begins when the old one has returned.
func (p *Prober) follow(ctx context.Context, id string) {
	for ctx.Err() == nil {
		p.mu.Lock()
		pr := p.probes[id]
		if pr == nil {
			delete(p.following, id)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-pr.replaced:
		case <-time.After(time.Until(pr.due)):
			p.checkOnce(ctx, pr)
		}
	}
}

// checkOnce waits for a place, runs a check, and records the result. It returns without a result if the
// device is replaced before the check begins.
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
		case <-pr.replaced:
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
	limited, cancel := context.WithTimeout(ctx, p.timeout)
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
		if ctx.Err() != nil {
			return
		}
		p.setHung(pr.id, a.timedOut(), 1)
		release() // the next check sees that this one hangs
		reason = <-result
		p.setHung(pr.id, "", -1)
	}
	// At the end of the program, a cancelled connection says nothing about the device.
	if ctx.Err() == nil {
		p.finish(pr, began, reason)
	}
}

// setHung counts a check that has reached its timeout, with a reason, or one that has returned at last. If
// its device was replaced, the new one fails as well.
func (p *Prober) setHung(id, reason string, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.following[id] = reason
	if pr := p.probes[id]; pr != nil && reason != "" {
		p.report(pr, reason)
	}
	wasStuck := p.hung >= maxHung
	p.hung += change
	if isStuck := p.hung >= maxHung; isStuck != wasStuck {
		watch.Signal(p.changes)
	}
}

// finish records the result of a check, and sets when it is due again. A failed check is repeated earlier.
// The result of a device that was replaced does not count.
func (p *Prober) finish(pr *probe, began time.Time, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probes[pr.id] != pr {
		return
	}
	p.report(pr, reason)
	pr.due = p.regular(pr, began)
	if reason == "" {
		pr.failures = 0
		return
	}
	// The limit of the shift prevents an overflow.
	wait := firstRetry << min(pr.failures, maxDoublings)
	if wait < pr.check.Interval/2 {
		pr.due = time.Now().Add(wait)
	}
	pr.failures++
}

// report sets the reason of a check. The caller holds mu.
func (p *Prober) report(pr *probe, reason string) {
	if pr.reason != reason {
		pr.reason = reason
		watch.Signal(p.changes)
	}
}

// regular returns when a check that has just ended is due again: at its phase of an interval counted from
// origin, so that few checks share the wake-ups of the CPU and many are spread. The caller holds mu.
func (p *Prober) regular(pr *probe, began time.Time) time.Time {
	interval := pr.check.Interval
	first := p.origin.Add(p.phase(pr))
	// The second check follows the first, at any time, after half an interval or more.
	sinceFirst := max(began.Add(interval/2).Sub(first), time.Since(first))
	// It is later than minus one interval: division would round a negative number up.
	intervals := (sinceFirst + interval) / interval
	return first.Add(intervals * interval)
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
