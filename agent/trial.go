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

// trials is what was tried, is tried and is to be tried: by the reader of the
// configuration, which asks before it parses one, and by the loop, which serves it. It is
// safe for concurrent use.
type trials struct {
	path string
	disk sync.Mutex // of who writes; taken before mu, so that nobody holds mu while a disk hangs

	mu     sync.Mutex
	dirty  bool   // the file is not what is to be remembered
	writer bool   // the state directory is ours to write
	good   string // hash of the last good configuration
	died   trial  // the program did not survive it
	marked trial  // parsed or served, and not the last good one yet

	served   reading       // while it is not the last good one
	provenAt time.Time     // when it will be; zero until it is published
	retryAt  time.Time     // when to try died again; zero is never
	unsaved  []config.File // the last good one, until it is saved
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

// begin marks a configuration that is about to be parsed. If it turns out to be broken,
// undo lets the trial before go on.
func (t *trials) begin(hash string) (undo func()) {
	t.mu.Lock()
	before := t.marked
	t.marked, t.dirty = trial{}, true
	if hash != t.good && t.good != "" { // else there is nothing to go back to
		t.marked = trial{hash, 1}
		if hash == t.died.Hash {
			t.marked.Tries += t.died.Tries
		}
	}
	t.mu.Unlock()
	t.write()
	return func() {
		t.mu.Lock()
		t.dirty = true
		if t.marked = before; before.Hash == t.good {
			t.marked = trial{} // passed meanwhile
		}
		t.mu.Unlock()
		t.write()
	}
}

// serve follows a reading, which is served from now on unless it is broken.
func (t *trials) serve(r reading, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryAt = time.Time{}
	if died := (diedError{}); errors.As(r.err, &died) {
		t.retryAt = now.Add(died.delay())
	}
	if r.err != nil {
		return // the trial goes on
	}
	t.served, t.provenAt = reading{}, time.Time{}
	if r.hash != t.good {
		t.served = r
	}
}

// follow is called when all lists are published. It ends a trial when it is time, and
// reports whether to begin another one, and when to be called again; zero is never.
func (t *trials) follow(now time.Time) (retry bool, wake time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if retry = !t.retryAt.IsZero() && !now.Before(t.retryAt); retry {
		t.retryAt = time.Time{}
	}
	switch {
	case t.served.config == nil || !t.writer:
	case t.provenAt.IsZero():
		t.provenAt = now.Add(trialTime)
	case !now.Before(t.provenAt):
		t.pass()
	}
	return retry, earlier(t.retryAt, t.provenAt)
}

// pass makes the served configuration the last good one. Another one may be parsed.
func (t *trials) pass() {
	if t.marked.Hash == t.served.hash {
		t.marked = trial{}
	}
	t.good, t.died, t.unsaved = t.served.hash, trial{}, t.served.files
	t.served, t.provenAt, t.dirty = reading{}, time.Time{}, true
}

// stop ends all trials: the program ends by itself.
func (t *trials) stop() {
	t.mu.Lock()
	if !t.provenAt.IsZero() {
		t.pass()
	}
	t.marked, t.dirty = trial{}, true
	t.mu.Unlock()
	t.write()
}

// inherit makes the state directory ours to write.
func (t *trials) inherit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writer, t.dirty = true, true
}

// write makes the file what is to be remembered. It fails where state can't be saved,
// which is reported there.
func (t *trials) write() {
	t.disk.Lock()
	defer t.disk.Unlock()
	t.mu.Lock()
	next, write := t.marked, t.writer && t.dirty
	if next.Hash == "" {
		next = t.died
	}
	t.dirty = t.dirty && !write
	t.mu.Unlock()
	if !write {
		return
	}
	if next.Hash == "" {
		_ = atomicfile.Remove(t.path)
		return
	}
	data, _ := json.Marshal(next)
	_ = atomicfile.Write(t.path, data, 0o600)
}

// save writes what has changed: the file, and the last good configuration.
func (t *trials) save(o Options) error {
	t.write()
	t.mu.Lock()
	files, hash := t.unsaved, t.good
	t.mu.Unlock()
	if files == nil {
		return nil
	}
	err := o.saveLastGood(files)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && hash == t.good {
		t.unsaved = nil
	}
	return err
}
