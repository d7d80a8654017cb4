package agent

import (
	"log/slog"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
)

// newReader returns the reader of the configuration, and what to serve at the start. owns is
// set if this instance holds the lock: then it may write the last good configuration. It is an
// error if there is neither a valid configuration nor a last good one.
func newReader(o Options, owns bool) (*configuration.Reader, configuration.Reading, error) {
	return configuration.New(configuration.Options{
		Path:     o.Config,
		Text:     o.ConfigText,
		StateDir: o.Paths.StateDir,
		Owns:     owns,
		Check:    o.checkConfig,
		Hint:     hints["config"],
		Log:      o.Log,
	})
}

// configName is the name of the configuration in the log and on the status page.
func (o Options) configName() string {
	if len(o.ConfigText) > 0 {
		return "(text)"
	}
	return o.Config
}

// checkConfig parses and checks a configuration, with the permissions of --allow. Without a kubelet
// other keys are allowed. It is called at the start and by the goroutine of the reader.
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

// reload handles a reading of the configuration. A broken configuration is reported. A
// different one is served from now on, as a whole: the next reconcile switches to it, and resources
// that did not change keep their sockets and streams.
func (l *loop) reload(r configuration.Reading) {
	was := l.page.config.Load()
	// The status page may be reading the former value, so a copy is changed.
	now := *was
	now.Broken = r.Err
	now.Problems = split(r.Err)
	l.page.metrics.CountLoad(r.Err)
	log := l.log.With("config", now.Path)
	if r.Err != nil {
		logBroken(l.log, now.Path, r.Err)
		l.page.events.add("", "", "the configuration on disk is broken")
	}
	switch {
	case r.Config == nil: // what is served stays
	case r.Config.Hash != was.Hash:
		now.Hash = r.Config.Hash
		now.Loaded = l.now()
		now.Generation = was.Generation + 1
		l.config = r.Config
		// Other patterns may refer to other directories.
		l.watch()
		l.page.events.add("", "", "another configuration is served")
		log.Info("configuration loaded", "resources", len(r.Config.Resources), "hash", now.Hash)
	// The edit that broke it was undone.
	case was.Broken != nil:
		log.Info("configuration is valid again and unchanged", "hash", now.Hash)
	default:
		log.Info("configuration has not changed", "hash", now.Hash)
	}
	// The page shows the new hash before the lists: the next reconcile changes them.
	l.page.config.Store(&now)
	l.trial.Serve(r)
}

// logBroken logs every problem of a broken configuration on a separate line.
func logBroken(log *slog.Logger, path string, broken error) {
	log.Error("configuration is broken: the last good one is served, if there is one", "config", path)
	for _, problem := range split(broken) {
		log.Error("configuration problem", "config", path, "problem", problem)
	}
}
