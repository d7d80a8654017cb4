// Package plugin is kubectl generic-dp: questions about all nodes of a cluster, and what an
// administrator needs from generic-dp away from a node. Each command has a file with its name, and
// find, why and snapshot are in plugin.go.
package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/fleet"
)

// fleetFlags are the flags of all commands that ask a cluster.
type fleetFlags struct {
	// kubectl is the program and its first arguments, separated by spaces.
	kubectl string
	// kubeconfig and context are passed on to kubectl, which has its own defaults. Empty means that
	// kubectl decides.
	kubeconfig string
	context    string
	// namespace is the namespace of the DaemonSet, or of the pod for why. Empty means all
	// namespaces.
	namespace string
	selector  string
	parallel  int
	// timeout is the time for one node, not for the command.
	timeout time.Duration
}

// Run is the whole plugin, see cli.Program.Run. It runs on Linux, macOS and Windows.
func Run(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	return cli.Program{Root: NewRoot(version)}.Run(ctx, args, stdout, stderr)
}

// NewRoot returns the root command with all commands.
func NewRoot(version string) *cobra.Command {
	o := &fleetFlags{}
	root := &cobra.Command{
		Use:         "generic-dp",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl generic-dp"},
		Short:       "devices of all nodes of a cluster, through kubectl",
		Long: `kubectl generic-dp shows the devices of all nodes, finds a device, explains why a
pod does not get one, and shows what an edit of the configuration would change.

Every request is a call of your kubectl: it gets objects, and runs commands in
the pods of the DaemonSet with kubectl exec. Nodes are asked in parallel. A node
that does not answer is listed with the reason. import, schema and classes only
read files.`,
		Version: version,
	}
	cli.Setup(root)
	root.AddCommand(
		o.asks(newStatus(o)),
		o.asks(newFind(o)),
		o.asks(newWhy(o)),
		o.asks(newDiff(o)),
		o.asks(newSnapshot(o)),
		newImport(),
		newClasses(),
		newSchema(),
	)
	return root
}

// asks adds the flags that say which cluster a command asks.
func (o *fleetFlags) asks(cmd *cobra.Command) *cobra.Command {
	set := cmd.Flags()
	set.StringVar(&o.kubectl, "kubectl", "kubectl", `kubectl to run, such as "k3s kubectl"`)
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file, for kubectl")
	set.StringVar(&o.context, "context", "", "context of the kubeconfig, for kubectl")
	set.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the DaemonSet (default all); for why, of the pod")
	set.StringVarP(&o.selector, "selector", "l", fleet.DefaultSelector, "label of the DaemonSet's pods")
	set.IntVar(&o.parallel, "parallel", 16, "number of nodes that are asked at the same time")
	set.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long a node may take to answer")
	return cmd
}

// open returns the cluster that the flags select. It runs nothing yet. The error is about the
// flags.
func (o *fleetFlags) open() (*fleet.Fleet, error) {
	// No shell is involved: a path with a space cannot be given.
	command := strings.Fields(o.kubectl)
	switch {
	case len(command) == 0:
		return nil, cli.Usagef("--kubectl: want a program")
	case o.parallel < 1:
		return nil, cli.Usagef("--parallel: want 1 or more")
	case o.timeout <= 0:
		return nil, cli.Usagef("--timeout: want a duration such as 10s")
	}
	kubectl := fleet.Program{Command: command}
	if o.kubeconfig != "" {
		kubectl.Flags = append(kubectl.Flags, "--kubeconfig="+o.kubeconfig)
	}
	if o.context != "" {
		kubectl.Flags = append(kubectl.Flags, "--context="+o.context)
	}
	return &fleet.Fleet{
		Kubectl:   kubectl,
		Namespace: o.namespace,
		Selector:  o.selector,
		Parallel:  o.parallel,
		Timeout:   o.timeout,
	}, nil
}

// newFind returns the command find.
func newFind(o *fleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find TEXT",
		Short: "find a device by serial number, USB or PCI ID, name, device ID or path",
		Long: `find lists the devices of all nodes whose serial number, USB or PCI ID, name,
device ID, node or network interface contains TEXT, whatever the letter case:
devices of resources with their holders, and hardware that no resource has.
The exit status is 1 if nothing is found.`,
		Args: cli.WantArgs(1, 1, "want one TEXT"),
	}
	return cli.Reports(cmd, func(cmd *cobra.Command, args []string) (cli.Reporter, error) {
		cluster, err := o.open()
		if err != nil {
			return nil, err
		}
		found, err := cluster.Find(cmd.Context(), args[0])
		if err != nil {
			return nil, err
		}
		// The report is printed all the same.
		if len(found.Found) == 0 {
			err = cli.ErrReported
		}
		return findReport{found}, err
	}, "wide", "json")
}

// findReport is the output of find.
type findReport struct{ *fleet.FindReport }

// Table writes the nodes that have not answered first: the device may be on one of them.
func (r findReport) Table(w io.Writer, wide bool) error {
	t := cli.NewTable(wide, "NODE", "RESOURCE", "HEALTH", "HELD BY")
	for _, n := range r.Nodes {
		t.Add([]string{n.Node, "?"}, n.Problems...)
	}
	for _, d := range r.Found {
		cells := []string{d.Node, cmp.Or(d.Resource, "no resource has it"), d.Health, podsOf(d.Held, wide)}
		t.Add(cells, d.ID, d.Reason, describeHardware(d))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if len(r.Found) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "no device with %q on the nodes that answered\n", r.Text)
	return err
}

// describeHardware is the hardware of a device in a line. An absent device has no hardware.
func describeHardware(d fleet.Found) string {
	h := d.Device
	if h == nil {
		return "the device is absent"
	}
	words := []string{h.Name, h.Kind, h.ID, h.FullName()}
	if h.Serial != "" {
		words = append(words, "serial "+h.Serial)
	}
	words = append(words, h.Nodes...)
	words = append(words, h.Interfaces...)
	return strings.Join(words, " ")
}

// newWhy returns the command why. Its exit status does not depend on the reasons.
func newWhy(o *fleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "explain why a pod does not start, or has lost its device, and what to do",
		Long: `why reads a pod, its claims, the nodes and the holders of its devices. It lists the
reasons why the pod does not get its device or has lost it, in the order in which
a pod meets them, and what to do. The events of the pod, which kubectl describe
shows, are not repeated. POD is a name in the namespace of -n or of kubectl's
context, or NAMESPACE/NAME.`,
		Args: cli.WantArgs(1, 1, "want one POD"),
	}
	return cli.Reports(cmd, func(cmd *cobra.Command, args []string) (cli.Reporter, error) {
		cluster, err := o.open()
		if err != nil {
			return nil, err
		}
		// The flag names the namespace of the pod. The DaemonSet is searched in all namespaces.
		cluster.Namespace = ""
		namespace := o.namespace
		// Other commands print pods in this form, for example kubectl get -o name.
		name := strings.TrimPrefix(args[0], "pod/")
		// This form precedes the flag: users copy it from other reports.
		if before, after, hasNamespace := strings.Cut(name, "/"); hasNamespace {
			namespace = before
			name = after
		}
		report, err := cluster.Why(cmd.Context(), namespace, name)
		if err != nil {
			return nil, err
		}
		return whyReport{report}, nil
	}, "json")
}

// whyReport is the output of why.
type whyReport struct{ *fleet.WhyReport }

// Table implements cli.Reporter.
func (r whyReport) Table(w io.Writer, _ bool) error { return WriteWhy(w, r.WhyReport) }

// WriteWhy writes the reasons as numbered paragraphs: the first one is usually the cause of the
// others.
func WriteWhy(w io.Writer, r *fleet.WhyReport) error {
	fmt.Fprintf(w, "%s/%s: %s\n", cmp.Or(r.Namespace, "default"), r.Pod, r.State)
	for i, reason := range r.Reasons {
		cli.Wrap(w, "", fmt.Sprintf("%d. %s: %s", i+1, reason.Rule, reason.Text))
		for _, line := range reason.Details {
			cli.Wrap(w, "   ", line)
		}
		for _, line := range reason.Do {
			cli.Wrap(w, "   ", "-> "+line)
		}
	}
	// Rules only know what the nodes and the API server report.
	if len(r.Reasons) == 0 {
		cli.Wrap(w, "", "no reason found: the nodes offer what the pod requests, and report no problem of its devices; kubectl describe pod shows what the kubelet and the runtime say")
	}
	for _, line := range r.Unread {
		cli.Wrap(w, "", "not known: "+line)
	}
	return nil
}

// newSnapshot returns the command snapshot.
func newSnapshot(o *fleetFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot NODE [FILE]",
		Short: "record the devices of a node for a bug report, without serial numbers",
		Long: `snapshot writes a recording of a node, as snapshot --redact does on the node, to
FILE (default NODE.txtar; - is standard output). Review it before you share it.`,
		Args: cli.WantArgs(1, 2, "want one NODE, and FILE if it should not be NODE.txtar"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := o.open()
			if err != nil {
				return err
			}
			recording, err := cluster.Snapshot(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			// The name of a node is a DNS name, so it is also the name of a file.
			file := args[0] + ".txtar"
			if len(args) > 1 {
				file = args[1]
			}
			if file == "-" {
				// Escapes for the terminal would change the recording.
				_, err = cli.Unescaped(cmd.OutOrStdout()).Write(recording)
				return err
			}
			// The file is readable for the user only.
			return cli.WritePrivate(file, recording)
		},
	}
}
