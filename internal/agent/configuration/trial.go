package configuration

import (
	"encoding/json"
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
	// trialTime is how long a configuration is served before it is the last good one: by
	// then its lists are built, registered and sent.
	trialTime = 10 * time.Second
	// maxTries is how often a configuration is tried before the last good one is served.
	maxTries = 3
	// retryAfter is the time after the last try of a suspect configuration until it is tried again: the
	// cause may have been a power failure, or a limit of memory that is higher by now.
	retryAfter = 10 * time.Minute
)

// markName is the file in the state directory with the mark.
const markName = "config-trial.json"

// mark counts the tries of a configuration that is not the last good one. The zero mark has no
// configuration, and then there is no file.
type mark struct {
	// Hash is the hash of its text.
	Hash string `json:"hash"`
	// Tries is how often it was tried without success.
	Tries int `json:"tries"`
	// Last is the time of the last try.
	Last time.Time `json:"last"`
	// Resources are the names of its resources, or of the configuration before it until its text is
	// parsed. Other resources of the last good configuration are not served instead of it.
	Resources []string `json:"resources,omitempty"`

	// isOurs is set if this instance has counted the last try.
	isOurs bool
}

// SuspectError says that a configuration is not tried, because the program did not survive it, or could
// not match it in time.
type SuspectError struct {
	// Tries is how often the program died, or could not match it in time.
	Tries int
	// Until is when it is tried again without an edit.
	Until time.Time
}

func (e *SuspectError) Error() string {
	return fmt.Sprintf("the program died while it tried this configuration, or could not match it in time (%d times): "+
		"it is tried again when it is edited, on SIGHUP, or %s after the last time", e.Tries, retryAfter)
}

// Trial decides whether a configuration is good. See the package comment for the rules.
//
// The loop calls Serve and Follow, which do not wait for a disk. All other methods may wait for it.
type Trial struct {
	dir string

	disk sync.Mutex // held while a file is written; taken before mu
	// pending are the writes that nobody waits for before End.
	pending sync.WaitGroup

	mu sync.Mutex // guards the fields below
	// isOwner is set if the files belong to this instance. Otherwise it neither reads nor writes them.
	isOwner bool
	// good is the hash of the copy on disk, empty if there is none.
	good string
	mark mark
	// served is the configuration that the loop serves. It is the zero Reading if that is the copy, in
	// place of the configuration on disk.
	served Reading
	// provenAt is when it will be good. It is the zero time until its lists are published.
	provenAt time.Time
	isProven bool
}

// own reads what the former owner of the files left, and makes this instance the owner.
func (t *Trial) own() {
	_ = os.Remove(filepath.Join(t.dir, goodName+atomicfile.TempSuffix)) // of a killed instance
	good := LastGood(t.dir)
	var left mark
	text, err := atomicfile.Read(filepath.Join(t.dir, markName), atomicfile.MaxSize)
	if err == nil && json.Unmarshal(text, &left) != nil {
		left = mark{} // an unreadable mark has no configuration
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOwner = true
	t.mark = left
	if good != nil {
		t.good = config.Hash(good)
	}
}

// check returns a SuspectError for a configuration that was tried too often, and not long ago.
func (t *Trial) check(hash string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	isTriedOut := hash == t.mark.Hash && t.mark.Tries >= maxTries
	until := t.mark.Last.Add(retryAfter)
	if isTriedOut && time.Now().Before(until) {
		return &SuspectError{Tries: t.mark.Tries, Until: until}
	}
	return nil
}

// count counts a try of the configuration on disk, before its text is parsed. undo restores the count
// of the configuration before it, which is still served if the new one is broken.
func (t *Trial) count(hash string) (undo func()) {
	var before mark
	t.change(func(m *mark) {
		before = *m
		if hash != m.Hash {
			*m = mark{
				Hash:      hash,
				Resources: m.Resources,
			}
		}
		if !m.isOurs {
			m.isOurs = true
			m.Tries++
			m.Last = time.Now()
		}
	})
	return func() {
		t.change(func(m *mark) {
			*m = before
		})
	}
}

// parsed records the resources of a configuration whose try is counted, before it is served.
func (t *Trial) parsed(cfg *config.Config) {
	var names []string
	for _, r := range cfg.Resources {
		names = append(names, r.Name)
	}
	t.change(func(m *mark) {
		m.Resources = names
	})
}

// reduce returns the last good configuration without the resources that the configuration on trial has
// removed. Its hash differs, because it is another configuration.
func (t *Trial) reduce(good *config.Config) *config.Config {
	t.mu.Lock()
	kept := t.mark.Resources
	t.mu.Unlock()
	isRemoved := func(r config.Resource) bool {
		return !slices.Contains(kept, r.Name)
	}
	if kept == nil || !slices.ContainsFunc(good.Resources, isRemoved) {
		return good
	}
	reduced := *good
	reduced.Resources = slices.DeleteFunc(slices.Clone(good.Resources), isRemoved)
	reduced.Hash += "-reduced"
	return &reduced
}

// change changes the mark, also on disk, if this instance is the owner. The last good configuration
// has no mark, so that a start after a reboot waits for no write.
func (t *Trial) change(edit func(m *mark)) {
	t.mu.Lock()
	next := t.mark
	edit(&next)
	if next.Hash == t.good || next.Tries == 0 {
		next = mark{}
	}
	isSame := next.Hash == t.mark.Hash && next.Tries == t.mark.Tries && slices.Equal(next.Resources, t.mark.Resources)
	if isSame || !t.isOwner {
		t.mu.Unlock()
		return
	}
	t.mark = next
	isFirst := t.good == ""
	t.mu.Unlock()
	if isFirst {
		// A disk that hangs must not delay the first start of a node. If the program dies before the
		// mark is written, the next start does not count it.
		t.pending.Go(t.writeMark)
		return
	}
	t.writeMark()
}

// writeMark brings the mark on disk in line. An error is ignored: saving the state reports the cause.
func (t *Trial) writeMark() {
	t.disk.Lock()
	defer t.disk.Unlock()
	t.mu.Lock()
	next := t.mark
	t.mu.Unlock()
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

// Serve follows a reading. It is served from now on, unless it is broken: then the trial of the one that
// is served goes on.
func (t *Trial) Serve(r Reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Config == nil {
		return
	}
	if r.Err != nil {
		r = Reading{}
	}
	t.served = r
	t.provenAt = time.Time{}
	t.isProven = false
}

// Follow is called when all lists are published. late is set if the configuration could not be matched
// in time, so that its lists are not complete. Follow returns when to call it again, the zero time for
// never.
func (t *Trial) Follow(now time.Time, late bool) (wake time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isOnTrial := t.isOwner && t.served.Config != nil && !t.isProven
	switch {
	case !isOnTrial:
		return time.Time{}
	case late:
		t.mark.isOurs = false // a normal exit does not take the try back
		t.provenAt = time.Time{}
		return time.Time{}
	case t.provenAt.IsZero():
		t.provenAt = now.Add(trialTime)
		t.forgiveFirst()
	}
	t.isProven = !now.Before(t.provenAt)
	if t.isProven {
		return time.Time{}
	}
	return t.provenAt
}

// forgiveFirst drops the tries of a configuration whose lists are published, on a node without a last
// good one. If the program dies later, a power failure is more likely the cause, and there is nothing
// else to serve. The caller holds mu.
func (t *Trial) forgiveFirst() {
	if t.good != "" {
		return
	}
	t.mark = mark{}
	t.pending.Go(t.writeMark)
}

// Save makes the served configuration the last good one if it is proven.
func (t *Trial) Save() error {
	t.mu.Lock()
	served := t.served
	needsCopy := t.isProven && served.hash != t.good
	t.mu.Unlock()
	if !needsCopy {
		return nil
	}
	t.disk.Lock()
	err := writeCopy(t.dir, served.files)
	t.disk.Unlock()
	t.change(func(m *mark) {
		if err == nil {
			t.good = served.hash
		}
		if m.Hash == served.hash {
			*m = mark{}
		}
	})
	return err
}

// End ends the trial because the program exits normally: its configuration did not kill it. It is the
// last good one if its lists are published, and otherwise this try does not count. The tries of a
// configuration that could not be matched in time count.
func (t *Trial) End() error {
	t.change(func(m *mark) {
		t.isProven = !t.provenAt.IsZero()
		if m.isOurs {
			m.Tries--
		}
	})
	err := t.Save()
	t.pending.Wait()
	return err
}
