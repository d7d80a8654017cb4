package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
)

// flags are the flags of all subcommands; each registers those it heeds.
type flags struct {
	config    string
	paths     agent.Paths
	nodeName  string
	allow     config.Allow
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

// registerAllow adds that of the commands that read a configuration as serve does.
func (f *flags) registerAllow(set *pflag.FlagSet) {
	set.Var(&allowValue{&f.allow}, "allow", "what the configuration may ask for: a list of hooks, dangerous, mount:/prefix (default nothing)")
}

// registerServe adds those of serving.
func (f *flags) registerServe(set *pflag.FlagSet) {
	f.registerCDI(set)
	f.registerKubelet(set)
	set.StringVar(&f.paths.PodResources, "pod-resources", agent.DefaultPaths().PodResources, "socket of the kubelet's PodResources API: says which devices are held")
}

// registerCDI adds those of keeping CDI specs current, with or without a kubelet.
func (f *flags) registerCDI(set *pflag.FlagSet) {
	f.registerWritten(set)
	f.registerAllow(set)
	f.registerListen(set, "address of the status page, /metrics, /healthz and /readyz; empty for none")
}

func (f *flags) registerListen(set *pflag.FlagSet, usage string) {
	set.StringVar(&f.listen, "listen", "127.0.0.1:9418", usage)
}

func (f *flags) registerKubelet(set *pflag.FlagSet) {
	set.StringVar(&f.paths.KubeletDir, "kubelet-dir", agent.DefaultPaths().KubeletDir, "the kubelet's device plugin directory, where the sockets are")
}

// registerWritten adds the directories that are written to whoever starts the
// containers.
func (f *flags) registerWritten(set *pflag.FlagSet) {
	defaults := agent.DefaultPaths()
	set.StringVar(&f.paths.RunDir, "run-dir", defaults.RunDir, "links that follow devices; in a pod mounted from the host at the same path")
	set.StringVar(&f.paths.CDIDir, "cdi-dir", defaults.CDIDir, "where CDI specs are written")
}

// load reads the configuration at path and checks all of it as serving does.
func (f *flags) load(path string) (*config.Config, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(f.allow); err != nil {
		return nil, err
	}
	return cfg, nil
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
		Allow:    f.allow,
		Paths:    f.paths,
		NodeName: f.nodeName,
		Listen:   f.listen,
		Version:  version,
		InPod:    os.Getenv("KUBERNETES_SERVICE_HOST") != "",
		Log:      log,
	}
}

// allowValue is --allow. Given several times, all counts.
type allowValue struct{ *config.Allow }

func (v allowValue) Set(text string) error {
	more, err := config.ParseAllow(text)
	if err != nil {
		return err
	}
	v.Hooks, v.Dangerous = v.Hooks || more.Hooks, v.Dangerous || more.Dangerous
	v.Mounts = append(v.Mounts, more.Mounts...)
	return nil
}

func (allowValue) Type() string { return "list" }
