package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/atomicfile"
)

// trialName is the file in the state directory that names the configuration that is
// being tried, by the hash of its text. It exists from before the text is parsed until
// the configuration is the last good one, and stays if the program dies meanwhile: a
// configuration that takes too much memory would be tried for ever.
// An instance that waits for the one before to end writes it then.
const trialName = "config-trial.json"

const (
	// trialTime is how long a configuration is served before it is the last good one:
	// by then its lists are built, registered and sent. It is that at once if the
	// program is told to end.
	trialTime = 10 * time.Second
	// A configuration that the program did not survive is tried again after retryTrial
	// of serving the last good one, twice as long after every further time: it may
	// have been a power failure, or the limit of memory may be higher now.
	retryTrial   = 10 * time.Minute
	maxDoublings = 7 // a day
)

// trial is the content of the file.
type trial struct {
	Hash  string `json:"hash"`
	Tries int    `json:"tries"`
}

// delay is how long the last good configuration is served before the next try.
func (t trial) delay() time.Duration { return retryTrial << min(max(0, t.Tries-1), maxDoublings) }

// diedError is why a configuration is not tried.
type diedError struct{ trial }

func (e diedError) Error() string {
	return fmt.Sprintf("the program died while it tried this configuration (%d times): it is tried again when it is edited, on SIGHUP, or after %s",
		e.Tries, e.delay())
}

// trials keeps the file. It is safe for concurrent use.
type trials struct {
	path string

	mu      sync.Mutex
	writer  bool   // the state directory is ours to write
	good    string // hash of the last good configuration
	died    trial  // the program did not survive it
	current trial  // being tried
}

// newTrials reads what an earlier instance left. While another one runs, the file may be
// its own.
func newTrials(dir string, writer bool, good []config.File) *trials {
	t := &trials{path: filepath.Join(dir, trialName), writer: writer}
	if good != nil {
		t.good = config.Hash(good)
	}
	if data, err := atomicfile.Read(t.path, atomicfile.MaxSize); err == nil && writer {
		_ = json.Unmarshal(data, &t.died) // as good as none
	}
	return t
}

// check returns an error if the program did not survive a configuration, and there is
// another one to serve.
func (t *trials) check(hash string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if hash == t.died.Hash && hash != t.good && t.good != "" {
		return diedError{t.died}
	}
	return nil
}

// begin marks a configuration that is about to be tried, and reports whether it is not
// the last good one. If it turns out to be broken, undo lets the trial before go on.
func (t *trials) begin(hash string) (isTrial bool, undo func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.current
	t.current = trial{}
	if hash != t.good && t.good != "" { // else there is nothing to go back to
		t.current = trial{hash, 1}
		if hash == t.died.Hash {
			t.current.Tries += t.died.Tries
		}
	}
	t.write()
	return hash != t.good, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.current = before; before.Hash == t.good {
			t.current = trial{} // passed meanwhile
		}
		t.write()
	}
}

// stop ends any trial: the program ends by itself.
func (t *trials) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = trial{}
	t.write()
}

// inherit makes the state directory ours to write.
func (t *trials) inherit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writer = true
	t.write()
}

// passed makes a configuration the last good one. Another trial may have begun.
func (t *trials) passed(hash string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good, t.died = hash, trial{}
	if t.current.Hash == hash {
		t.current = trial{}
	}
	t.write()
}

// write makes the file what is to be remembered. It fails where state can't be saved,
// which is reported there.
func (t *trials) write() {
	if !t.writer {
		return
	}
	next := t.current
	if next.Hash == "" {
		next = t.died
	}
	if next.Hash == "" {
		_ = atomicfile.Remove(t.path)
		return
	}
	data, _ := json.Marshal(next)
	_ = atomicfile.Write(t.path, data, 0o600)
}

// try follows a reading that may be a trial.
func (l *loop) try(r reading) {
	l.retryAt = time.Time{}
	if died := (diedError{}); errors.As(r.err, &died) {
		l.retryAt = l.now().Add(died.delay())
	}
	if r.err != nil {
		return // the trial goes on
	}
	l.memory.trial, l.memory.provenAt = nil, time.Time{}
	if r.trial {
		l.memory.trial = &r
	}
}

// followTrial ends a trial, or begins another one, when it is time. It is called when
// all lists are published, and returns when to be called again; zero is never.
func (l *loop) followTrial(now time.Time) (wake time.Time) {
	m := &l.memory
	if !l.retryAt.IsZero() && !now.Before(l.retryAt) {
		l.retryAt = time.Time{}
		l.reader.request()
	}
	switch {
	case m.trial == nil || !l.writer:
	case m.provenAt.IsZero():
		m.provenAt = now.Add(trialTime)
	case !now.Before(m.provenAt):
		l.endTrial()
	}
	return earlier(l.retryAt, m.provenAt)
}

// endTrial makes the configuration that is tried the last good one, if it was published.
func (l *loop) endTrial() {
	m := &l.memory
	if m.provenAt.IsZero() {
		return
	}
	l.reader.trials.passed(m.trial.hash)
	m.unsaved, m.trial, m.provenAt = m.trial.files, nil, time.Time{}
}
