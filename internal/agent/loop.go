package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/matchers"
)

// retryAfter is when to repeat a scan that failed or had a read time out.
const retryAfter = time.Second

// loop is the one goroutine that scans the host and changes anything: all its
// state is its own.
type loop struct {
	*Agent
	group  *errgroup.Group
	start  time.Time
	served bool // an instance served in this boot before
	writer bool // the lock is held: links, specs and state are ours to write
	config *config.Config

	host    hostScan
	scanErr error // of the last scan: announced changes are pending
	watched watched

	memory memory
	held   holdings
	prober *health.Prober
	// checksStuck is the last state of prober.Stuck that was logged.
	checksStuck bool
	limiter     limiter

	locked <-chan struct{}          // closed when the other instance has ended
	calm   bool                     // settled is closed
	ended  map[string]chan struct{} // by resource: closed when its last plugin has ended
	done   chan struct{}            // closed when the loop has ended

	dropped    time.Time   // when absent devices left the lists early; zero is never
	timer      *time.Timer // when to reconcile without a trigger
	retry      retry
	saver      *saver
	saved      saved  // of the last save with another result than the one before
	watchSpecs func() // starts the watch of CDI specs, once
}

func newLoop(a *Agent, group *errgroup.Group) *loop {
	l := &loop{
		Agent: a, group: group, start: a.now(), served: a.found.served, writer: a.found.writer, config: a.found.config,
		held:   holdings{answers: make(chan ledger.Held, 1)},
		prober: health.New(a.options.Paths.local),
		ended:  map[string]chan struct{}{},
		done:   make(chan struct{}),
		saver:  newSaver(),
		timer:  time.NewTimer(retryAfter),
	}
	l.held.reset(l.start) // an earlier instance may have served another configuration
	a.reader.Trial.Serve(a.reader.Last(), l.start)
	return l
}

// trigger is what starts a pass of the loop.
type trigger struct {
	scan    status.ScanReason // why to scan the host first; empty is no scan
	limited bool              // subject to the limiter
	apply   func()            // what it brings; nil is nothing
	done    chan<- struct{}   // to close when the outcome is published
}

// byEvents stands for a reason that the batch of events determines.
const byEvents status.ScanReason = "events"

// run runs a pass for the first scan and for each trigger until ctx is cancelled.
func (l *loop) run(ctx context.Context) error {
	defer close(l.done)
	defer l.timer.Stop()
	l.watchSpecs = sync.OnceFunc(func() {
		l.group.Go(func() error { return l.specFiles.Run(ctx) })
	})
	if !l.writer {
		l.log.Info("another instance writes links, specs and state: waiting for it to end", "run_dir", l.options.Paths.RunDir)
		l.locked = awaitLock(l.lock)
	}
	l.group.Go(func() error { return l.prober.Run(ctx) })
	l.group.Go(func() error { return l.saver.run(ctx) })
	for t, ok := l.begin(ctx); ok; t, ok = l.next(ctx) {
		began := time.Now()
		l.busy.Store(&began)
		l.limiter.began = began
		wake := l.pass(ctx, t)
		if t.limited || t.scan != "" {
			l.limiter.record(time.Now())
		}
		l.timer.Stop()
		if !wake.IsZero() {
			l.timer.Reset(wake.Sub(l.now()))
		}
		l.busy.Store(nil)
	}
	return nil
}

// begin waits for the first scan.
func (l *loop) begin(ctx context.Context) (trigger, bool) {
	began := time.Now()
	l.busy.Store(&began) // a probe finds a scan that hangs
	select {
	case <-ctx.Done():
		return trigger{}, false
	case first := <-l.first:
		l.restore(first)
		return trigger{apply: func() { l.adopt(first.scanOutcome, byEvents) }, limited: true}, true
	}
}

// next waits for a trigger and for the limiter; false is the end of ctx.
func (l *loop) next(ctx context.Context) (trigger, bool) {
	t, ok := l.wait(ctx)
	return t, ok && (!t.limited || sleep(ctx, l.limiter.delay(time.Now())))
}

// wait waits for a trigger, or the end of ctx.
func (l *loop) wait(ctx context.Context) (trigger, bool) {
	select {
	case <-ctx.Done():
		return trigger{}, false
	case <-l.watcher.Changes():
		return trigger{scan: byEvents, limited: true}, true
	case <-l.prober.Changes():
		return trigger{limited: true}, true
	case <-l.hostPaths.answered:
		return trigger{}, true
	case <-l.scanner.Answered():
		return trigger{scan: status.ScanRetry}, true
	case done := <-l.rescans:
		return trigger{scan: status.ScanAllocate, done: done}, true
	case <-l.timer.C:
		if l.host.snapshot == nil || l.scanErr != nil {
			return trigger{scan: status.ScanRetry}, true
		}
		return trigger{}, true
	case held := <-l.held.answers:
		return trigger{apply: func() { l.held.receive(held) }}, true
	case r := <-l.reader.Readings():
		return trigger{apply: func() { l.reload(r) }}, true
	case <-l.specFiles.Changes(): // reconcile reads them
		return trigger{}, true
	case <-l.wake:
		return trigger{}, true
	case result := <-l.saver.results:
		return trigger{apply: func() { l.saved = result }}, true
	case <-l.locked:
		return trigger{apply: l.inherit}, true
	}
}

// pass handles a trigger and returns when to run again without one; zero is never.
func (l *loop) pass(ctx context.Context, t trigger) (wake time.Time) {
	defer l.problems.endPass()
	if t.apply != nil {
		t.apply()
	}
	if t.scan == "" && l.lacksNets() {
		t.scan = status.ScanConfig
	}
	if t.scan == "" && l.lacksDevices() && !l.now().Before(l.retry.at) {
		t.scan = status.ScanRetry
	}
	if t.scan != "" {
		l.adopt(l.scanHost(ctx, matchers.UsesNets(l.config)), t.scan)
	}
	if !errors.Is(l.scanErr, context.Canceled) {
		l.problems.warn("scan", l.scanErr, "host can't be scanned: devices stay as they are until it can")
	}
	if l.host.snapshot == nil || l.lacksNets() {
		return l.now().Add(retryAfter)
	}
	out, wake, written := l.reconcile(ctx)
	if t.done != nil && l.scanErr == nil {
		close(t.done)
	}
	l.limiter.pause(ctx)
	wake = earlier(wake, l.saveAndAsk(ctx, out, written))
	if l.scanErr != nil {
		wake = earlier(wake, l.now().Add(retryAfter))
	}
	return wake
}

// lacksNets reports whether the configuration needs network interfaces that the last
// scan left out.
func (l *loop) lacksNets() bool { return matchers.UsesNets(l.config) && !l.host.nets }

// lacksDevices reports whether the last scan left out hardware that could not be read.
func (l *loop) lacksDevices() bool {
	return l.host.snapshot != nil && len(l.host.snapshot.Unread) > 0
}

// inherit makes this instance the writer, also of links and CDI entries that the other
// one has made since this one started.
func (l *loop) inherit() {
	l.locked, l.writer = nil, true
	if saved, err := ledger.Load(l.options.Paths.StateDir); err == nil {
		l.outputs.injected = saved.Injected
		l.outputs.health.Restore(saved.Health, l.memory.boot != saved.Boot, true)
		if saved.Boot == l.memory.boot { // no container survives a reboot
			l.holders.restore(saved.Holds)
		}
	}
	l.log.Info("this instance writes links, specs and state now", "run_dir", l.options.Paths.RunDir)
}

const (
	// A plugged device causes a handful of events within milliseconds, which are
	// handled at once while the debt is below burst. A storm of events gets a share
	// of a core: a pass of 1 ms is paid off in limitFactor ms, and the next one is
	// delayed until then and handles all events together. maxDelay bounds that after
	// a pass that the kernel blocked.
	burst       = 250 * time.Millisecond
	limitFactor = 4
	maxDelay    = 100 * time.Millisecond

	// sendDelay is the pause after a changed list, before state is saved and the next
	// pass begins: the kernel goes on to announce a device whose node was found already.
	// On a machine with one CPU, or two at the start, either would delay the list, here
	// and in the kubelet.
	sendDelay = 2 * time.Millisecond
	// startDelay is the same after the first pass: the kubelet connects to every resource.
	startDelay = 6 * time.Millisecond
)

// limiter delays passes, so that single events are handled at once and storms of them
// cost a quarter of a core at most.
type limiter struct {
	debt       time.Duration // run time that is not paid off
	began      time.Time     // start of the pass, later by its pause
	ended      time.Time     // end of the last pass
	lastUpdate time.Time     // when a list changed last
}

// pause lets a changed list go out.
func (l *limiter) pause(ctx context.Context) {
	delay := sendDelay
	if l.ended.IsZero() {
		delay = startDelay
	}
	if left := time.Until(l.lastUpdate.Add(delay)); left > 0 {
		sleep(ctx, left)
		l.began = l.began.Add(left)
	}
}

// record records the run time of a pass that ends now.
func (l *limiter) record(now time.Time) {
	l.debt = max(0, l.debt-l.began.Sub(l.ended)/(limitFactor-1)) + now.Sub(l.began)
	l.ended = now
}

// delay returns by how much to delay the next pass.
func (l *limiter) delay(now time.Time) time.Duration {
	paid := l.ended.Add((l.debt - burst) * (limitFactor - 1))
	return min(max(0, paid.Sub(now)), maxDelay)
}

// signal is a channel of capacity 1: a value says that there is something new.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // one is pending
	}
}

// earlier is the first of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sleep sleeps for d and reports whether ctx is still active.
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
