package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

const (
	// The first change is looked at at once. The next look waits for three
	// times as long as the last one took, and at least for minWindow, so that
	// a storm of events never costs more than a quarter of a core, and a
	// machine that is read in a millisecond is not kept waiting for long.
	// maxWindow is for a scan that the kernel kept waiting.
	minWindow    = 5 * time.Millisecond
	maxWindow    = 100 * time.Millisecond
	windowFactor = 3
	// retry is when a scan that failed is tried again, again when one is that
	// lacks a device which did not answer.
	retry = time.Second
	again = 250 * time.Millisecond
)

// loop is the one goroutine that looks at the host and changes anything: all
// its state is its own.
type loop struct {
	*Agent
	group *errgroup.Group

	start     time.Time
	looked    time.Time        // the first step
	saved     ledger.Persisted // what is on disk
	state     ledger.State
	decisions ledger.Decisions
	snapshot  *device.Snapshot
	held      ledger.Held
	asked     time.Time // when the kubelet was asked last what is held
	asking    bool
	calm      bool // the first look is done
	writer    bool // the lock is held: links, specs and state are ours to write
	quiet     *quiet
	prober    *health.Prober
	shown     map[string]bool   // resources whose list was published
	places    map[string]string // where devices are that are held, but no longer configured
	problems  map[string]string // of the last scan, by subject
	said      map[string]string // what was logged last of each subject
}

func newLoop(a *Agent, group *errgroup.Group) *loop {
	return &loop{
		Agent: a, group: group, quiet: newQuiet(), said: map[string]string{},
		prober: health.New(a.options.Paths.local), shown: map[string]bool{},
	}
}

// run looks once at once, and again whenever something changed: the kernel or
// inotify said so, a device's time has come, a health check has another result,
// the kubelet answered what is held, or the other instance ended.
func (l *loop) run(ctx context.Context) error {
	l.start = time.Now()
	l.restore()
	locked, err := l.elect(ctx)
	if err != nil {
		return err
	}
	l.group.Go(func() error { return l.prober.Run(ctx) })
	answers := make(chan ledger.Held, 1)
	timer := time.NewTimer(retry)
	defer timer.Stop()
	var earliest time.Time // of the next look
	for {
		scan, probed := false, false
		select {
		case <-ctx.Done():
			return nil
		case <-l.watcher.Changes():
			if !sleep(ctx, time.Until(earliest)) {
				return nil
			}
			scan = true
		case <-l.prober.Changes():
			if !sleep(ctx, time.Until(earliest)) {
				return nil
			}
			probed = true
		case <-timer.C:
			scan = l.snapshot == nil || l.snapshot.Again
		case l.held = <-answers:
			l.asking = false
		case <-locked:
			locked, l.writer = nil, true
			l.log.Info("this instance writes links, specs and state now", "run_dir", l.options.Paths.RunDir)
		}
		began := time.Now()
		if scan {
			l.scan(ctx)
		}
		if l.snapshot == nil {
			timer.Reset(retry)
			continue
		}
		wake := l.step(ctx, answers)
		if scan || probed {
			earliest = time.Now().Add(min(max(minWindow, windowFactor*time.Since(began)), maxWindow))
		}
		if due := time.Now().Add(again); l.snapshot.Again && (wake.IsZero() || due.Before(wake)) {
			wake = due
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
	}
}

// restore reads what an earlier instance remembered.
func (l *loop) restore() {
	saved, err := ledger.Load(l.options.Paths.StateDir)
	if err != nil {
		l.log.Error("state can't be read: starting without it", "state_dir", l.options.Paths.StateDir, "err", err)
	}
	l.saved, l.state, l.decisions = saved, ledger.Restore(saved.Resources), saved.Decisions
}

// elect takes the lock, or returns a channel that is closed when the other
// instance has let go of it.
func (l *loop) elect(ctx context.Context) (<-chan struct{}, error) {
	mine, err := l.lock.try()
	if err != nil {
		return nil, err
	}
	if l.writer = mine; mine {
		return nil, nil
	}
	l.log.Info("another instance writes links, specs and state: waiting for it to end", "run_dir", l.options.Paths.RunDir)
	locked := make(chan struct{})
	go func() {
		if l.lock.wait(ctx) == nil {
			close(locked)
		}
	}()
	return locked, nil
}

// scan reads the host. What fails leaves the last snapshot in place: a scan
// that fails is not a host without devices.
func (l *loop) scan(ctx context.Context) {
	l.quiet.note(l.watcher.Take())
	began := time.Now()
	snap, err := l.scanner.Scan(ctx)
	l.metrics.CountScan(time.Since(began), err)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			l.sayOnce("scan", err.Error(), "host can't be read: keeping what was seen last")
		}
		return
	}
	l.sayOnce("scan", "", "")
	l.snapshot = snap
	l.warnProblems(snap.Problems)
	l.watcher.SetDirs(matchers.Dirs(l.config, snap))
}

// sayOnce warns about a subject when what there is to say of it changed.
func (l *loop) sayOnce(subject, reason, message string) {
	if l.said[subject] == reason {
		return
	}
	l.said[subject] = reason
	if reason != "" {
		l.log.Warn(message, "subject", subject, "reason", reason)
	}
}

// warnProblems warns about what a scan could not read, once for as long as it
// stays so.
func (l *loop) warnProblems(problems []device.Problem) {
	now := make(map[string]string, len(problems))
	for _, p := range problems {
		if now[p.Subject] = p.Reason; l.problems[p.Subject] != p.Reason {
			l.log.Warn("can't be read on the host", "subject", p.Subject, "reason", p.Reason)
		}
	}
	l.problems = now
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
