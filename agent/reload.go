package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/atomicfile"
	"github.com/generic-dp/generic-dp/internal/watch"
)

// lastGoodName is the file in the state directory that keeps the text of the last
// configuration that was in order. One file, so that it is replaced in one step.
const lastGoodName = "last-good-config.json"

// keptFile is one file of the copy: text, so that it can be read in need.
type keptFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// source is where the configuration comes from and what it may ask for.
type source struct {
	path     string // file or directory
	stateDir string // where the last good copy is
	cdiDir   string
	allow    config.Allow
	cdiOnly  bool // see Options
	inPod    bool
}

// reading is one reading of the configuration on disk: it is in order, or err
// says what is wrong.
type reading struct {
	config    *config.Config
	files     []config.File
	err       error
	requested bool // by a person, who wants to hear of it whatever it is
}

// read reads the text of the configuration.
func (s source) read() ([]config.File, error) {
	files, err := config.Read(s.path)
	if err != nil {
		return nil, withHint(fmt.Errorf("--config: %w", err), "config", s.inPod)
	}
	return files, nil
}

// check is what every configuration has to pass before it is served, the last
// good one too: what was allowed to it may be so no longer.
func (s source) check(files []config.File) (*config.Config, error) {
	parse := config.Parse
	if s.cdiOnly {
		parse = config.ParseForCDI
	}
	cfg, err := parse(files...)
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(s.allow); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool { return r.Container.CDI }) {
		if err := writable("cdi-dir", s.cdiDir); err != nil {
			return nil, withHint(err, "cdi-dir", s.inPod)
		}
	}
	return cfg, nil
}

// load returns the configuration to serve from the start. If the one on disk is
// broken and a last good copy is kept, that is served in its place: a running node
// does not lose its devices to a typing error, not even over a restart.
func (s source) load() (cfg *config.Config, first reading, err error) {
	if first.files, first.err = s.read(); first.err == nil {
		first.config, first.err = s.check(first.files)
	}
	if first.err == nil {
		return first.config, first, nil
	}
	if kept, err := s.lastGood(); err == nil {
		return kept, first, nil
	}
	return nil, first, first.err
}

func (s source) lastGood() (*config.Config, error) {
	data, err := os.ReadFile(filepath.Join(s.stateDir, lastGoodName))
	if err != nil {
		return nil, err
	}
	var kept []keptFile
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, fmt.Errorf("%s: %w", lastGoodName, err)
	}
	files := make([]config.File, len(kept))
	for i, k := range kept {
		files[i] = config.File{Name: k.Name, Data: []byte(k.Text)}
	}
	return s.check(files)
}

// keep makes files the last good copy.
func (s source) keep(files []config.File) error {
	kept := make([]keptFile, len(files))
	for i, f := range files {
		kept[i] = keptFile{f.Name, string(f.Data)}
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.stateDir, 0o755); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(s.stateDir, lastGoodName), data, 0o600); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}

// configReader reads the configuration whenever it may have changed, and passes on
// what differs. Reading and checking are done here, so that a slow disk delays no
// device.
type configReader struct {
	source   source
	files    *watch.Watcher
	requests chan struct{} // capacity 1
	readings chan reading
	last     reading // what was passed on last
}

// newConfigReader makes one for what was read first.
func newConfigReader(s source, first reading, log *slog.Logger) *configReader {
	return &configReader{
		source: s, files: newFileWatch("configuration", func() []string { return configDirs(s.path) }, log),
		requests: make(chan struct{}, 1), readings: make(chan reading), last: first,
	}
}

// request has the configuration read at once.
func (r *configReader) request() { poke(r.requests) }

// run reads until ctx is cancelled.
func (r *configReader) run(ctx context.Context) error {
	var files sync.WaitGroup
	defer files.Wait()
	files.Go(func() { _ = r.files.Run(ctx) }) // always nil
	for {
		var next reading
		select {
		case <-ctx.Done():
			return nil
		case <-r.files.Changes():
		case <-r.requests:
			next.requested = true
		}
		next.files, next.err = r.source.read()
		if next.err == nil {
			if !next.requested && r.last.err == nil && slices.EqualFunc(next.files, r.last.files, sameFile) {
				continue
			}
			next.config, next.err = r.source.check(next.files)
		}
		if !next.requested && next.err != nil && r.last.err != nil && next.err.Error() == r.last.err.Error() {
			continue // broken in the same way
		}
		r.last = next
		select {
		case <-ctx.Done():
			return nil
		case r.readings <- next:
		}
	}
}

func sameFile(a, b config.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// loaded is what came of the configuration last.
type loaded struct {
	hash string    // of what is served
	at   time.Time // when that was loaded
	// generation counts what was served, from 1.
	generation int
	broken     error // why it is not what is on disk; nil where it is
}

// reload takes in a reading: one that is broken changes nothing but what is said
// about it, one that differs is served from now on.
func (l *loop) reload(r reading) {
	was := l.loaded.Load()
	now := *was
	now.broken = r.err
	l.metrics.CountLoad(r.err)
	path := l.options.Config
	switch {
	case r.err != nil:
		logBroken(l.log, path, r.err)
		l.events.add("", "", "the configuration on disk is broken")
	case r.config.Hash != was.hash:
		now.hash, now.at, now.generation = r.config.Hash, l.now(), was.generation+1
		l.config = r.config
		l.held.reset(now.at)
		l.watch()
		l.events.add("", "", "another configuration is served")
		l.log.Info("configuration loaded", "config", path, "resources", len(r.config.Resources), "hash", r.config.Hash)
	case was.broken != nil:
		l.log.Info("configuration is in order again and has not changed", "config", path, "hash", was.hash)
	default:
		l.log.Info("configuration has not changed", "config", path, "hash", was.hash)
	}
	l.loaded.Store(&now)
	if r.err == nil {
		l.memory.unkept = r.files
	}
}

// logBroken says every problem of a broken configuration on a line of its own,
// with its hint.
func logBroken(log *slog.Logger, path string, broken error) {
	log.Error("configuration is broken: the last good one is served", "config", path)
	var problems config.Problems
	if !errors.As(broken, &problems) {
		log.Error("configuration problem", "config", path, "problem", strings.ReplaceAll(broken.Error(), "\n", "; "))
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

// symlinkDirs are the directories in which a change can make something else of a
// path: the one that it is in, and each that has a link on the way there. In a
// mounted ConfigMap "config.toml" is a link to "..data/config.toml", and "..data"
// one to a directory that is replaced by the next (k8s.io/kubernetes,
// pkg/volume/util, AtomicWriter).
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

// add adds the directories of one path. What is not there is a directory
// that may come.
func (t symlinkDirs) add(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // no working directory
	}
	dir, rest := "/", strings.TrimPrefix(path, "/")
	for links := 0; rest != "" && links <= maxLinks; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." {
			continue
		}
		here := filepath.Join(dir, name)
		info, err := os.Lstat(here)
		switch {
		case err != nil:
			t[filepath.Dir(filepath.Join(here, rest))] = true
			return
		case info.Mode()&fs.ModeSymlink != 0:
			t[dir] = true
			links++
			target, err := os.Readlink(here)
			if err != nil {
				return // it is gone, and dir tells what comes
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = target + "/" + rest
		case info.IsDir():
			dir = here
		default:
			t[dir] = true // a file
			return
		}
	}
	t[dir] = true
}
