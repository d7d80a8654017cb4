// Package configuration reads the configuration of a running instance whenever it changes. It
// keeps a node from losing its devices to a configuration that is broken, or that the program
// does not survive.
//
// A new configuration is on trial until it was served for a while:
//
//	             edit              published for 10 s, or a normal exit
//	on disk ──────────▶ on trial ──────────────────────────────────────▶ last good
//	   │ broken            │                                              │
//	   ▼                   │ the program dies                             │ copied to the
//	last good one          ▼                                              │ state directory
//	is served           suspect: the last good one is served ◀────────────┘
//	                       │
//	                       └─▶ on trial again after an edit, on SIGHUP, or after 10 minutes,
//	                           at most 3 times
//
// On a node without a last good configuration, nothing is served instead. Therefore only deaths before
// its lists are published count there, and it is tried three times at once.
//
// A configuration that could not be matched in time stays on trial, and is suspect after an exit.
//
// The configuration on trial is marked on disk from before its text is parsed. The next
// start finds the mark if the program died. The last good configuration is never marked, so
// that a start after a reboot waits for no write.
//
// The mark also names the resources that the configuration on trial has removed. The last good
// configuration is served without them: nobody expects a device that was taken away to be offered
// again.
package configuration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/generic-dp/generic-dp/config"
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
	// Owns is set if no other instance uses StateDir.
	Owns bool
	// Check parses and checks a configuration. The last good one is checked too: the flags
	// may have changed since.
	Check func(files []config.File) (*config.Config, error)
	// Hint adds to an error of a missing configuration how to fix it.
	Hint func(err error) error
	Log  *slog.Logger
}

// Reading is what was read from disk.
type Reading struct {
	// Config is the configuration, nil if there is an error.
	Config *config.Config
	// Err is why the configuration is broken, or a SuspectError.
	Err error

	files []config.File
	// hash is the hash of the files. It is empty if they cannot be read.
	hash string
}

// same reports whether two readings are the same text, or broken in the same way.
func (r Reading) same(other Reading) bool {
	if r.Err != nil && other.Err != nil {
		return r.Err.Error() == other.Err.Error()
	}
	return r.Err == nil && other.Err == nil && r.hash == other.hash
}

// Reader reads the configuration whenever it may have changed, and passes on changes. It
// runs in a goroutine of its own, so that a slow disk delays no device.
type Reader struct {
	// Files watches the files. Run has to run beside Reader.Run.
	Files *watch.Watcher
	Trial *Trial

	options  Options
	requests chan struct{} // capacity 1
	readings chan Reading
	// last is the reading that was passed on last.
	last Reading
	// ignored are the files of the directory that were reported as ignored.
	ignored []config.Problem
}

// New returns a reader and the configuration to start with. If the one on disk is broken,
// that is the last good one, and Last says why. Without a last good one, it is an empty configuration
// if the program died each time that it tried the one on disk.
func New(o Options) (*Reader, *config.Config, error) {
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
	cfg, err := r.Start(o.Owns)
	return r, cfg, err
}

// Start reads the configuration to start with, as New does. An instance that has waited for another
// one calls it again, before Run: since New, the other instance may have died of the configuration.
func (r *Reader) Start(owns bool) (*config.Config, error) {
	o := r.options
	trial, good := newTrial(o.StateDir, owns)
	r.Trial = trial
	r.last = Reading{}
	r.last = r.load(false)
	if r.last.Err == nil {
		return r.last.Config, nil
	}
	if good != nil {
		cfg, err := o.Check(good)
		if err == nil {
			// --config may have changed since: the paths say what is served.
			o.Log.Warn("the last good configuration is served from its copy", "copied_from", pathsOf(good), "state_dir", o.StateDir)
			return trial.reduce(cfg), nil
		}
	}
	var suspect *SuspectError
	if errors.As(r.last.Err, &suspect) {
		o.Log.Error("no resource is served: there is no other configuration", "config", o.Path)
		return &config.Config{}, nil
	}
	return r.last.Config, r.last.Err
}

// pathsOf returns the paths from which files were read, as far as they are known.
func pathsOf(files []config.File) []string {
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = cmp.Or(f.Path, f.Name)
	}
	return paths
}

// Last returns the reading of New, or of the last Start.
func (r *Reader) Last() Reading { return r.last }

// Readings are the readings that differ from the one before.
func (r *Reader) Readings() <-chan Reading { return r.readings }

// Request reads the configuration again, and tries it even if it is suspect.
func (r *Reader) Request() {
	select {
	case r.requests <- struct{}{}:
	default: // one is pending
	}
}

// Run reads until ctx is cancelled.
func (r *Reader) Run(ctx context.Context) error {
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.Files.Changes():
		case <-r.requests:
			requested = true
		}
		next := r.load(requested)
		if !requested && next.same(r.last) {
			continue
		}
		r.last = next
		select {
		case <-ctx.Done():
			return nil
		case r.readings <- next:
		}
	}
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

// read reads the files of the configuration. ignored are files that look like a part of it.
func (o Options) read() (files []config.File, ignored []config.Problem, err error) {
	if len(o.Text) == 0 {
		return config.Read(o.Path)
	}
	file := config.File{
		Name: "config.toml",
		Data: o.Text,
	}
	return []config.File{file}, nil, nil
}

// load reads and checks the configuration on disk. A suspect one is tried only on request.
func (r *Reader) load(requested bool) Reading {
	files, ignored, err := r.options.read()
	r.warnIgnored(ignored)
	if err != nil {
		return Reading{files: files, Err: r.options.Hint(fmt.Errorf("--config: %w", err))}
	}
	next := Reading{files: files, hash: config.Hash(files)}
	if !requested {
		if r.last.Err == nil && next.hash == r.last.hash {
			return r.last
		}
		if next.Err = r.Trial.check(next.hash); next.Err != nil {
			return next
		}
	}
	undo := r.Trial.begin(next.hash)
	next.Config, next.Err = r.options.Check(files)
	if next.Err != nil {
		undo()
		return next
	}
	r.Trial.removes(r.removed(next))
	return next
}

// removed returns the names of the resources of the last good configuration that another one does not
// have.
func (r *Reader) removed(next Reading) []string {
	files := LastGood(r.options.StateDir)
	if files == nil || config.Hash(files) == next.hash {
		return nil
	}
	good, err := r.options.Check(files)
	if err != nil {
		return nil // it cannot be served
	}
	var removed []string
	for _, g := range good.Resources {
		isKept := slices.ContainsFunc(next.Config.Resources, func(kept config.Resource) bool {
			return kept.Name == g.Name
		})
		if !isKept {
			removed = append(removed, g.Name)
		}
	}
	return removed
}
