package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
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
	unpacked string       // directory of a recording that replaces the host
	piped    *config.File // the configuration from standard input, once it is read
}

func newFlags() *flags {
	f := &flags{all: pflag.NewFlagSet("", pflag.ContinueOnError), paths: agent.DefaultPaths(), format: "text", level: "info"}
	path := func(p *string, name, usage string) { f.all.StringVar(p, name, *p, usage) }
	f.all.StringVar(&f.config, "config", "/etc/generic-dp", "configuration: a TOML file, or a directory of *.toml files read as one")
	path(&f.paths.Sysfs, "sysfs", "sysfs of the host, or a recording made by snapshot")
	path(&f.paths.Cgroup, "cgroup", "cgroup tree of the host, which shows whether a pod still runs; empty for none")
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

// load loads and validates the configuration at path as serve does; "-" is standard input.
func (f *flags) load(path string) (*config.Config, error) {
	var cfg *config.Config
	var err error
	if path == "-" {
		cfg, err = f.parsePiped()
	} else if cfg, err = config.Load(path); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w\n  hint: --config names another file or directory; generic-dp init writes one", err)
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(f.allow); err != nil {
		return nil, err
	}
	return cfg, nil
}

// parsePiped parses standard input, which can be read only once.
func (f *flags) parsePiped() (*config.Config, error) {
	if f.piped == nil {
		name, text, err := readInput("-")
		if err != nil {
			return nil, err
		}
		f.piped = &config.File{Name: name, Data: text}
	}
	return config.Parse(*f.piped)
}

// maxInput is the size limit of an input, in bytes.
const maxInput = 16 << 20

// readInput reads a file, or standard input for "-", and names it for messages.
func readInput(path string) (name string, text []byte, err error) {
	name, file := "standard input", os.Stdin
	if path != "-" {
		name = path
		if file, err = os.Open(path); err != nil {
			return name, nil, err
		}
		defer file.Close()
	}
	if text, err = io.ReadAll(io.LimitReader(file, maxInput)); err != nil {
		err = fmt.Errorf("read %s: %w", name, err)
	}
	return name, text, err
}

// scanConfig scans the host and matches --config. If that is optional, an empty
// configuration takes the place of a default that is missing or broken.
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
	view, err := f.scan(cmd.Context(), cfg)
	return cfg, view, err
}

// scan scans the host once and matches a configuration. It uses the identity decisions
// of a serving instance if readable, so that both show the same IDs.
func (f *flags) scan(ctx context.Context, cfg *config.Config) (*agent.View, error) {
	return agent.Scan(ctx, cfg, f.options(io.Discard))
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

// word is the value of a flag that has one of some words.
type word struct {
	value *string
	words []string
}

func (w word) Set(text string) error {
	if text = strings.ToLower(text); !slices.Contains(w.words, text) { // log/slog writes levels in capitals
		return errors.New("want " + orList(w.words))
	}
	*w.value = text
	return nil
}

func (w word) String() string { return *w.value }

func (word) Type() string { return "string" }

// orList is "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// outputFlag adds -o to a command. The first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *string {
	format := formats[0]
	cmd.Flags().VarP(word{&format, formats}, "output", "o", orList(formats))
	return &format
}

// complete completes the values of the flags that are words, of a command and those
// below it.
func complete(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if w, ok := flag.Value.(word); ok {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(w.words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// completeResources completes the names of resources, without their domain. Names with
// variables are left out: they depend on hardware.
func (f *flags) completeResources(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	for _, r := range cfg.Resources {
		if _, name, _ := strings.Cut(r.Name, "/"); len(r.NameText) == 0 {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
