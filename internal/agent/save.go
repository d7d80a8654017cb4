package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// memory is the state that outlives a restart.
type memory struct {
	// boot is the ID of this boot, see bootID.
	boot string
	// state is the result of the last pass, and the input of the next one.
	state ledger.State
	// decisions are the forms of IDs that were chosen, so that an ID does not change without need.
	decisions ledger.Decisions
	// hasRunDRA is set if the driver for DRA has run, in this instance or an earlier one.
	hasRunDRA bool
}

// restore continues from the state that an earlier instance saved, if it could be read. It runs in
// the loop, before the first pass.
func (l *loop) restore() {
	dir := l.options.Paths.StateDir
	boot := bootID()
	saved, err := ledger.Load(dir)
	isSameBoot := boot != "" && boot == saved.Boot
	l.host.scanner.RestoreNets(saved.Nets, isSameBoot)
	// A reboot may have given a sysfs path to another device.
	if isSameBoot {
		l.host.scanner.RestoreUSB(saved.USB)
	}
	if err != nil {
		l.log.Error("state can't be read: starting without it", "state_dir", dir, "err", err)
	}
	if err != nil {
		// The first save would overwrite the file, which may be the only evidence of what went wrong.
		if err := ledger.SetAside(dir); err != nil {
			l.log.Error("state can't be kept aside", "state_dir", dir, "err", err)
		}
	}
	// Without the directory of registration sockets DRA is switched off in the manifest.
	_, noRegistry := os.Stat(l.options.Paths.Registry)
	l.memory = memory{
		boot:      boot,
		state:     saved.State(boot),
		decisions: saved.Decisions,
		hasRunDRA: saved.DRA && noRegistry == nil,
	}
	l.outputs.injected = saved.Injected
	l.outputs.health.Restore(saved.Health, boot != saved.Boot)
}

// bootID identifies this boot of the kernel (random(4)). It is empty if it is unknown.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// saver writes to disks in a goroutine of its own: a disk that hangs must not delay any device. The
// loop calls save, and only one goroutine at a time calls write.
type saver struct {
	// next is the latest write that is pending, nil if there is none.
	next    atomic.Pointer[func() saved]
	changed signal
	// last is the result of the last write. result has a value when it differs from the one before.
	last   atomic.Pointer[saved]
	result signal
}

// saved has the errors of one write: of the state, of the last good configuration, and of the labels of
// the node.
type saved struct{ state, config, labels error }

func (s saved) String() string { return fmt.Sprint(s.state, s.config, s.labels) }

func newSaver(result signal) *saver {
	s := &saver{changed: newSignal(), result: result}
	s.last.Store(&saved{})
	return s
}

// save queues a write, and drops the pending one. It does not wait. A pending write that is dropped
// had older contents.
func (s *saver) save(write func() saved) {
	s.next.Store(&write)
	s.changed.send()
}

// run writes until ctx is cancelled. A write that is pending then is left to loop.finish. It
// returns nil.
func (s *saver) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			s.write()
		}
	}
}

// write runs the pending write, if there is one.
func (s *saver) write() {
	write := s.next.Swap(nil)
	if write == nil {
		return
	}
	result := (*write)()
	before := s.last.Swap(&result)
	// A result that repeats causes no pass of the loop, which would save again.
	if before.String() != result.String() {
		s.result.send()
	}
}

// save saves the state for the next instance, and a configuration that is good, and writes the labels of the
// node. If the state directory is not writable, devices are served all the same.
func (l *loop) save(good configuration.Reading) {
	m := &l.memory
	// The contents are collected now, in the loop. Only the writing is left to the saver.
	state := ledger.Prepare(l.options.Paths.StateDir, ledger.Persisted{
		Boot:      m.boot,
		Decisions: m.decisions,
		Resources: m.state.Remember(),
		Injected:  l.outputs.injected,
		Health:    l.outputs.health.Save(),
		USB:       l.host.scanner.KnownUSB(),
		Nets:      l.host.scanner.KnownNets(),
		DRA:       m.hasRunDRA,
	})
	// Labels that are missing during a start would send pods to other nodes.
	var labels files.Plan
	var leftOut error
	if l.life.settled {
		labels, leftOut = output.PlanFeatures(l.options.Paths.NFDDir, l.devices)
	}
	l.saves.save(func() saved {
		return saved{
			state:  state(),
			config: l.reader.Keep(good),
			labels: errors.Join(leftOut, l.writeLabels(labels)),
		}
	})
}

// labelsPatience is how long a save waits for the write of the labels.
const labelsPatience = 100 * time.Millisecond

// writeLabels writes the labels of the node. Their directory belongs to another program, and may be on another
// disk: if it does not answer, the state is saved all the same, and the end of the write causes another pass.
func (l *loop) writeLabels(labels files.Plan) error {
	if len(labels.Missing) == 0 {
		return nil
	}
	dir := l.options.Paths.NFDDir
	err, _, hasAnswered := l.labels.Do(context.Background(), dir, labelsPatience, labels.Make)
	if !hasAnswered {
		return fmt.Errorf("%s: %q does not answer", labels.Label, dir)
	}
	return err
}

// finish writes the rest when the loop has ended. Agent.end calls it, after all goroutines of the
// group have ended.
func (l *loop) finish() {
	// Before the first pass there is nothing to save, and the file of the last instance stays.
	if l.last.snapshot != nil {
		l.save(configuration.Reading{}) // holds change without a pass of the loop
	}
	l.book.Save()
	l.saves.write()
	last := *l.saves.last.Load()
	last.config = l.reader.End(&l.trial)
	l.warnUnsaved(last)
}

// abandon saves the last state in place of finish, if something that Run has started does not end.
// If it is the loop that does not end, the trial of the configuration is not ended either: the
// configuration may be the cause, and the next start serves the last good one. It may run beside
// the loop, so it uses only what is safe for concurrent use. It returns after lastSave even if the
// disk hangs.
func (l *loop) abandon() {
	hasEnded := false
	reason := "the main loop has not ended its pass"
	select {
	case <-l.life.done:
		hasEnded = true
		reason = "a call has not returned"
	default:
	}
	l.log.Warn("stopped without waiting any longer", "reason", reason)
	written := make(chan struct{})
	go func() {
		if hasEnded {
			_ = l.reader.End(&l.trial)
		}
		l.saves.write()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(lastSave):
	}
}

// warnUnsaved warns of failed writes, and reports whether there were none.
func (l *loop) warnUnsaved(s saved) (written bool) {
	hint := hints["state-dir"]
	l.page.problems.warn("state", s.state, "state can't be saved: the next start does not know what changed since the last time",
		"hint", hint,
	)
	l.page.problems.warn("last good configuration", s.config, "the configuration can't be copied: at the next start only an older copy, if any, can replace a broken one",
		"hint", hint,
	)
	l.page.problems.warn("features", s.labels, "labels of the node can't be written", "hint", hints["nfd-dir"])
	return s == saved{}
}

// Failed links, specs and state are written again, and unread hardware is read again, after
// firstRetry. The delay doubles with every further failure, up to lastRetry. No event announces
// that a file system has space again, or that a reset has ended.
const (
	firstRetry = 10 * time.Second
	lastRetry  = time.Minute
)

// retry is the clock for what has failed.
type retry struct {
	// at is when to try again, the zero time if nothing has failed.
	at time.Time
	// delay is the time between the last failure that counted and at.
	delay time.Duration
}

// record records whether something has failed. A failure before the next try changes nothing: other
// events also cause passes.
func (r *retry) record(now time.Time, failed bool) {
	if !failed {
		*r = retry{}
	} else if !now.Before(r.at) {
		r.delay = min(max(firstRetry, 2*r.delay), lastRetry)
		r.at = now.Add(r.delay)
	}
}
