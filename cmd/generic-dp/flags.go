package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/agent"
)

// flags are the flags of all subcommands; each registers those it heeds.
type flags struct {
	config    string
	paths     agent.Paths
	nodeName  string
	listen    string
	logFormat string
	logLevel  slog.Level
	unpacked  string // directory of a recording in place of the host
}

// register adds the flags that every subcommand has.
func (f *flags) register(set *pflag.FlagSet) {
	defaults := agent.DefaultPaths()
	set.StringVar(&f.config, "config", "/etc/generic-dp", "configuration: a TOML file, or a directory of *.toml files read as one")
	set.StringVar(&f.paths.Sysfs, "sysfs", defaults.Sysfs, "the host's /sys, or a file that snapshot wrote: then its /dev too")
	set.StringVar(&f.paths.Dev, "dev", defaults.Dev, "the host's /dev")
	set.StringVar(&f.paths.StateDir, "state-dir", defaults.StateDir, "what outlives a restart: identity decisions, the last good configuration")
	set.StringVar(&f.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node, for ${node_name} (default $NODE_NAME)")
	set.StringVar(&f.logFormat, "log-format", "text", "text or json")
	set.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

// registerServe adds those of serving.
func (f *flags) registerServe(set *pflag.FlagSet) {
	f.registerWritten(set)
	defaults := agent.DefaultPaths()
	set.StringVar(&f.paths.PodResources, "pod-resources", defaults.PodResources, "socket of the kubelet's PodResources API: says which devices are held")
	set.StringVar(&f.listen, "listen", "127.0.0.1:9418", "address of /metrics, /healthz and /readyz; empty for none")
}

// registerWritten adds the directories that serving writes to.
func (f *flags) registerWritten(set *pflag.FlagSet) {
	defaults := agent.DefaultPaths()
	set.StringVar(&f.paths.KubeletDir, "kubelet-dir", defaults.KubeletDir, "the kubelet's device plugin directory, where the sockets are")
	set.StringVar(&f.paths.RunDir, "run-dir", defaults.RunDir, "links that follow devices; in a pod mounted from the host at the same path")
	set.StringVar(&f.paths.CDIDir, "cdi-dir", defaults.CDIDir, "where CDI specs are written")
}

// logger writes to w as --log-format and --log-level say.
func (f *flags) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: f.logLevel}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is not understood: want text or json", f.logFormat)
}

// options for the agent, from the flags.
func (f *flags) options(log *slog.Logger) agent.Options {
	return agent.Options{
		Config:   f.config,
		Paths:    f.paths,
		NodeName: f.nodeName,
		Listen:   f.listen,
		Version:  version,
		Log:      log,
	}
}

func newServe(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "offer the devices to the kubelet until stopped (the default)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			log, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return usageError{err, "serve "}
			}
			a, err := agent.New(f.options(log))
			if err != nil {
				return err
			}
			go slim(cmd.Context(), a.Settled())
			return a.Run(cmd.Context())
		},
	}
	f.registerServe(cmd.Flags())
	return cmd
}

// slim keeps the memory of a process small that does nothing nearly always:
// what starting took is given back once everything is served, and the heap of
// some 2 MB is collected at half the usual growth, at next to no cost.
func slim(ctx context.Context, started <-chan struct{}) {
	debug.SetGCPercent(50)
	select {
	case <-started:
	case <-ctx.Done():
		return
	}
	served := time.NewTimer(time.Second) // registration must not wait for this
	defer served.Stop()
	select {
	case <-served.C:
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
}
