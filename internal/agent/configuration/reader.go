// Package configuration reads the configuration of a running instance whenever it changes. It
// keeps a node from losing its devices to a configuration that is broken, or that the program
// does not survive.
//
// A new configuration is on trial until it was served for a while:
//
//	             edit              published for 10 s, or a normal exit
//	on disk ──────────▶ on trial ──────────────────────────────────────▶ last good
//	   │ broken            │                                              │
//	   ▼                   │ three tries ended otherwise                  │ copied to the
//	last good one          ▼                                              │ state directory
//	is served           suspect: the last good one is served ◀────────────┘
//	                       │
//	                       └─▶ on trial again after an edit, on SIGHUP, or after 10 minutes
//
// A try is an edit, or a start with a configuration that is not the last good one. It is counted on disk,
// in the mark, before the text is parsed, which may kill the program. A configuration that could not be
// matched in time is never good.
//
// On a node without a last good configuration, nothing is served instead, and a configuration is good as
// soon as its lists are published.
//
// The mark also names the resources of the configuration on trial, if there is a last good one. That is served
// without those that were removed: what an edit takes away must not be offered again.
//
// The files belong to one instance. New writes nothing for another one. Own takes the files over, counts
// the configuration that is served, and may find it suspect.
package configuration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/files"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Options are the options of a Reader.
type Options struct {
	// Path is the configuration, a file or a directory.
	Path string
	// Text is the configuration in place of Path, unless it is empty. It never changes.
	Text []byte
	// StateDir keeps the copy of the last good configuration.
	StateDir string
	// Owns is set if no other instance uses StateDir. Otherwise call Own when that is so.
	Owns bool
	// Check parses and checks a configuration. The last good one is checked too: the flags
	// may have changed since.
	Check func(files []config.File) (*config.Config, error)
	// Hint says what to do about a configuration that cannot be read.
	Hint string
	Log  *slog.Logger
}

// Reading is what was read from disk.
type Reading struct {
	// Config is the configuration to serve. With an error, it is served in place of the one on disk, and
	// nil means that nothing changes.
	Config *config.Config
	// Err is why the configuration on disk is broken or suspect.
	Err error
	// Until is when a suspect configuration is tried again without an edit. It is the zero time for any
	// other.
	Until time.Time

	files []config.File
	// hash is the hash of the files. It is empty if they cannot be read.
	hash string
	// trial is how long it must be served until it is good.
	trial time.Duration
}

// state is the same for the same text, and for a text that is broken in the same way.
func (r Reading) state() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return r.hash
}

// Reader reads the configuration whenever it may have changed, and passes on changes. It
// runs in a goroutine of its own, so that a slow disk delays no device.
type Reader struct {
	// Files watches the files. Run has to run beside Reader.Run.
	Files *watch.Watcher

	options  Options
	requests chan struct{} // capacity 1
	readings chan Reading

	// last is the reading that was passed on last, without a configuration if it has an error.
	last Reading
	// ignored are the files of the directory that were reported as ignored.
	ignored []config.Problem
	// owns is set if the files in the state directory belong to this instance. Otherwise it neither
	// reads nor writes the mark.
	owns bool

	// mu is held while the files in the state directory change. It guards the fields below.
	mu sync.Mutex
	// good is the hash of the copy on disk, empty if there is none.
	good string
	// mark is the configuration on trial, as on disk.
	mark mark
	// written is closed when the last write of the mark has ended. It is nil before the first write.
	written chan struct{}
}

// New returns a reader and what to serve at the start, see begin. It is an error if there is nothing to
// serve.
func New(o Options) (*Reader, Reading, error) {
	dirs := func() []string {
		if len(o.Text) > 0 {
			return nil
		}
		return watchedDirs(o.Path)
	}
	r := &Reader{
		Files:    watch.NewFiles("configuration", dirs, o.Log),
		options:  o,
		requests: make(chan struct{}, 1),
		readings: make(chan Reading),
	}
	if o.Owns {
		r.own()
	}
	first := r.begin()
	if first.Config == nil {
		r.Wait()
		return r, first, first.Err
	}
	return r, first, nil
}

// Own makes this instance the owner of the files, after another one has ended, and returns what to serve.
// That is another configuration than before if the other one did not survive it. Call it before Run.
func (r *Reader) Own() Reading {
	r.own()
	return r.begin()
}

// own reads what the former owner of the files left.
func (r *Reader) own() {
	dir := r.options.StateDir
	_ = os.Remove(filepath.Join(dir, goodName+files.TempSuffix)) // of a killed instance
	r.owns = true
	r.mark = readMark(dir)
	if good := LastGood(dir); good != nil {
		r.good = config.Hash(good)
	}
}

// begin returns what to serve: the configuration on disk. If it is broken or suspect, that is the last good
// one. Without a last good one, it is an empty configuration in place of a suspect one, and nil in place of
// a broken one.
func (r *Reader) begin() Reading {
	last := r.try(r.load(), false)
	r.last = last
	if last.Err == nil {
		return last
	}
	if good := LastGood(r.options.StateDir); good != nil {
		cfg, err := r.options.Check(good)
		if err == nil {
			r.options.Log.Warn("the last good configuration is served from its copy", "state_dir", r.options.StateDir)
			last.Config = r.mark.reduce(cfg)
			return last
		}
	}
	if !last.Until.IsZero() {
		r.options.Log.Error("no resource is served: there is no other configuration", "config", r.options.Path)
		last.Config = &config.Config{}
	}
	return last
}

// Readings are the readings that differ from the one before.
func (r *Reader) Readings() <-chan Reading { return r.readings }

// Request reads the configuration again, and tries it even if it is suspect.
func (r *Reader) Request() { watch.Signal(r.requests) }

// Run reads until ctx is cancelled.
func (r *Reader) Run(ctx context.Context) error {
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.Files.Changes():
		case <-r.retry():
		case <-r.requests:
			requested = true
		}
		next, isNew := r.readAgain(requested)
		if !isNew {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case r.readings <- next:
		}
	}
}

// retry returns a channel that has a value when a suspect configuration should be tried again.
func (r *Reader) retry() <-chan time.Time {
	if r.last.Until.IsZero() {
		return nil
	}
	return time.After(time.Until(r.last.Until))
}

// readAgain reads the configuration on disk. isNew is set if it differs from the last reading, and for
// each request, which also tries a suspect configuration.
func (r *Reader) readAgain(requested bool) (next Reading, isNew bool) {
	next = r.load()
	// The text of a suspect configuration is unchanged when its time has come.
	if r.last.Err == nil && next.state() == r.last.state() {
		return r.last, requested
	}
	next = r.try(next, requested)
	isNew = requested || next.state() != r.last.state()
	if isNew {
		r.last = next
	}
	return next, isNew
}

// warnIgnored logs the ignored files of the directory, unless they were logged before.
func (r *Reader) warnIgnored(ignored []config.Problem) {
	if slices.Equal(ignored, r.ignored) {
		return
	}
	r.ignored = ignored
	for _, p := range ignored {
		args := []any{"config", p.File, "reason", p.Text}
		if p.Hint != "" {
			args = append(args, "hint", p.Hint)
		}
		r.options.Log.Warn("configuration file is ignored", args...)
	}
}

// load reads the configuration on disk, without parsing it.
func (r *Reader) load() Reading {
	if len(r.options.Text) > 0 {
		files := []config.File{{Name: "config.toml", Data: r.options.Text}}
		return Reading{files: files, hash: config.Hash(files)}
	}
	files, ignored, err := config.Read(r.options.Path)
	r.warnIgnored(ignored)
	if err != nil {
		return Reading{Err: fmt.Errorf("--config: %w\n  hint: %s", err, r.options.Hint)}
	}
	return Reading{files: files, hash: config.Hash(files)}
}

// try counts a try of what was read, unless it is the last good configuration, and parses and checks it. A
// suspect configuration is tried only on request.
func (r *Reader) try(next Reading, requested bool) Reading {
	if next.Err != nil {
		return next
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.mark
	isGood := next.hash == r.good
	if isGood {
		r.mark = mark{}
	} else {
		until := before.suspectUntil(next.hash)
		if time.Now().Before(until) && !requested {
			next.Until = until
			next.Err = fmt.Errorf("the program died while it tried this configuration, or could not match it in time (%d times): "+
				"it is tried again when it is edited, on SIGHUP, or %s after the last time", before.Tries, retryAfter)
			return next
		}
		r.mark = before.count(next.hash)
	}
	if r.good != "" && !isGood {
		next.trial = trialTime
	}
	r.writeMark()
	next.Config, next.Err = r.options.Check(next.files)
	if next.Err != nil {
		r.mark = before // the configuration before it is still served
		r.writeMark()
	} else if next.trial > 0 { // the names only matter beside a last good configuration
		r.mark.name(next.Config)
		r.writeMark()
	}
	return next
}

// End ends a trial at a normal exit: the configuration did not kill the program. So its try is taken back,
// unless it could not be matched in time, and it is good if its lists are published.
func (r *Reader) End(t *Trial) error {
	r.mu.Lock()
	if r.mark.isOurs && !t.isLate {
		r.mark = r.mark.takeBack()
		r.writeMark()
	}
	r.mu.Unlock()
	if t.published.IsZero() {
		return nil
	}
	return r.Keep(t.served)
}

// Keep makes a configuration the last good one, unless it is the zero Reading. It waits for the disk.
func (r *Reader) Keep(good Reading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if good.hash == "" || good.hash == r.good {
		return nil
	}
	err := writeCopy(r.options.StateDir, good.files)
	if err == nil {
		r.good = good.hash
	}
	// It has proven itself even if the disk is full.
	if r.mark.Hash == good.hash {
		r.mark = mark{}
		r.writeMark()
	}
	return err
}
