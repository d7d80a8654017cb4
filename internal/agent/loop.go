package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
	"github.com/generic-dp/generic-dp/matchers"
)

// retryAfter is the time after which a scan is repeated that has failed or has missed devices.
const retryAfter = time.Second

// loop is the only goroutine that changes anything: it scans the host and reconciles lists and
// outputs with it. No other goroutine uses its state.
type loop struct {
	// agent has what other goroutines use as well. The next fields are parts of it.
	agent   *Agent
	options Options
	log     *slog.Logger
	now     func() time.Time
	host    *hostWatch
	reader  *configuration.Reader
	outputs *outputs
	dra     *draDriver
	book    *holds.Book
	page    *page

	// config is the served configuration. It is never changed, only replaced.
	config *config.Config
	trial  configuration.Trial

	// The fields below are grouped by subject. The methods of the loop use all of them.
	// start is when this instance began to serve.
	start time.Time
	// last is the last scan that succeeded, and scanErr is why a later one failed: announced changes are
	// pending.
	last    hostScan
	scanErr error
	// prober runs the health checks in its own goroutines, and keeps their last results.
	prober *health.Prober
	memory memory
	// held is who holds what in this pass.
	held *holds.View
	// devices are the devices that were listed last, for outputs.
	devices []output.Device
	pace    pace
	// saves writes the state.
	saves *saver
	// labels are the writes of the labels of the node.
	labels slow.Calls[string, error]
	life   life
}

// pace is when the next pass runs.
type pace struct {
	// limiter delays a pass that events cause.
	limiter limiter
	// timer causes a pass without another trigger.
	timer *time.Timer
	// watchdog runs during a pass, and ends the program if the pass is stuck.
	watchdog *time.Timer
	// retry is for failed writes and unread hardware.
	retry retry
}

// life is what happens once in the life of an instance or a plugin.
type life struct {
	// phases run everything that Agent.Run waits for.
	phases
	// announce calls loop.announce once.
	announce sync.Once
	// watchSpecs starts the watch of the specs when they first decide about a device.
	watchSpecs sync.Once
	// settled is set when the channel Agent.allSettled is closed.
	settled bool
	// ended has the channels that are closed when the last plugin of a resource has ended.
	ended map[string]chan struct{}
	// done is closed when the loop has ended.
	done chan struct{}
}

// newLoop returns a loop that has not started. Everything that it starts later belongs to one of the phases.
func newLoop(a *Agent, running phases) *loop {
	l := &loop{
		agent:   a,
		options: a.options,
		log:     a.log,
		now:     a.now,
		host:    &a.host,
		reader:  a.reader,
		outputs: a.outputs,
		dra:     a.dra,
		book:    a.book,
		page:    &a.page,
		config:  a.found.reading.Config,
		start:   a.now(),
		prober:  health.New(a.options.Paths.local),
		held:    &holds.View{},
		pace: pace{
			timer: time.NewTimer(retryAfter),
			watchdog: time.AfterFunc(a.page.stuckAfter, func() {
				a.page.stuck <- struct{}{}
			}),
		},
		saves: newSaver(a.wake),
		life: life{
			phases: running,
			ended:  map[string]chan struct{}{},
			done:   make(chan struct{}),
		},
	}
	l.labels.Late = func(string) {
		a.wake.send()
	}
	l.trial.Serve(a.found.reading)
	return l
}

// trigger is what starts a pass of the loop.
type trigger struct {
	scan scope
	// limited is set if the limiter may delay the pass.
	limited bool
	// apply applies what has changed at the beginning of the pass. It may be nil.
	apply func()
}

// scope is what a pass scans first.
type scope int

const (
	nothing scope = iota
	// announced is what the kernel has announced.
	announced
	whole
)

// run runs a pass for each trigger until ctx is cancelled. The first one is the host watcher, when its
// watches are in place. It returns an error if this instance has lost its lock. It is called once, in its own
// goroutine of the group.
func (l *loop) run(ctx context.Context) error {
	defer close(l.life.done)
	defer l.pace.timer.Stop()
	defer l.pace.watchdog.Stop()
	l.life.passing.Go(l.saves.run)
	l.begin(ctx)
	for t, ok := l.next(ctx); ok; t, ok = l.next(ctx) {
		if l.agent.turn.isLost() {
			return errLost
		}
		began := time.Now()
		l.pace.watchdog.Reset(l.page.stuckAfter)
		l.pace.limiter.began = began
		wake := l.pass(ctx, t)
		// Passes without events and without a scan cost little, and do not count.
		if t.limited || t.scan != nothing {
			l.pace.limiter.record(time.Now())
		}
		// The time of the pass replaces an earlier one. A value that is already in the channel of
		// the timer is discarded (since Go 1.23).
		l.pace.timer.Stop()
		if !wake.IsZero() {
			l.pace.timer.Reset(wake.Sub(l.now()))
		}
		l.pace.watchdog.Stop()
	}
	return nil
}

// begin reads what earlier instances have left.
func (l *loop) begin(ctx context.Context) {
	l.restore()
	l.agent.loadHolds(ctx, !l.agent.found.hasPredecessor)
	close(l.agent.holdsLoaded)
	select {
	case <-l.agent.holdsChanged: // the first pass sees what was loaded
	default:
	}
}

// next waits for a trigger, and for the limiter if the trigger is subject to it. It returns false
// at the end of ctx.
func (l *loop) next(ctx context.Context) (trigger, bool) {
	t, ok := l.wait(ctx)
	if !ok || !t.limited {
		return t, ok
	}
	delay := l.pace.limiter.delay(time.Now())
	return t, sleep(ctx, delay)
}

// wait waits for a trigger. It returns false at the end of ctx.
func (l *loop) wait(ctx context.Context) (trigger, bool) {
	var holdsDue <-chan time.Time // nil while no hold has changed
	for {
		select {
		case <-ctx.Done():
			return trigger{}, false
		case <-l.host.watcher.Changes():
			return trigger{scan: announced, limited: true}, true
		// Checks change health only, so the host need not be scanned.
		case <-l.prober.Changes():
			return trigger{limited: true}, true
		case <-l.host.scanner.Answered():
			return trigger{scan: whole}, true
		// Each call that fails asks for a scan.
		case <-l.agent.rescan:
			return trigger{scan: whole, limited: true}, true
		case <-l.pace.timer.C:
			if l.last.snapshot == nil || l.scanErr != nil {
				return trigger{scan: whole}, true
			}
			return trigger{}, true
		case r := <-l.reader.Readings():
			return trigger{apply: func() {
				l.reload(r)
			}}, true
		case <-l.host.specs.Changes(): // reconcile reads them
			return trigger{}, true
		// Something changed that the pass reads anyway, such as the result of a save.
		case <-l.agent.wake:
			return trigger{}, true
		// Changes of holds share a pass. If another trigger comes first, its pass sees them as well.
		case <-l.agent.holdsChanged:
			if holdsDue == nil {
				holdsDue = time.After(l.pace.limiter.holdsDelay(time.Now()))
			}
		case <-holdsDue:
			return trigger{limited: true}, true
		case <-l.agent.predecessorEnded:
			return trigger{apply: l.followPredecessor}, true
		}
	}
}

// pass handles a trigger and returns when the next pass is due without a trigger, the zero time if
// there is no need.
func (l *loop) pass(ctx context.Context, t trigger) (wake time.Time) {
	defer l.page.problems.endPass()
	l.page.problems.warn("run-dir", l.agent.found.lockErr, "the run directory can't be used: only devices that need no link can be allocated",
		"hint", hints["run-dir"],
	)
	if t.apply != nil {
		t.apply()
	}
	// A new configuration may be the first one that uses network interfaces.
	if t.scan == nothing && l.lacksNets() {
		t.scan = whole
	}
	// The first retry is due at once. The pass then records the failure, which delays the next one.
	isRetryDue := !l.now().Before(l.pace.retry.at)
	if t.scan == nothing && l.lacksDevices() && isRetryDue {
		t.scan = whole
	}
	if t.scan != nothing {
		l.scan(ctx, t.scan)
	}
	// A scan that the end of the program cut off is not a problem of the host.
	if !errors.Is(l.scanErr, context.Canceled) {
		l.page.problems.warn("scan", l.scanErr, "host can't be scanned: devices stay as they are until it can")
	}
	// A list without these devices would make them Unhealthy. No list is better than a wrong one.
	if l.last.snapshot == nil || l.lacksNets() {
		return l.now().Add(retryAfter)
	}
	wake = l.reconcile(ctx)
	if l.scanErr != nil {
		wake = order.Earliest(wake, l.now().Add(retryAfter))
	}
	return wake
}

// lacksNets reports whether the configuration needs network interfaces that the last
// scan left out.
func (l *loop) lacksNets() bool { return matchers.UsesNets(l.config) && !l.last.hasNets }

// lacksDevices reports whether the last scan left out hardware that could not be read.
func (l *loop) lacksDevices() bool {
	return l.last.snapshot != nil && len(l.last.snapshot.UnreadHardware) > 0
}

const (
	// A plugged device causes a handful of events within milliseconds, which are handled at
	// once while the debt is below burst. A storm of events gets a share of a core: a pass
	// of 1 ms is paid off in limitFactor ms. The next pass is delayed until then, and
	// handles all events together. maxDelay bounds the delay after a pass that the kernel
	// blocked.
	burst       = 250 * time.Millisecond
	limitFactor = 4
	maxDelay    = 100 * time.Millisecond

	// A burst of pods changes holds all the time, and needs the cores itself. After a pass of 1 ms, a
	// pass for changed holds begins after holdsFactor ms. Allocate and NodePrepareResources check the
	// holds themselves, so only the lists are late.
	holdsFactor   = 64
	maxHoldsDelay = 3 * time.Second

	// sendDelay is the pause after a changed list, before the state is saved and the next
	// pass begins, because the kernel continues to announce a device whose node was already
	// found. On a machine with one CPU, or with two at the start, saving and scanning would
	// delay the list, here and in the kubelet.
	sendDelay = 2 * time.Millisecond
	// startDelay is the pause after the first pass, in which the kubelet connects to every
	// resource.
	startDelay = 6 * time.Millisecond
)

// limiter delays passes, so that single events are handled at once and a storm of events costs at
// most a quarter of a core.
type limiter struct {
	debt       time.Duration // run time that is not paid off
	began      time.Time     // start of the pass, later by its pause
	ended      time.Time     // end of the last pass
	last       time.Duration // run time of the last pass
	lastUpdate time.Time     // when a list changed last
}

// pause lets a changed list go out.
func (l *limiter) pause(ctx context.Context) {
	delay := sendDelay
	if l.ended.IsZero() {
		delay = startDelay
	}
	left := time.Until(l.lastUpdate.Add(delay))
	if left > 0 {
		sleep(ctx, left)
		l.began = l.began.Add(left)
	}
}

// record records the run time of a pass that ends now. In the first pass, ended is the zero time
// and the debt is 0.
func (l *limiter) record(now time.Time) {
	paid := l.began.Sub(l.ended) / (limitFactor - 1) // in the pause before the pass
	runTime := now.Sub(l.began)
	l.debt = max(0, l.debt-paid) + runTime
	l.last = runTime
	l.ended = now
}

// delay returns by how much to delay the next pass. It is 0 while the debt is below burst.
func (l *limiter) delay(now time.Time) time.Duration {
	paid := l.ended.Add((l.debt - burst) * (limitFactor - 1))
	return min(max(0, paid.Sub(now)), maxDelay)
}

// holdsDelay returns by how much to delay a pass for changed holds. It is 0 if the last pass is long ago, or if
// there was none.
func (l *limiter) holdsDelay(now time.Time) time.Duration {
	due := l.ended.Add(min(l.last*holdsFactor, maxHoldsDelay))
	return max(0, due.Sub(now))
}

// signal is a channel of capacity 1: a value says that there is something new.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send sends a value, unless one is pending. It never blocks. Any number of goroutines may call it.
func (s signal) send() { watch.Signal(s) }

// sleep waits for d and reports whether ctx is still active. A d that is not positive is no wait.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
