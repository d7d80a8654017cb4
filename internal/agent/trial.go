package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// lastGoodName is the file in the state directory with the text of the last good
// configuration. It is one file, so that it is replaced atomically.
const lastGoodName = "last-good-config.json"

// savedFile is one file of the copy, as readable text.
type savedFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// trialName is the file in the state directory that names the configuration that is
// being tried, by the hash of its text. It exists from before parsing until the
// configuration is the last good one, and stays if the program dies meanwhile: otherwise
// one that takes too much memory would be tried for ever. An instance that waits for the
// one before to end writes it then.
const trialName = "config-trial.json"

const (
	// trialTime is how long a configuration is served before it is the last good one: by
	// then its lists are built, registered and sent. A clean exit makes it that at once.
	trialTime = 10 * time.Second
	// A configuration that the program did not survive is tried again after retryTrial
	// of serving the last good one, doubled with every further time: it may have been a
	// power failure, or the limit of memory may be higher now.
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

// trials are the two files: the reader of the configuration marks what it is about to
// parse, and the saver copies what the loop has proven. The loop waits for neither disk.
type trials struct {
	dir string

	mu     sync.Mutex // also while a file is written
	writer bool       // the state directory is ours to write
	good   string     // hash of the copy
	died   trial      // the program did not survive it
	marked trial      // parsed or served, and not proven yet
}

// newTrials reads what an earlier instance left. While another one runs, the mark may be
// its own.
func newTrials(dir string, writer bool) (t *trials, good []config.File) {
	t = &trials{dir: dir, writer: writer}
	good = t.lastGood()
	if good != nil {
		t.good = config.Hash(good)
	}
	if data, err := atomicfile.Read(filepath.Join(dir, trialName), atomicfile.MaxSize); err == nil && writer {
		_ = json.Unmarshal(data, &t.died) // as good as none
	}
	return t, good
}

// lastGood reads the copy; nil is none.
func (t *trials) lastGood() (files []config.File) {
	data, err := atomicfile.Read(filepath.Join(t.dir, lastGoodName), atomicfile.MaxSize)
	var saved []savedFile
	if err != nil || json.Unmarshal(data, &saved) != nil {
		return nil
	}
	for _, f := range saved {
		files = append(files, config.File{Name: f.Name, Data: []byte(f.Text)})
	}
	return files
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
// undo resumes the previous trial.
func (t *trials) begin(hash string) (undo func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.marked
	next := trial{hash, 1}
	if hash == t.died.Hash {
		next.Tries += t.died.Tries
	}
	t.mark(next)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.mark(before)
	}
}

// mark writes the file, with mu held. An error is ignored: saving the state reports its
// cause.
func (t *trials) mark(next trial) {
	if next.Hash == t.good || t.good == "" { // there is nothing to go back to
		next = trial{}
	}
	t.marked = next
	if next.Hash == "" {
		next = t.died
	}
	path := filepath.Join(t.dir, trialName)
	switch data, _ := json.Marshal(next); {
	case !t.writer:
	case next.Hash == "":
		_ = atomicfile.Remove(path)
	default:
		_ = atomicfile.Write(path, data, 0o600)
	}
}

// save makes a proven configuration the last good one. Who calls it may write.
func (t *trials) save(proven reading) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.marked
	switch {
	case proven.files != nil && proven.hash != t.good:
		if err = t.copy(proven.files); err == nil {
			t.good = proven.hash
		}
		if t.died = (trial{}); next.Hash == proven.hash {
			next = trial{}
		}
	case t.writer:
		return nil
	}
	t.writer = true
	t.mark(next)
	return err
}

func (t *trials) copy(files []config.File) error {
	var saved []savedFile
	for _, f := range files {
		saved = append(saved, savedFile{f.Name, string(f.Data)})
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err == nil {
		err = os.MkdirAll(t.dir, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(t.dir, lastGoodName), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}

// end ends the trial: the program exits normally.
func (t *trials) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark(trial{})
}

// proving is how the loop proves a configuration, by serving it.
type proving struct {
	served   reading   // not proven yet
	provenAt time.Time // when it will be; zero until it is published
	retryAt  time.Time // when to retry one that the program did not survive; zero is never
	proven   reading   // the last good one; only its hash if an earlier instance saved it
}

// serve follows a reading, which is served from now on unless it is broken.
func (p *proving) serve(r reading, now time.Time) {
	p.retryAt = time.Time{}
	if died := (diedError{}); errors.As(r.err, &died) {
		p.retryAt = now.Add(died.delay())
	}
	if r.err != nil {
		return // the trial goes on
	}
	p.served, p.provenAt = reading{}, time.Time{}
	if r.hash != p.proven.hash {
		p.served = r
	}
}

// follow is called when all lists are published, by an instance that may save. It ends a
// trial that is due, and reports whether to begin another one and when to call it again;
// zero is never.
func (p *proving) follow(now time.Time, writer bool) (retry bool, wake time.Time) {
	if retry = !p.retryAt.IsZero() && !now.Before(p.retryAt); retry {
		p.retryAt = time.Time{}
	}
	switch {
	case p.served.config == nil || !writer:
	case p.provenAt.IsZero():
		p.provenAt = now.Add(trialTime)
	case !now.Before(p.provenAt):
		p.finish()
	}
	return retry, earlier(p.retryAt, p.provenAt)
}

// finish ends a trial that has begun.
func (p *proving) finish() {
	if !p.provenAt.IsZero() {
		p.proven, p.served, p.provenAt = p.served, reading{}, time.Time{}
	}
}
