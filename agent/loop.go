package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
	"github.com/generic-dp/generic-dp/metrics"
)

// retryAfter is when a failed scan is repeated, or one in which an attribute did
// not answer.
const retryAfter = time.Second

// loop is the one goroutine that scans the host and changes anything: all its
// state is its own.
type loop struct {
	*Agent
	group *errgroup.Group
	start time.Time

	host    scanned
	scanErr error // the last scan failed: what events announced is not seen yet
	again   bool  // an attribute did not answer in time
	watched watched

	memory  memory
	held    holdings
	prober  *health.Prober
	limiter limiter

	writer bool                     // the lock is held: links, specs and state are ours to write
	locked <-chan struct{}          // closed when it is, after the other instance has ended
	calm   bool                     // settled is closed
	ended  map[string]chan struct{} // by resource: closed when its last plugin has ended

	timer      *time.Timer // when to reconcile without a trigger
	watchSpecs func()      // starts the watch of CDI specs, once
}

func newLoop(a *Agent, group *errgroup.Group) *loop {
	l := &loop{
		Agent: a, group: group, start: a.now(),
		held:   holdings{answers: make(chan ledger.Held, 1)},
		prober: health.New(a.options.Paths.local),
		ended:  map[string]chan struct{}{}, timer: time.NewTimer(retryAfter),
	}
	l.held.reset(l.start) // an earlier instance may have served another configuration
	if a.reader.last.err == nil {
		l.memory.unkept = a.reader.last.files
	}
	return l
}

// trigger is what starts a pass of the loop.
type trigger struct {
	scan    metrics.ScanReason // why to scan the host before; empty: it is not
	limited bool               // it may come in storms, see limiter
	reading *reading           // of the configuration
	held    *ledger.Held       // an answer of the kubelet
	done    chan<- struct{}    // closed when the outcome is published
	locked  bool               // the other instance has ended
}

// byEvents stands for the reason that the batch of events gives.
const byEvents metrics.ScanReason = "events"

// run runs a pass at once, and another whenever something changed, until ctx is
// cancelled.
func (l *loop) run(ctx context.Context) error {
	defer l.timer.Stop()
	l.watchSpecs = sync.OnceFunc(func() {
		l.group.Go(func() error { return l.specFiles.Run(ctx) })
	})
	l.memory.restore(l.options.Paths.StateDir, l.log)
	if l.memory.boot != "" && l.memory.boot == l.memory.saved.Boot {
		l.scanner.RestoreUSB(l.memory.saved.USB)
	}
	l.injector.injected = l.memory.saved.Injected
	if err := l.elect(); err != nil {
		return err
	}
	l.group.Go(func() error { return l.prober.Run(ctx) })
	for {
		l.busy.Store(nil)
		t, ok := l.next(ctx)
		if !ok || t.limited && !sleep(ctx, l.limiter.delay(time.Now())) {
			return nil
		}
		began := time.Now()
		l.busy.Store(&began)
		wake := l.pass(ctx, t)
		if t.limited || t.scan != "" {
			l.limiter.record(time.Now(), time.Since(began))
		}
		l.timer.Stop()
		if !wake.IsZero() {
			l.timer.Reset(wake.Sub(l.now()))
		}
	}
}

// next waits for a trigger; none is there when ctx has ended.
func (l *loop) next(ctx context.Context) (trigger, bool) {
	select {
	case <-ctx.Done():
		return trigger{}, false
	case <-l.watcher.Changes():
		return trigger{scan: byEvents, limited: true}, true
	case <-l.prober.Changes():
		return trigger{limited: true}, true
	case <-l.scanner.Answered():
		return trigger{scan: metrics.ScanRetry}, true
	case done := <-l.rescans:
		return trigger{scan: metrics.ScanAllocate, done: done}, true
	case <-l.timer.C:
		if l.host.snapshot == nil || l.again || l.scanErr != nil {
			return trigger{scan: metrics.ScanRetry}, true
		}
		return trigger{}, true
	case held := <-l.held.answers:
		return trigger{held: &held}, true
	case r := <-l.reader.readings:
		return trigger{reading: &r}, true
	case <-l.specFiles.Changes(): // they are read whenever they are needed
		return trigger{}, true
	case <-l.locked:
		return trigger{locked: true}, true
	}
}

// pass does what a trigger asks for and returns when to run again without one;
// zero is never.
func (l *loop) pass(ctx context.Context, t trigger) (wake time.Time) {
	defer l.problems.endPass()
	switch {
	case t.held != nil:
		l.held.receive(*t.held)
	case t.reading != nil:
		l.reload(*t.reading)
		if l.lacksNets() {
			t.scan = metrics.ScanConfig
		}
	case t.locked:
		l.inherit()
	}
	if t.scan != "" {
		l.scan(ctx, t.scan)
	}
	if l.scanErr != nil && !errors.Is(l.scanErr, context.Canceled) {
		l.problems.warn("scan", l.scanErr.Error(), "host can't be scanned: keeping the last snapshot")
	}
	if l.host.snapshot == nil || l.lacksNets() {
		return l.now().Add(retryAfter)
	}
	wake = l.reconcile(ctx)
	if t.done != nil && l.scanErr == nil {
		close(t.done)
	}
	if l.again || l.scanErr != nil {
		wake = earlier(wake, l.now().Add(retryAfter))
	}
	return wake
}

// lacksNets reports whether the configuration needs network interfaces that the last
// scan left out.
func (l *loop) lacksNets() bool { return matchers.UsesNets(l.config) && !l.host.nets }

// elect takes the lock, or waits in the background until the other instance has
// released it.
func (l *loop) elect() (err error) {
	if l.writer, err = l.lock.try(); err != nil || l.writer {
		return err
	}
	l.log.Info("another instance writes links, specs and state: waiting for it to end", "run_dir", l.options.Paths.RunDir)
	l.locked = l.lock.wait()
	return nil
}

// inherit makes this instance the one that writes, with what the other one has
// written since this one started.
func (l *loop) inherit() {
	l.locked, l.writer = nil, true
	if saved, err := ledger.Load(l.memory.dir); err == nil {
		l.memory.saved, l.injector.injected = saved, saved.Injected
	}
	l.log.Info("this instance writes links, specs and state now", "run_dir", l.options.Paths.RunDir)
}

const (
	// A device that is plugged in causes a handful of events within some
	// milliseconds. Each is handled at once while the passes together took less
	// than burst. A storm of events gets a share of a core: a pass that took 1 ms
	// is paid off in limitFactor ms, and until then the next one is delayed, so
	// that it handles all that happened meanwhile. maxDelay is for a pass that the
	// kernel kept waiting.
	burst       = 250 * time.Millisecond
	limitFactor = 4
	maxDelay    = 100 * time.Millisecond

	// sendDelay is the delay after an update for the kubelet. The kernel goes on
	// with events of a device whose node was found already, and on a machine with
	// one CPU a scan for them would delay the update, in this process and in the
	// kubelet's.
	sendDelay = 2 * time.Millisecond
)

// limiter delays passes, so that a single event is handled at once and a storm of
// them never costs more than a quarter of a core.
type limiter struct {
	debt       time.Duration // what passes took that is not paid off
	ended      time.Time     // the last pass
	lastUpdate time.Time     // when the kubelet was sent something
}

// record takes down that a pass, which ends now, took this long.
func (l *limiter) record(now time.Time, took time.Duration) {
	l.debt = max(0, l.debt-now.Add(-took).Sub(l.ended)/(limitFactor-1)) + took
	l.ended = now
}

// delay is how long to delay the next pass.
func (l *limiter) delay(now time.Time) time.Duration {
	paid := l.ended.Add((l.debt - burst) * (limitFactor - 1))
	return min(max(0, paid.Sub(now), l.lastUpdate.Add(sendDelay).Sub(now)), maxDelay)
}

// earlier is the first of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sleep waits for d, which may be negative, or until ctx is cancelled.
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
