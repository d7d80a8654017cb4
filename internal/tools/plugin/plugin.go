// Package plugin is kubectl generic-dp: questions about all nodes of a cluster, and what an
// administrator needs from generic-dp away from a node. import, classes and schema only read files.
//
// It has no client of the API server. Every request is a call of the user's own kubectl, so
// that it has the user's rights and needs no credentials:
//
//   - kubectl get reads objects of Kubernetes. objects.go has the fields that are used.
//   - kubectl exec runs generic-dp in the DaemonSet's pod on a node. The program there knows
//     its devices and their holders.
//
// # How to read it
//
// kubectl.go calls kubectl, members.go finds the pods of the DaemonSet, and each.go asks all of
// them at once. nodestatus.go, find.go and nodediff.go merge the answers of the nodes into one report,
// of which status.go and diff.go have the command and the table.
//
// For a pod, why.go reads everything that may matter, once: the evidence. reasons.go explains it, and
// leaves to kubectl describe what the events of the pod say.
package plugin

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// fleetFlags are the flags of all commands that ask a cluster. For why, the namespace is the one of the
// pod.
type fleetFlags struct {
	Fleet
	// kubectl is the program and its first arguments, separated by spaces.
	kubectl string
	// kubeconfig and context are passed on to kubectl, which has its own defaults. Empty means that
	// kubectl decides.
	kubeconfig string
	context    string
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
	set.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the DaemonSet (default all); for why, of the pod")
	set.StringVarP(&o.Selector, "selector", "l", DefaultSelector, "label of the DaemonSet's pods")
	set.IntVar(&o.Parallel, "parallel", 16, "number of nodes that are asked at the same time")
	set.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long a node may take to answer")
	return cmd
}

// open returns the cluster that the flags select. It runs nothing yet. The error is about the
// flags.
func (o *fleetFlags) open() (*Fleet, error) {
	// No shell is involved: a path with a space cannot be given.
	command := strings.Fields(o.kubectl)
	switch {
	case len(command) == 0:
		return nil, cli.Usagef("--kubectl: want a program")
	case o.Parallel < 1:
		return nil, cli.Usagef("--parallel: want 1 or more")
	case o.Timeout <= 0:
		return nil, cli.Usagef("--timeout: want a duration such as 10s")
	}
	kubectl := Program{Command: command}
	if o.kubeconfig != "" {
		kubectl.Flags = append(kubectl.Flags, "--kubeconfig="+o.kubeconfig)
	}
	if o.context != "" {
		kubectl.Flags = append(kubectl.Flags, "--context="+o.context)
	}
	o.Kubectl = kubectl
	return &o.Fleet, nil
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
