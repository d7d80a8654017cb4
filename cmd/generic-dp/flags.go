package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/catalog"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

// flags holds the flags of all commands and their values.
type flags struct {
	all      *pflag.FlagSet
	config   string
	paths    agent.Paths
	nodeName string
	allow    config.Allow
	listen   string
	format   string
	level    string
	hwdata   []string
	unpacked string // directory of a recording that replaces the host
	stdin    io.Reader
	piped    *config.File // the configuration from standard input, once it is read
}

func newFlags() *flags {
	f := &flags{all: pflag.NewFlagSet("", pflag.ContinueOnError), paths: agent.DefaultPaths(), format: "text", level: "info"}
	path := func(p *string, name, usage string) { f.all.StringVar(p, name, *p, usage) }
	f.all.StringVar(&f.config, "config", "/etc/generic-dp", "configuration: a TOML file, or a directory of *.toml files read as one")
	path(&f.paths.Sysfs, "sysfs", "sysfs of the host, or a recording made by snapshot")
	path(&f.paths.Dev, "dev", "/dev of the host")
	path(&f.paths.StateDir, "state-dir", "state that survives restarts: identity decisions, the last good configuration")
	path(&f.paths.KubeletDir, "kubelet-dir", "the kubelet's device plugin directory, with its sockets")
	path(&f.paths.Registry, "plugins-registry", "the kubelet's directory of plugin registration sockets, for api = \"dra\"")
	path(&f.paths.PodResources, "pod-resources", "socket of the kubelet's PodResources API, which reports the holders of devices")
	path(&f.paths.RunDir, "run-dir", "links that follow devices; in a pod, mounted from the host at the same path")
	path(&f.paths.CDIDir, "cdi-dir", "directory for CDI specs")
	path(&f.paths.DeviceInfoDir, "device-info-dir", "files for Multus with the PCI addresses of network functions: /var/run/k8s.cni.cncf.io/devinfo/dp (default none)")
	path(&f.paths.NFDDir, "nfd-dir", "features.d of Node Feature Discovery, for labels with the number of healthy devices by resource (default none)")
	f.all.StringVar(&f.listen, "listen", "127.0.0.1:9418", "address of the status page, /metrics, /healthz and /readyz; empty for none")
	f.all.Var(allowValue{&f.allow}, "allow", "privileges of the configuration: a list of hooks, dangerous, net, env, mount:/prefix, cdi:KIND, or all (default none)")
	f.all.Var((*domains)(&f.allow.Domains), "domains", "domains that the configuration may use in names of resources: a list (default any)")
	f.all.StringVar(&f.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node, for ${node_name} and api = \"dra\" (default $NODE_NAME)")
	f.all.Var(word{&f.format, []string{"text", "json"}}, "log-format", "text or json")
	f.all.Var(word{&f.level, []string{"debug", "info", "warn", "error"}}, "log-level", "debug, info, warn or error")
	f.all.StringSliceVar(&f.hwdata, "hwdata", catalog.Dirs, "directories of pci.ids and usb.ids, for names of hardware")
	return f
}

// pick returns some of the flags, for a command to add.
func (f *flags) pick(names ...string) *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range names {
		set.AddFlag(f.all.Lookup(name))
	}
	return set
}

// load loads the configuration at path and validates it like serve does.
func (f *flags) load(path string) (*config.Config, error) {
	cfg, err := f.parse(path)
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(f.allow); err != nil {
		return nil, err
	}
	return cfg, nil
}

// parse loads the configuration at path; "-" is standard input.
func (f *flags) parse(path string) (*config.Config, error) {
	if path != "-" {
		cfg, err := config.Load(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w\n  hint: --config names another file or directory; generic-dp init writes one", err)
		}
		return cfg, err
	}
	if f.piped == nil {
		text, err := io.ReadAll(io.LimitReader(f.stdin, maxImport))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		f.piped = &config.File{Name: "standard input", Data: text}
	}
	return config.Parse(*f.piped)
}

// scanConfig is scan of --config, or if optional of an empty configuration where the
// default is missing or broken.
func (f *flags) scanConfig(cmd *cobra.Command, optional bool) (*config.Config, *agent.View, error) {
	cfg, err := f.load(f.config)
	if err != nil {
		if !optional || cmd.Flags().Changed("config") {
			return nil, nil, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: without the configuration: %v\n", err)
		}
		cfg = &config.Config{}
	}
	view, err := f.view(cmd.Context(), cfg)
	return cfg, view, err
}

// options returns the options of an agent that logs to w.
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

func (f *flags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // one of its words
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// allowValue is the value of --allow. Repeated flags add up.
type allowValue struct{ *config.Allow }

func (allowValue) Type() string { return "list" }

// domains is the value of --domains. Repeated flags add up.
type domains []string

func (d *domains) Set(text string) error {
	for domain := range strings.SplitSeq(text, ",") {
		*d = append(*d, strings.TrimSpace(domain))
	}
	return nil
}

func (d *domains) String() string { return strings.Join(*d, ",") }

func (*domains) Type() string { return "list" }
