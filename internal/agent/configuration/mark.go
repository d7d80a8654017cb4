package configuration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	// maxTries is how often a configuration is tried before the last good one is served.
	maxTries = 3
	// retryAfter is the time after the last try of a suspect configuration until it is tried again: the
	// cause may have been a power failure, or a limit of memory that is higher by now.
	retryAfter = 10 * time.Minute
	// writeFor is how long a try waits for the mark on a disk that hangs.
	writeFor = time.Second
)

// markName is the file in the state directory with the mark.
const markName = "config-trial.json"

// mark counts the tries of the configuration on trial. The zero mark is none, and has no file, so that a
// start after a reboot waits for no write.
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
	// isOurs is set if the last try is one of this process.
	isOurs bool
}

// readMark reads the mark of an instance that has ended. An unreadable one counts as none.
func readMark(stateDir string) mark {
	var left mark
	if files.ReadJSON(filepath.Join(stateDir, markName), files.MaxSize, &left) != nil {
		return mark{}
	}
	// A clock that was set back must not make a configuration suspect for longer.
	if now := time.Now(); left.Last.After(now) {
		left.Last = now
	}
	return left
}

// suspectUntil returns until when a configuration is suspect, the zero time if it is not.
func (m mark) suspectUntil(hash string) time.Time {
	if hash == m.Hash && m.Tries >= maxTries {
		return m.Last.Add(retryAfter)
	}
	return time.Time{}
}

// count returns the mark with another try of a configuration. A text that comes back after a broken edit is no
// other try of this process.
func (m mark) count(hash string) mark {
	if hash == m.Hash && m.isOurs {
		return m
	}
	if hash != m.Hash {
		m.Hash = hash
		m.Tries = 0
	}
	m.Tries++
	m.Last = time.Now()
	m.isOurs = true
	return m
}

// takeBack returns the mark without the try of this process.
func (m mark) takeBack() mark {
	if m.Tries == 1 {
		return mark{}
	}
	m.Tries--
	m.isOurs = false
	return m
}

// name records the resources of the configuration on trial.
func (m *mark) name(cfg *config.Config) {
	m.Resources = nil
	for _, r := range cfg.Resources {
		m.Resources = append(m.Resources, r.Name)
	}
}

// reduce returns the last good configuration without the resources that the configuration on trial has
// removed. Its hash differs, because it is another configuration.
func (m mark) reduce(good *config.Config) *config.Config {
	isRemoved := func(r config.Resource) bool {
		return !slices.Contains(m.Resources, r.Name)
	}
	if m.Resources == nil || !slices.ContainsFunc(good.Resources, isRemoved) {
		return good
	}
	reduced := *good
	reduced.Resources = slices.DeleteFunc(slices.Clone(good.Resources), isRemoved)
	reduced.Hash += "-reduced"
	return &reduced
}

// writeMark brings the mark on disk in line, before anything is served. It waits briefly for a disk that
// hangs, and not at all on a node without a last good configuration. If the program dies before the mark is
// written, the next start does not count the try.
func (r *Reader) writeMark() {
	if !r.owns {
		return
	}
	former := r.written
	written := make(chan struct{})
	r.written = written
	next := r.mark
	go func() {
		defer close(written)
		if former != nil {
			<-former
		}
		next.write(r.options.StateDir)
	}()
	if r.good != "" {
		r.Wait()
	}
}

// Wait waits briefly for the last write of the mark, so that none follows the end of the program. No other
// method may run.
func (r *Reader) Wait() {
	if r.written == nil {
		return
	}
	select {
	case <-r.written:
	case <-time.After(writeFor):
	}
}

// write writes the mark. An error is ignored: saving the state reports the cause.
func (m mark) write(stateDir string) {
	path := filepath.Join(stateDir, markName)
	if m.Tries == 0 {
		_ = files.Remove(path)
		return
	}
	text, err := json.Marshal(m)
	if err == nil {
		_ = os.MkdirAll(stateDir, 0o700) // nothing was saved yet
		_ = files.Write(path, text, 0o600)
	}
}
