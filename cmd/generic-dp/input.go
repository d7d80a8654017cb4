package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// load loads and validates the configuration at a path in the same way as serve. The path "-" is
// standard input. A manifest that contains a configuration is accepted as well. The error is
// config.Problems if the configuration is invalid or needs a permission that --allow does not give, and
// wraps fs.ErrNotExist if there is no such file.
func (f *flags) load(path string) (*config.Config, error) {
	cfg, err := read(path)
	// An argument of check names its own file.
	if path == f.config && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\n  hint: --config names another file or directory; generic-dp init writes one", err)
	}
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Check(f.allow)
}

// read reads and parses the configuration at a path. It does not check the permissions of --allow.
// Several configurations in a manifest are an error: they could not be served as one.
func read(path string) (*config.Config, error) {
	found, ignored, err := manifest.Read(path)
	if err != nil {
		return nil, err
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%s: contains several configurations, in the lines %d and %d: want one", path, found[0].Line, found[1].Line)
	}
	cfg, err := config.Parse(found[0].Files...)
	if err != nil {
		return nil, err
	}
	cfg.Notes = append(ignored, cfg.Notes...)
	return cfg, nil
}

// optional returns a configuration that load has read. An empty one replaces a default that is missing or
// broken, for commands that are useful without one. A configuration that --config names must be valid.
func (f *flags) optional(cmd *cobra.Command, cfg *config.Config, err error) (*config.Config, error) {
	if err == nil || cmd.Flags().Changed("config") {
		return cfg, err
	}
	// A missing default is normal before the first use, so it needs no warning.
	if !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the configuration is ignored: %v\n", err)
	}
	return &config.Config{}, nil
}

// scanConfig scans the host and matches it with --config. isOptional is set for commands that are useful
// without a configuration.
func (f *flags) scanConfig(cmd *cobra.Command, isOptional bool) (*config.Config, *agent.View, error) {
	cfg, err := f.load(f.config)
	if isOptional {
		cfg, err = f.optional(cmd, cfg, err)
	}
	if err != nil {
		return nil, nil, err
	}
	view, err := f.scan(cmd.Context(), cfg)
	return cfg, view, err
}

// scan scans the host once and matches a configuration. It reads the identity decisions of a
// serving instance if they are readable, so that both show the same IDs. It writes nothing, needs
// no kubelet, and takes up to two seconds while devices that have just appeared cannot be read.
// The view has the problems of single devices; an error means that the host cannot be scanned at
// all.
func (f *flags) scan(ctx context.Context, cfg *config.Config) (*agent.View, error) {
	return agent.Scan(ctx, cfg, f.options(io.Discard))
}

// options returns the options of an agent that writes its log to w. The paths are the paths of a
// recording if unpack has replaced them.
func (f *flags) options(w io.Writer) agent.Options {
	return agent.Options{
		Config:   f.config,
		Allow:    f.allow,
		Paths:    f.paths,
		NodeName: f.nodeName,
		Listen:   f.listen,
		KubeAPI:  kubeapi.InCluster(),
		Version:  version,
		InPod:    os.Getenv("KUBERNETES_SERVICE_HOST") != "",
		Log:      f.logger(w),
	}
}

// logger returns a logger in the format and with the level that the flags name. Commands without
// these flags get the defaults: text and info.
func (f *flags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // the flag only accepts words that are levels
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
