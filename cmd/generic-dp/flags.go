package main

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// flags holds the flags of all commands and their values. A command gets the flags that it uses
// with add. The zero value is not usable: newFlags sets the defaults.
type flags struct {
	// all contains every flag that more than one command has. The flag sets of commands share the
	// *pflag.Flag values with it, so Changed is true in both after parsing.
	all *pflag.FlagSet
	// config is the path of the configuration: a file, a directory, a manifest, or "-".
	config string
	// paths are the paths of the host. unpack replaces some of them by paths of a recording.
	paths agent.Paths
	// nodeName is empty if neither --node-name nor NODE_NAME is set.
	nodeName string
	// allow contains the permissions of --allow and the domains of --domains. The zero value
	// permits nothing that needs a permission, and every domain.
	allow config.Allow
	// listen is HOST:PORT. It is empty if nothing listens.
	listen string
	// format and level describe the log. Both only have values that the flags accept.
	format string
	level  string
	// hwdata are directories that may contain pci.ids and usb.ids. The first file found is used.
	hwdata []string
	// unpacked is the directory of a recording that replaces the host. It is empty if there is
	// no recording.
	unpacked string
	// temporary points to unpacked. temporaryDir reads it while an abandoned command may still write
	// the other fields.
	temporary atomic.Pointer[string]
}

// newFlags returns the flags with their defaults. The names, defaults and usage texts also are
// the documentation in docs/reference.md, which a test compares.
func newFlags() *flags {
	f := &flags{
		all:    pflag.NewFlagSet("", pflag.ContinueOnError),
		paths:  agent.DefaultPaths(),
		format: "text",
		level:  "info",
	}
	f.addPaths()
	f.listen = "127.0.0.1:9418"
	f.all.Var((*address)(&f.listen), "listen",
		"address of the status page, /metrics, /healthz and /readyz; empty for none")
	f.all.Var(allowValue{&f.allow}, "allow",
		"privileges of the configuration: a list of hooks, dangerous, net, env, mount:/prefix, cdi:KIND, or all; empty for none")
	f.all.Var((*domains)(&f.allow.Domains), "domains",
		"domains that the configuration may use in names of resources: a list; any if this is not set")
	// The manifest of the DaemonSet sets NODE_NAME from spec.nodeName, so that it needs no flag.
	f.all.StringVar(&f.nodeName, "node-name", os.Getenv("NODE_NAME"),
		"name of this node, for ${node_name} and api = \"dra\" (default $NODE_NAME)")
	format := cli.Word{
		Value: &f.format,
		Words: []string{"text", "json"},
	}
	f.all.Var(format, "log-format", cli.OrList(format.Words))
	level := cli.Word{
		Value: &f.level,
		Words: []string{"debug", "info", "warn", "error"},
	}
	f.all.Var(level, "log-level", cli.OrList(level.Words))
	f.all.StringSliceVar(&f.hwdata, "hwdata", catalog.Dirs,
		"directories of pci.ids and usb.ids, for names of hardware")
	return f
}

// temporaryDir returns the directory of an unpacked recording, empty without one. It is safe while
// a command runs.
func (f *flags) temporaryDir() string {
	if unpacked := f.temporary.Load(); unpacked != nil {
		return *unpacked
	}
	return ""
}

// addPaths adds the flags that name files and directories. The current values of f.paths are
// their defaults.
func (f *flags) addPaths() {
	path := func(value *string, name, usage string) {
		f.all.StringVar(value, name, *value, usage)
	}
	required := func(value *string, name, usage string) {
		f.all.Var((*requiredPath)(value), name, usage)
	}
	f.config = "/etc/generic-dp"
	required(&f.config, "config", "configuration: a TOML file, or a directory of *.toml files read as one")
	required(&f.paths.Sysfs, "sysfs", "sysfs of the host, or a recording made by snapshot")
	path(&f.paths.Cgroup, "cgroup", "cgroup tree of the host, which shows whether a pod still runs; empty for none")
	required(&f.paths.Dev, "dev", "/dev of the host")
	required(&f.paths.StateDir, "state-dir", "state that survives restarts: identity decisions, the last good configuration")
	required(&f.paths.KubeletDir, "kubelet-dir", "the kubelet's device plugin directory, with its sockets")
	path(&f.paths.Registry, "plugins-registry", "the kubelet's directory of plugin registration sockets, for api = \"dra\"")
	path(&f.paths.PodResources, "pod-resources", "socket of the kubelet's PodResources API, which reports the holders of devices")
	required(&f.paths.RunDir, "run-dir", "links that follow devices; in a pod, mounted from the host at the same path")
	path(&f.paths.CDIDir, "cdi-dir", "directory for CDI specs")
	path(&f.paths.DeviceInfoDir, "device-info-dir",
		"files for Multus with the PCI addresses of network functions: /var/run/k8s.cni.cncf.io/devinfo/dp; empty for none")
	path(&f.paths.NFDDir, "nfd-dir",
		"features.d of Node Feature Discovery, for labels with the number of healthy devices by resource; empty for none")
}

// The flags that several commands use together.
var (
	// hostFlags say where a command scans the host. The state has the identity decisions, which
	// IDs depend on.
	hostFlags = []string{"sysfs", "dev", "state-dir"}
	// configFlags say which configuration a command reads, and with which permissions.
	configFlags = []string{"config", "node-name", "allow", "domains"}
	// logFlags say how a command writes its log.
	logFlags = []string{"log-format", "log-level"}
)

// add adds flags to a command. A command only has the flags that it uses: a flag without effect
// is a mistake that should be reported. A name that newFlags does not define is a bug and panics.
func (f *flags) add(cmd *cobra.Command, groups ...[]string) {
	names := slices.Concat(groups...)
	cmd.Flags().AddFlagSet(f.pick(names...))
}

// pick returns a set of some of the flags. The flags themselves are shared, not copied.
func (f *flags) pick(names ...string) *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range names {
		set.AddFlag(f.all.Lookup(name))
	}
	return set
}

// variableOf returns the environment variable that replaces the default of a flag, such as
// GENERIC_DP_STATE_DIR for --state-dir.
func variableOf(flag string) string {
	return "GENERIC_DP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment replaces the defaults of a command's flags by the values of their environment
// variables. A flag on the command line wins. The variables describe the host to every command, so
// the flags count as not given: they are no request for a file that must exist. Flags of a single
// command have no variable, since a process that another one starts must not inherit them.
func (f *flags) readEnvironment(cmd *cobra.Command) error {
	var problem error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		isShared := f.all.Lookup(flag.Name) == flag
		if !isShared || flag.Changed || problem != nil {
			return
		}
		variable := variableOf(flag.Name)
		value, isSet := os.LookupEnv(variable)
		if !isSet {
			return
		}
		err := flag.Value.Set(value)
		if err != nil {
			problem = cli.Usagef("%s=%q: %w", variable, value, err)
		}
	})
	return problem
}

// requiredPath is the value of a flag without which nothing works.
type requiredPath string

// Set rejects an empty path.
func (p *requiredPath) Set(text string) error {
	if text == "" {
		return errors.New("must not be empty")
	}
	*p = requiredPath(text)
	return nil
}

func (p *requiredPath) String() string { return string(*p) }

func (*requiredPath) Type() string { return "string" }

// allowValue is the value of --allow. Repeated flags add privileges.
type allowValue struct{ *config.Allow }

// String returns the default.
func (allowValue) String() string { return "" }

func (allowValue) Type() string { return "list" }

// domains is the value of --domains. Repeated flags add domains.
type domains []string

// Set adds the domains of a list, separated by commas. An empty list permits no domain.
func (d *domains) Set(text string) error {
	for domain := range strings.SplitSeq(text, ",") {
		*d = append(*d, strings.TrimSpace(domain))
	}
	return nil
}

func (d *domains) String() string { return strings.Join(*d, ",") }

func (*domains) Type() string { return "list" }

// address is the value of a flag that accepts HOST:PORT, or an empty text for none. HOST may be
// empty.
type address string

// Set rejects everything that net.Listen would not accept as an address. It does not look up the
// host or the name of a port.
func (a *address) Set(text string) error {
	_, _, err := net.SplitHostPort(text)
	if text != "" && err != nil {
		return errors.New("want HOST:PORT, such as 127.0.0.1:9418")
	}
	*a = address(text)
	return nil
}

func (a *address) String() string { return string(*a) }

func (*address) Type() string { return "string" }

// complete completes the only argument of a command by some names. The shell also completes files, such
// as devices below /dev.
func complete(names ...func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []string
		for _, list := range names {
			all = append(all, list(cmd)...)
		}
		return all, cobra.ShellCompDirectiveDefault
	}
}

// resourceNames are the names of resources without their domain. It leaves out names with variables,
// because their values depend on hardware. There are none without a valid configuration.
func (f *flags) resourceNames(*cobra.Command) []string {
	cfg, err := read(f.config)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range cfg.Resources {
		if len(r.NameText) == 0 {
			_, name, _ := strings.Cut(r.Name, "/")
			names = append(names, name)
		}
	}
	return names
}

// hardwareNames are the names of hardware, such as USB ports and PCI addresses.
func (f *flags) hardwareNames(cmd *cobra.Command) []string {
	view, err := f.scan(cmd.Context(), &config.Config{})
	if err != nil {
		return nil
	}
	var names []string
	for _, h := range view.Snapshot.Hardware {
		names = append(names, h.Name)
	}
	return names
}
