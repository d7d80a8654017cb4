package configuration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/files"
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

// mark counts the tries of the configuration on disk. There is no file if it has none, or if it is the
// last good one, so that a start after a reboot waits for no write.
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
	// published is when its lists were published, the zero time if they are not.
	published time.Time
	isProven  bool
}

// own reads what the former owner of the files left, and makes this instance the owner.
func (t *Trial) own() {
	_ = os.Remove(filepath.Join(t.dir, goodName+files.TempSuffix)) // of a killed instance
	good := LastGood(t.dir)
	var left mark
	text, err := files.Read(filepath.Join(t.dir, markName), files.MaxSize)
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

// suspect returns how often a configuration was tried, and when to try it again, if that was too often and
// not long ago. Otherwise tries is 0.
func (t *Trial) suspect(hash string) (tries int, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isTriedOut := hash == t.mark.Hash && t.mark.Tries >= maxTries
	until = t.mark.Last.Add(retryAfter)
	if isTriedOut && time.Now().Before(until) {
		return t.mark.Tries, until
	}
	return 0, time.Time{}
}

// count counts a try of the configuration on disk, before its text is parsed. It returns the mark of
// the configuration before it, which is still served if the new one is broken.
func (t *Trial) count(hash string) (before mark) {
	t.mu.Lock()
	before = t.mark
	if hash != t.mark.Hash {
		t.mark = mark{
			Hash:      hash,
			Resources: before.Resources,
		}
	}
	if !t.mark.isOurs {
		t.mark.isOurs = true
		t.mark.Tries++
		t.mark.Last = time.Now()
	}
	t.mu.Unlock()
	t.write()
	return before
}

// parsed records the resources of a configuration whose try is counted, before it is served. If it is
// broken, the mark before it is restored.
func (t *Trial) parsed(cfg *config.Config, err error, before mark) {
	t.mu.Lock()
	if err != nil {
		t.mark = before
	} else {
		t.mark.Resources = nil
		for _, r := range cfg.Resources {
			t.mark.Resources = append(t.mark.Resources, r.Name)
		}
	}
	t.mu.Unlock()
	t.write()
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

// write writes the mark, before anything is served. On a node without a last good configuration it does
// not wait: a disk that hangs must not delay the first start. If the program dies before the mark is
// written, the next start does not count it.
func (t *Trial) write() {
	t.mu.Lock()
	isFirst := t.good == ""
	t.mu.Unlock()
	if isFirst {
		t.pending.Go(t.writeMark)
	} else {
		t.writeMark()
	}
}

// writeMark brings the mark on disk in line. An error is ignored: saving the state reports the cause.
func (t *Trial) writeMark() {
	t.disk.Lock()
	defer t.disk.Unlock()
	t.mu.Lock()
	next := t.mark
	isOnTrial := next.Tries > 0 && next.Hash != t.good
	isOwner := t.isOwner
	t.mu.Unlock()
	if !isOwner {
		return
	}
	path := filepath.Join(t.dir, markName)
	if !isOnTrial {
		_ = files.Remove(path)
		return
	}
	text, err := json.Marshal(next)
	if err == nil {
		_ = os.MkdirAll(t.dir, 0o700) // nothing was saved yet
		_ = files.Write(path, text, 0o600)
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
	t.published = time.Time{}
	t.isProven = false
}

// Follow is called when all lists are published. late is set if the configuration could not be matched
// in time, so that its lists are not complete. Follow returns when to call it again, the zero time for
// never.
func (t *Trial) Follow(now time.Time, late bool) (wake time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isOnTrial := t.isOwner && t.served.Config != nil && !t.isProven
	if !isOnTrial {
		return time.Time{}
	}
	if late {
		t.mark.isOurs = false // a normal exit does not take the try back
		t.published = time.Time{}
		return time.Time{}
	}
	if t.published.IsZero() {
		t.published = now
	}
	// If the program dies later, and there is nothing else to serve, a power failure is more likely the
	// cause.
	isFirst := t.good == ""
	end := t.published.Add(trialTime)
	t.isProven = isFirst || !now.Before(end)
	if t.isProven {
		return time.Time{}
	}
	return end
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
	t.mu.Lock()
	if err == nil {
		t.good = served.hash
	}
	// It has proven itself even if the disk is full.
	if t.mark.Hash == served.hash {
		t.mark = mark{}
	}
	t.mu.Unlock()
	t.writeMark()
	return err
}

// End ends the trial because the program exits normally: its configuration did not kill it. It is the
// last good one if its lists are published, and otherwise this try does not count. The tries of a
// configuration that could not be matched in time count.
func (t *Trial) End() error {
	t.mu.Lock()
	t.isProven = !t.published.IsZero()
	if t.mark.isOurs {
		t.mark.isOurs = false
		t.mark.Tries--
	}
	t.mu.Unlock()
	err := t.Save()
	t.writeMark()
	t.pending.Wait()
	return err
}
