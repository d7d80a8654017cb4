package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/ledger"
)

// memory is the state that outlives a restart.
type memory struct {
	boot      string // see bootID
	state     ledger.State
	decisions ledger.Decisions
	lost      bool // an earlier instance served, and nothing of it is saved
	dra       bool // the driver for DRA has run
}

// restore continues from the state that an earlier instance saved, if it could be read.
func (l *loop) restore(first firstScan) {
	boot := first.boot
	saved := first.saved
	err := first.loadErr
	dir := l.options.Paths.StateDir
	if err != nil {
		l.log.Error("state can't be read: starting without it", "state_dir", dir, "err", err)
	} else if saved.Later {
		l.log.Warn("state is of a later version: it is kept, and used as far as it is understood", "state_dir", dir)
	}
	if (err != nil || saved.Later) && l.role.writes {
		if err := ledger.SetAside(dir, saved.Later); err != nil {
			l.log.Error("state can't be kept aside", "state_dir", dir, "err", err)
		}
	}
	_, noRegistry := os.Stat(l.options.Paths.Registry) // DRA is switched off in the manifest
	l.memory = memory{
		boot:      boot,
		state:     saved.State(boot),
		decisions: saved.Decisions,
		lost:      saved.Boot == "" && l.role.served,
		dra:       saved.DRA && noRegistry == nil,
	}
	if !l.options.CDIOnly && !l.options.NoDRA {
		l.held.Held = ledger.Held{IDs: map[string]string{}, Sets: map[string]bool{}}
		l.addClaims(&l.held.Held, l.claims(), nil, ledger.Output{})
	}
	l.outputs.injected = saved.Injected
	l.outputs.health.Restore(saved.Health, boot != saved.Boot, l.role.writes)
	if boot == saved.Boot { // no container survives a reboot
		l.pods.holders.restore(saved.Holds)
	}
}

// bootID identifies this boot of the kernel (random(4)); empty is unknown.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// saver writes to disks beside the loop: a hung disk must delay no device.
type saver struct {
	next    atomic.Pointer[func() saved] // what to write, the latest only; nil when it is written
	changed signal
	results chan saved // each that differs from the one before
}

// saved has the errors of one write.
type saved struct{ state, config error }

func (s saved) String() string { return fmt.Sprint(s.state, s.config) }

func newSaver() *saver {
	return &saver{changed: newSignal(), results: make(chan saved)}
}

// save queues write in place of a pending one.
func (s *saver) save(write func() saved) {
	s.next.Store(&write)
	s.changed.send()
}

// run writes until ctx is cancelled; write does the rest.
func (s *saver) run(ctx context.Context) error {
	var last saved
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
		result, written := s.write()
		if !written || result.String() == last.String() {
			continue
		}
		last = result
		select {
		case <-ctx.Done():
		case s.results <- result:
		}
	}
}

// write runs the pending write; false is none. One that failed is pending again: the end
// of the program may be its last chance.
func (s *saver) write() (saved, bool) {
	write := s.next.Swap(nil)
	if write == nil {
		return saved{}, false
	}
	result := (*write)()
	if result != (saved{}) {
		s.next.CompareAndSwap(nil, write)
	}
	return result, true
}

// save saves the state for the next instance and the last good configuration. If the state directory is not writable, only the state is lost.
func (l *loop) save() {
	if !l.role.writes {
		return
	}
	m := &l.memory
	state := ledger.Prepare(l.options.Paths.StateDir, ledger.Persisted{
		Boot:      m.boot,
		Decisions: m.decisions,
		Resources: m.state.Remember(),
		Forgot:    m.state.Forgot(),
		Injected:  l.outputs.injected,
		Health:    l.outputs.health.Save(),
		Holds:     l.pods.holders.save(),
		USB:       l.host.scanner.KnownUSB(),
		DRA:       m.dra,
	})
	l.saves.saver.save(func() saved {
		return saved{state: state(), config: l.reader.Trial.Save()}
	})
}

// finish writes the rest when the loop has ended.
func (l *loop) finish() {
	if l.last.snapshot != nil {
		l.save() // holds change without a pass of the loop
	}
	l.saves.last, _ = l.saves.saver.write()
	l.saves.last.config = l.reader.Trial.End(l.role.writes)
	l.warnUnsaved()
}

// abandon saves the last state in place of finish, when something that Run started does not
// end. If that is the loop, the trial of the configuration goes on: it may be the cause, and the
// next start serves the last good one.
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
			_ = l.reader.Trial.End(false)
		}
		_, _ = l.saves.saver.write()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(lastSave):
	}
}

// warnUnsaved warns of failed writes, and reports whether there were none.
func (l *loop) warnUnsaved() (written bool) {
	s := l.saves.last
	hint := l.options.hint("state-dir")
	l.page.problems.warn("state", s.state, "state can't be saved: the next start does not know what changed since the last time",
		"hint", hint,
	)
	l.page.problems.warn("last good configuration", s.config, "the configuration can't be copied: at the next start only an older copy, if any, can replace a broken one",
		"hint", hint,
	)
	return s == saved{}
}

// Failed links, specs and state are written again, and unread hardware is read again, after
// firstRetry, twice as long after every further time, up to lastRetry: no event announces
// that a file system has space again, or that a reset has ended.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
)

// retry is when to try again; zero is never.
type retry struct {
	at    time.Time
	delay time.Duration
}

// record records whether all was done. A failure before it is time changes nothing.
func (r *retry) record(now time.Time, failed bool) {
	if !failed {
		*r = retry{}
	} else if !now.Before(r.at) {
		r.delay = min(max(firstRetry, 2*r.delay), lastRetry)
		r.at = now.Add(r.delay)
	}
}
