package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
	"github.com/generic-dp/generic-dp/metrics"
)

// retry is when a scan that failed is tried again, or an attribute that did not
// answer.
const retry = time.Second

// idle is how long after the last step garbage is collected, so that the collector
// seldom has to while something happens, from which it would keep a small machine
// for 20 ms. After more than storm steps the memory goes back to the host, too, which
// a single device would have to fetch again.
const (
	idle  = 250 * time.Millisecond
	storm = 50
)

// netsResync is how often everything is looked at where network interfaces matter
// and no event tells of them.
const netsResync = time.Minute

// loop is the one goroutine that looks at the host and changes anything: all
// its state is its own.
type loop struct {
	*Agent
	group *errgroup.Group

	start        time.Time
	boot         string           // identity of this boot of the kernel
	switched     time.Time        // when a new configuration was taken over
	saved        ledger.Persisted // what is on disk
	state        ledger.State
	decisions    ledger.Decisions
	snapshot     *device.Snapshot
	attrs        *inventory.Attributes // read with the snapshot
	usesNets     bool                  // the configuration looks at network interfaces
	netless      bool                  // the snapshot has none, since nobody looked
	watched      watched
	again        bool // what did not answer in time is worth another look
	failed       bool // the last scan did, and what events told of is not seen yet
	paced        pace
	held         ledger.Held
	asked        time.Time // when the kubelet was asked last what is held
	asking       bool
	calm         bool // the first look is done
	writer       bool // the lock is held: links, specs and state are ours to write
	quiet        *quiet
	young        young // of the first look
	prober       *health.Prober
	unfit        int                     // of what can't be injected, what no second try helps
	injected     ledger.Injected         // what links and CDI entries lead to
	retained     ledger.Injected         // that of what the configuration does not ask for
	retains      bool                    // there is such a link or CDI entry
	problems     map[device.Problem]bool // of the last step, that were warned of
	notes        map[string]bool         // of the last step, that were warned of
	said         map[string]string       // what was logged last of each subject that something is wrong with
	passing      map[string]bool         // subjects of this step, which may have none in the next
	passed       map[string]bool         // those of the last step
	watchesSpecs bool
	ending       map[string]chan struct{} // by resource: closed when its plugin has ended
}

func newLoop(a *Agent, group *errgroup.Group) *loop {
	return &loop{
		Agent: a, group: group, boot: bootID(), quiet: newQuiet(), said: map[string]string{}, passing: map[string]bool{},
		usesNets: matchers.UsesNets(a.config), prober: health.New(a.options.Paths.local), ending: map[string]chan struct{}{},
	}
}

// run looks once at once, and again whenever something changed: the kernel or
// inotify said so, a device's time has come, a health check has another result,
// the kubelet answered what is held, an answer to it needs a look, or the other
// instance ended.
func (l *loop) run(ctx context.Context) error {
	l.start = l.now()
	l.switched = l.start // an earlier instance may have served another configuration
	l.restore()
	locked, err := l.elect(ctx)
	if err != nil {
		return err
	}
	l.group.Go(func() error { return l.prober.Run(ctx) })
	answers := make(chan ledger.Held, 1)
	timer := time.NewTimer(retry)
	defer timer.Stop()
	tidy := time.NewTimer(idle)
	defer tidy.Stop()
	steps := 0 // since garbage was collected
	for {
		scan, probed := false, false
		why := metrics.ScanRetry
		l.busy.Store(nil)
		var looked chan struct{}
		select {
		case <-ctx.Done():
			return nil
		case <-l.watcher.Changes():
			if !sleep(ctx, l.paced.pause(time.Now())) {
				return nil
			}
			scan, why = true, "" // the batch knows
		case <-l.prober.Changes():
			if !sleep(ctx, l.paced.pause(time.Now())) {
				return nil
			}
			probed = true
		case <-l.scanner.Answered():
			scan = true
		case looked = <-l.looks:
			scan, why = true, metrics.ScanAllocate
		case <-timer.C:
			scan = l.snapshot == nil || l.again || l.failed
		case <-tidy.C:
			if steps > storm {
				debug.FreeOSMemory()
			} else {
				runtime.GC()
			}
			steps = 0
			continue
		case held := <-answers:
			l.asking = false
			// An answer from before the switch is not what was asked for.
			if held.At.IsZero() || !held.At.Before(l.switched) {
				l.held = held
			}
		case r := <-l.reader.readings:
			l.reload(ctx, r)
			if scan = l.usesNets && l.netless; scan {
				why = metrics.ScanConfig
			}
		case <-l.specFiles.changes: // they are read whenever they are asked for
		case <-locked:
			locked, l.writer = nil, true
			l.inherit()
			l.log.Info("this instance writes links, specs and state now", "run_dir", l.options.Paths.RunDir)
		}
		began := time.Now()
		l.busy.Store(&began)
		if scan {
			l.scan(ctx, why)
		}
		if l.snapshot == nil || l.usesNets && l.netless {
			timer.Reset(retry)
			continue
		}
		wake := l.step(ctx, answers)
		steps++
		tidy.Reset(idle)
		if looked != nil && !l.failed {
			close(looked)
		}
		if scan || probed {
			l.paced.spent(time.Now(), time.Since(began))
		}
		if l.again || l.failed {
			wake = earlier(wake, l.now().Add(retry))
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(wake.Sub(l.now()))
		}
	}
}

// restore reads what an earlier instance remembered.
func (l *loop) restore() {
	saved, err := ledger.Load(l.options.Paths.StateDir)
	if err != nil {
		l.log.Error("state can't be read: starting without it", "state_dir", l.options.Paths.StateDir, "err", err)
	}
	l.saved, l.state, l.decisions, l.injected = saved, saved.State(l.boot), saved.Decisions, saved.Injected
}

// inherit reads what the instance that ended has written since restore: what its
// links and CDI entries lead to.
func (l *loop) inherit() {
	if saved, err := ledger.Load(l.options.Paths.StateDir); err == nil {
		l.saved, l.injected = saved, saved.Injected
	}
}

// bootID tells one boot of the kernel from another; it is empty where that is
// not to be known (random(4)).
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
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

// scan reads the host; why is empty where the events say so. What fails leaves the
// last snapshot in place, since a scan that fails is not a host without devices,
// and is tried again.
func (l *loop) scan(ctx context.Context, why metrics.ScanReason) {
	batch := l.watcher.Take()
	l.quiet.note(batch)
	began := time.Now()
	l.scanner.LeaveOutNets(!l.usesNets)
	snap, err := l.scanner.Update(ctx, batch)
	l.metrics.CountScan(scanReason(batch, why), len(batch.Paths), time.Since(began), err)
	if l.failed = err != nil; l.failed {
		if !errors.Is(err, context.Canceled) {
			l.sayOnce("scan", err.Error(), "host can't be read: keeping what was seen last")
		}
		return
	}
	l.sayOnce("scan", "", "")
	if l.snapshot == nil {
		l.young = youngNodes(snap.Nodes, l.options.Paths.local, l.now())
	}
	l.snapshot, l.attrs, l.netless = snap, l.scanner.Attributes(), !l.usesNets
	l.watch(ctx)
}

// scanReason is the reason of a scan; empty is what the events say.
func scanReason(b inventory.Batch, why metrics.ScanReason) metrics.ScanReason {
	switch {
	case why != "":
		return why
	case b.All:
		return metrics.ScanFull
	case len(b.Paths) > 0:
		return metrics.ScanUevent
	default:
		return metrics.ScanNames
	}
}

// watched are the directories that are watched, and what they follow from: finding
// them takes milliseconds where there are many patterns.
type watched struct {
	config *config.Config
	here   []string
	dirs   []string
}

// watch follows the directories that the configuration speaks of.
func (l *loop) watch(ctx context.Context) {
	if l.snapshot != nil {
		if w := l.watched; w.config != l.config || !slices.Equal(w.here, l.snapshot.Dirs) {
			l.watched = watched{l.config, l.snapshot.Dirs, matchers.Dirs(l.config, l.snapshot.Dirs)}
		}
		// Also where they are the same: a path may lead to another directory by now.
		l.watcher.SetDirs(l.watched.dirs)
		resync := time.Duration(0)
		if l.usesNets && inventory.ForeignNets(l.snapshot) {
			resync = netsResync
		}
		l.watcher.SetResync(resync)
	}
	l.watchSpecs(ctx)
}

// sayOnce warns about a subject when what there is to say of it changed.
func (l *loop) sayOnce(subject, reason, message string) {
	if l.said[subject] == reason {
		return
	}
	if reason == "" {
		delete(l.said, subject)
		return
	}
	l.said[subject] = reason
	l.log.Warn(message, "subject", subject, "reason", reason)
}

// sayInStep is sayOnce of a device or a resource: in a step that does not say it
// any more it is over, and worth a word when it comes again.
func (l *loop) sayInStep(subject, reason, message string) {
	l.passing[subject] = true
	l.sayOnce(subject, reason, message)
}

// forgetPassed forgets what this step has not said again.
func (l *loop) forgetPassed() {
	for subject := range l.passed {
		if !l.passing[subject] {
			delete(l.said, subject)
		}
	}
	l.passed, l.passing = l.passing, map[string]bool{}
}

// warnProblems warns about what could not be read, once for as long as it stays
// so.
func (l *loop) warnProblems(problems []device.Problem) {
	now := make(map[device.Problem]bool, len(problems))
	for _, p := range problems {
		if now[p] = true; !l.problems[p] {
			l.log.Warn("can't be read on the host", "subject", p.Subject, "reason", p.Reason)
		}
	}
	l.problems = now
}

// warnNotes warns about what can't be meant on this host, once for as long as it
// stays so.
func (l *loop) warnNotes(notes []matchers.Note) {
	now := map[string]bool{}
	for _, n := range notes {
		if text := n.Place + ": " + n.Text; n.Error && !now[text] {
			if now[text] = true; !l.notes[text] {
				l.log.Warn("configuration can't be what was meant on this host", "problem", text, "hint", cmp.Or(n.Hint, "see check"))
			}
		}
	}
	l.notes = now
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
