package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// reading is the configuration on disk, or why it is broken.
type reading struct {
	config *config.Config
	files  []config.File
	hash   string // of the files; empty if they can't be read
	err    error
}

// same reports whether a configuration is the same text, or broken in the same way.
func (r reading) same(other reading) bool {
	if r.err == nil || other.err == nil {
		return r.err == nil && other.err == nil && r.hash == other.hash
	}
	return r.err.Error() == other.err.Error()
}

// checkConfig parses and checks a configuration, including the last good one: --allow
// may have changed.
func (o Options) checkConfig(files []config.File) (*config.Config, error) {
	parse := config.Parse
	if o.CDIOnly {
		parse = config.ParseForCDI
	}
	cfg, err := parse(files...)
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(o.Allow); err != nil {
		return nil, err
	}
	return cfg, nil
}

// newFileWatch watches files edited by people and programs: the configuration, foreign
// CDI specs. They are written in place, renamed into place, or behind symbolic links
// that are replaced, so that the directories on their paths are watched. An edit in
// several steps is complete after a short time without an event.
func newFileWatch(source string, dirs func() []string, log *slog.Logger) *watch.Watcher {
	return watch.New(watch.Options{
		Source: source, Events: watch.Names | watch.Attributes | watch.Writes, Dirs: dirs,
		Quiet: 100 * time.Millisecond, Resync: 10 * time.Minute, Poll: time.Minute, Log: log,
	})
}

// configReader reads the configuration whenever it may have changed, and passes on
// changes. It runs in a separate goroutine, so that a slow disk delays no device.
type configReader struct {
	options  Options
	files    *watch.Watcher
	requests signal
	readings chan reading
	trials   *trials
	last     reading // passed on last
}

// newConfigReader returns a reader, and the configuration to start with. If the one on
// disk is broken, it is the last good one: a node does not lose its devices to a typo and
// a restart.
func newConfigReader(o Options, writer bool) (*configReader, *config.Config, error) {
	tried, good := newTrials(o.Paths.StateDir, writer)
	r := &configReader{
		options: o, files: newFileWatch("configuration", func() []string { return configDirs(o.Config) }, o.Log),
		requests: newSignal(), readings: make(chan reading), trials: tried,
	}
	if r.last = r.load(false); r.last.err == nil {
		return r, r.last.config, nil
	}
	if good != nil {
		if cfg, err := o.checkConfig(good); err == nil {
			return r, cfg, nil
		}
	}
	if errors.As(r.last.err, new(diedError)) {
		r.last = r.load(true)
	}
	return r, r.last.config, r.last.err
}

// load reads and checks the configuration on disk. One that the program did not survive is
// tried on request only.
func (r *configReader) load(requested bool) (next reading) {
	if next.files, next.err = config.Read(r.options.Config); next.err != nil {
		next.err = r.options.withHint(fmt.Errorf("--config: %w", next.err), "config")
		return next
	}
	next.hash = config.Hash(next.files)
	if !requested {
		if r.last.err == nil && next.hash == r.last.hash {
			return r.last
		}
		if next.err = r.trials.check(next.hash); next.err != nil {
			return next
		}
	}
	undo := r.trials.begin(next.hash)
	if next.config, next.err = r.options.checkConfig(next.files); next.err != nil {
		undo()
	}
	return next
}

// run reads until ctx is cancelled.
func (r *configReader) run(ctx context.Context) error {
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.files.Changes():
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

// reload handles a reading: a broken one is only reported, a different one is served
// from now on.
func (l *loop) reload(r reading) {
	was := l.loaded.Load()
	now := *was
	now.Broken, now.Problems = r.err, split(r.err)
	l.metrics.CountLoad(r.err)
	log := l.log.With("config", now.Path)
	switch {
	case r.err != nil:
		logBroken(l.log, now.Path, r.err)
		l.events.add("", "", "the configuration on disk is broken")
	case r.config.Hash != was.Hash:
		now.Hash, now.Loaded, now.Generation = r.config.Hash, l.now(), was.Generation+1
		l.config = r.config
		l.held.reset(now.Loaded)
		l.watch()
		l.events.add("", "", "another configuration is served")
		log.Info("configuration loaded", "resources", len(r.config.Resources), "hash", now.Hash)
	case was.Broken != nil:
		log.Info("configuration is valid again and unchanged", "hash", now.Hash)
	default:
		log.Info("configuration has not changed", "hash", now.Hash)
	}
	l.loaded.Store(&now)
	l.proving.serve(r, l.now())
}

// logBroken logs every problem of a broken configuration on a separate line.
func logBroken(log *slog.Logger, path string, broken error) {
	log.Error("configuration is broken: the last good one is served", "config", path)
	var problems config.Problems
	if !errors.As(broken, &problems) {
		log.Error("configuration problem", "config", path, "problem", strings.NewReplacer("\n  ", "; ", "\n", "; ").Replace(broken.Error()))
	}
	for _, p := range problems {
		args := []any{"config", path}
		if at := p.Position(); at != "" {
			args = append(args, "position", at)
		}
		args = append(args, "problem", p.Message())
		if p.Hint != "" {
			args = append(args, "hint", p.Hint)
		}
		log.Error("configuration problem", args...)
	}
}

// maxLinks is how many symbolic links a path may lead through (path_resolution(7)).
const maxLinks = 40

// symlinkDirs are the directories in which a change can make a path lead elsewhere: its
// own, and those of the symbolic links on the path. In a mounted ConfigMap
// "config.toml" is a link to "..data/config.toml", and "..data" one to a directory
// that is replaced as a whole (k8s.io/kubernetes, pkg/volume/util, AtomicWriter).
type symlinkDirs map[string]bool

// configDirs are the directories to watch for a configuration at path.
func configDirs(path string) []string {
	dirs := symlinkDirs{}
	dirs.add(path)
	// Links in a directory may lead anywhere.
	entries, _ := os.ReadDir(path) // a file has none
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			dirs.add(filepath.Join(path, e.Name()))
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// add adds the directories of one path, which may not exist yet.
func (t symlinkDirs) add(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // no working directory
	}
	dir, rest := "/", path
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		here := filepath.Join(dir, name)
		target, err := os.Readlink(here)
		if err != nil || links == maxLinks {
			dir = here // no link
			continue
		}
		t[dir] = true
		links++
		if filepath.IsAbs(target) {
			dir = "/"
		}
		rest = target + "/" + rest
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	t[dir] = true
}
