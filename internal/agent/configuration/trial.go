package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

const (
	// goodName is the file in the state directory with the text of the last good
	// configuration. It is one file, so that it is replaced atomically.
	goodName = "last-good-config.json"
	// markName is the file in the state directory that names the configuration that is
	// being tried.
	markName = "config-trial.json"
)

// FileNames are the names of the files in the state directory.
func FileNames() []string { return []string{goodName, markName} }

// LastGood returns the copy of the last good configuration, nil if there is none.
func LastGood(stateDir string) []config.File { return readCopy(filepath.Join(stateDir, goodName)) }

const (
	// trialTime is how long a configuration is served before it is the last good one: by
	// then its lists are built, registered and sent.
	trialTime = 10 * time.Second
	// retryAfter is how long the last good configuration is served before a suspect one
	// is tried again: the cause may have been a power failure, or a limit of memory that
	// is higher by now.
	retryAfter = 10 * time.Minute
	// maxTries bounds the tries without an edit while there is another configuration, so that a
	// configuration that takes too much memory does not stop the program forever.
	maxTries = 3
)

// mark is the content of the mark file: a configuration, by the hash of its text, and how
// often it was tried. The zero mark names none.
type mark struct {
	Hash  string `json:"hash"`
	Tries int    `json:"tries"`
	// Removed are the resources of the last good configuration that this one does not have. The last
	// good configuration is served without them.
	Removed []string `json:"removed,omitempty"`
}

// SuspectError says that a configuration is not tried, because the program did not survive it, or could
// not match it in time.
type SuspectError struct {
	// Tries is how often the program died, or could not match it in time.
	Tries int
	// Retries is set if it is tried again after retryAfter, without an edit.
	Retries bool
}

func (e *SuspectError) Error() string {
	text := fmt.Sprintf("the program died while it tried this configuration, or could not match it in time (%d times): it is tried again when it is edited, or on SIGHUP", e.Tries)
	if e.Retries {
		text += fmt.Sprintf(", or after %s", retryAfter)
	}
	return text
}

// Trial decides whether a configuration is good. See the package comment for its states.
//
// The loop calls Serve and Follow, which do not wait for a disk. The reader marks what it is
// about to parse, and Save copies the last good configuration. Both wait for the disk.
type Trial struct {
	dir string

	disk sync.Mutex // held while a file is written; taken before mu
	// pending are the writes that nobody waits for before End.
	pending sync.WaitGroup

	mu sync.Mutex
	// writer is set if the files belong to this instance.
	writer bool
	// good is the hash of the copy on disk, empty if there is none.
	good string
	// suspect is the configuration that an earlier instance did not survive.
	suspect mark
	// marked is the configuration that is being parsed or served, and not proven yet.
	marked mark
	// served is the configuration that the loop serves and that is not proven yet.
	served Reading
	// isLate is set while the served configuration cannot be matched in time.
	isLate bool
	// provenAt is when the served configuration will be proven. It is the zero time until
	// its lists are published.
	provenAt time.Time
	// retryAt is when to try the suspect configuration again, the zero time for never.
	retryAt time.Time
	// proven is the last configuration that was proven, to be copied.
	proven Reading
}

// newTrial reads what an earlier instance left. good is the copy of the last good
// configuration, nil if there is none. While another instance runs, the mark may be its own
// and says nothing.
func newTrial(dir string, writer bool) (t *Trial, good []config.File) {
	t = &Trial{dir: dir, writer: writer}
	if writer { // a dead instance may have left it
		_ = os.Remove(filepath.Join(dir, goodName+atomicfile.TempSuffix))
	}
	good = readCopy(filepath.Join(dir, goodName))
	if good != nil {
		t.good = config.Hash(good)
	}
	text, err := atomicfile.Read(filepath.Join(dir, markName), atomicfile.MaxSize)
	if err == nil && writer {
		_ = json.Unmarshal(text, &t.suspect) // an unreadable mark names no configuration
	}
	return t, good
}

// check returns a SuspectError for a configuration that the program did not survive. Without another
// one to serve, it is tried maxTries times at once: so often, the program died before it had published
// its lists.
func (t *Trial) check(hash string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	isSuspect := hash == t.suspect.Hash && hash != t.good
	hasOther := t.good != ""
	if isSuspect && (hasOther || t.suspect.Tries >= maxTries) {
		return &SuspectError{
			Tries:   t.suspect.Tries,
			Retries: t.suspect.Tries < maxTries || !hasOther,
		}
	}
	return nil
}

// begin marks a configuration on disk, before its text is parsed. If it turns out to be
// broken, undo resumes the trial of the configuration that is still served.
func (t *Trial) begin(hash string) (undo func()) {
	t.mu.Lock()
	before := t.marked
	next := mark{Hash: hash, Tries: 1}
	if hash == t.suspect.Hash {
		next.Tries += t.suspect.Tries
	}
	// What the configurations before it have removed counts until its own text is parsed.
	next.Removed = slices.Concat(t.suspect.Removed, before.Removed)
	t.setMark(next)
	write := t.writeMark
	isFirst := t.good == ""
	if isFirst {
		// A disk that hangs must not delay the first start of a node. If the program dies before the
		// mark is written, the next start does not count it.
		write = func() { t.pending.Go(t.writeMark) }
	}
	t.mu.Unlock()
	write()
	return func() {
		t.mu.Lock()
		t.setMark(before)
		t.mu.Unlock()
		write()
	}
}

// removes records on disk which resources of the last good configuration the one on trial does not
// have, before it is served.
func (t *Trial) removes(names []string) {
	t.mu.Lock()
	isSame := slices.Equal(t.marked.Removed, names)
	t.marked.Removed = names
	t.mu.Unlock()
	if !isSame {
		t.writeMark()
	}
}

// reduce returns a last good configuration without the resources that a later edit has removed. Its
// hash differs, because it is another configuration.
func (t *Trial) reduce(good *config.Config) *config.Config {
	t.mu.Lock()
	removed := t.suspect.Removed
	t.mu.Unlock()
	isRemoved := func(r config.Resource) bool {
		return slices.Contains(removed, r.Name)
	}
	if !slices.ContainsFunc(good.Resources, isRemoved) {
		return good
	}
	reduced := *good
	reduced.Resources = slices.DeleteFunc(slices.Clone(good.Resources), isRemoved)
	reduced.Hash += "-reduced"
	return &reduced
}

// setMark sets the configuration that is being tried. The last good one is never marked. The caller
// holds mu.
func (t *Trial) setMark(next mark) {
	if next.Hash == t.good {
		next = mark{}
	}
	t.marked = next
}

// writeMark brings the mark on disk in line. A suspect configuration stays marked while
// another one is served. An error is ignored: saving the state reports the cause.
func (t *Trial) writeMark() {
	t.disk.Lock()
	defer t.disk.Unlock()
	t.mu.Lock()
	next := t.marked
	if next.Hash == "" {
		next = t.suspect
	}
	isOurs := t.writer
	t.mu.Unlock()
	if !isOurs {
		return
	}
	path := filepath.Join(t.dir, markName)
	if next.Hash == "" {
		_ = atomicfile.Remove(path)
		return
	}
	text, err := json.Marshal(next)
	if err == nil {
		_ = os.MkdirAll(t.dir, 0o700) // nothing was saved yet
		_ = atomicfile.Write(path, text, 0o600)
	}
}

// Serve follows a reading. It is served from now on, unless it is broken or suspect: then the
// trial of the one that is served goes on.
func (t *Trial) Serve(r Reading, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryAt = time.Time{}
	var suspect *SuspectError
	if errors.As(r.Err, &suspect) && suspect.Retries {
		t.retryAt = now.Add(retryAfter)
	}
	if r.Err != nil {
		return
	}
	t.served = Reading{}
	t.isLate = false
	t.provenAt = time.Time{}
	isGood := r.hash == t.good
	if t.proven.files != nil {
		isGood = r.hash == t.proven.hash
	}
	if !isGood {
		t.served = r
	}
}

// Follow is called when all lists are published. writes is set if this instance may save, and late if
// the configuration could not be matched in time, so that its lists are not complete. Follow ends the
// trial when that is due. retry is set when the suspect configuration should be
// read again. wake is when to call Follow again, the zero time for never.
func (t *Trial) Follow(now time.Time, writes, late bool) (retry bool, wake time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.retryAt.IsZero() && !now.Before(t.retryAt) {
		retry = true
		t.retryAt = time.Time{}
	}
	t.isLate = late && t.served.Config != nil
	if t.isLate {
		t.provenAt = time.Time{}
	}
	isTrying := t.served.Config != nil && writes && !t.isLate
	if isTrying && t.provenAt.IsZero() {
		t.provenAt = now.Add(trialTime)
		t.clearFirst()
	} else if isTrying && !now.Before(t.provenAt) {
		t.prove()
	}
	wake = t.retryAt
	if wake.IsZero() || !t.provenAt.IsZero() && t.provenAt.Before(wake) {
		wake = t.provenAt
	}
	return retry, wake
}

// clearFirst removes the mark of a configuration whose lists are published, on a node without a last good
// configuration. If the program dies later, a power failure is more likely the cause, and there is nothing
// else to serve. The caller holds mu.
func (t *Trial) clearFirst() {
	if t.good != "" {
		return
	}
	t.suspect = mark{}
	t.marked = mark{}
	t.pending.Go(t.writeMark)
}

// prove ends a trial that has begun. The caller holds mu.
func (t *Trial) prove() {
	if t.provenAt.IsZero() {
		return
	}
	t.proven = t.served
	t.served = Reading{}
	t.provenAt = time.Time{}
}

// Save makes a proven configuration the last good one. Only an instance that owns the state
// directory may call it.
func (t *Trial) Save() error {
	t.mu.Lock()
	proven := t.proven
	needsCopy := proven.files != nil && proven.hash != t.good
	isNewOwner := !t.writer
	t.writer = true
	t.mu.Unlock()
	if !needsCopy {
		if isNewOwner {
			t.writeMark()
		}
		return nil
	}
	err := t.writeCopy(proven.files)
	t.mu.Lock()
	if err == nil {
		t.good = proven.hash
	}
	t.suspect = mark{}
	if t.marked.Hash == proven.hash {
		t.marked = mark{}
	}
	t.mu.Unlock()
	t.writeMark()
	return err
}

// End ends the trial because the program exits normally. If this instance owns the state
// directory, the served configuration is proven by that. A configuration that could not be matched in
// time stays marked.
func (t *Trial) End(writes bool) error {
	t.pending.Wait()
	var err error
	if writes {
		t.mu.Lock()
		t.prove()
		t.mu.Unlock()
		err = t.Save()
	}
	t.mu.Lock()
	if !t.isLate {
		t.marked = mark{}
	}
	t.mu.Unlock()
	t.writeMark()
	return err
}

// copiedFile is one file of the copy, as readable text.
type copiedFile struct {
	Name string `json:"name"`
	// Path is where the file was read. It is empty in a copy by an older version.
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
}

// readCopy reads the copy of a configuration. It returns nil if there is none, or if it is
// unusable.
func readCopy(path string) []config.File {
	text, err := atomicfile.Read(path, atomicfile.MaxSize)
	if err != nil {
		return nil
	}
	var copied []copiedFile
	if err := json.Unmarshal(text, &copied); err != nil {
		return nil
	}
	var files []config.File
	for _, f := range copied {
		files = append(files, config.File{
			Name: f.Name,
			Path: f.Path,
			Data: []byte(f.Text),
		})
	}
	return files
}

func (t *Trial) writeCopy(files []config.File) error {
	t.disk.Lock()
	defer t.disk.Unlock()
	var copied []copiedFile
	for _, f := range files {
		copied = append(copied, copiedFile{
			Name: f.Name,
			Path: f.Path,
			Text: string(f.Data),
		})
	}
	text, err := json.MarshalIndent(copied, "", "  ")
	if err == nil {
		err = os.MkdirAll(t.dir, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(t.dir, goodName), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}
