package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// removesHeld is the exit status of a diff that takes a device away from a container. Scripts use
// it to stop before the edit is applied.
const removesHeld cli.StatusError = 3

// newDiff returns the command diff.
func newDiff(o *fleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE",
		Short: "show what an edit of the configuration would change on every node",
		Long: `diff asks each node what a configuration would change there, before you apply it:
devices that are added, removed, or get another ID, the pods that hold them, and
the nodes that would refuse the configuration. Nothing is changed.

FILE is a TOML file, a directory of them, or a manifest with TOML files: a
ConfigMap, values of the chart, a HelmRelease or an Application; - is standard
input. If it has several ConfigMaps, each node gets the one that its pod mounts.

The exit status is 3 if a container would lose a device, and 1 if a node would
refuse the configuration or does not answer.`,
		Args: cli.WantArgs(1, 1, "want one FILE, or - for standard input"),
	}
	return cli.Reports(cmd, func(cmd *cobra.Command, args []string) (cli.Reporter, error) {
		configurations, err := readConfigurations(args[0])
		if err != nil {
			return nil, err
		}
		cluster, err := o.open()
		if err != nil {
			return nil, err
		}
		report, err := cluster.Diff(cmd.Context(), configurations)
		switch {
		case err != nil:
			return nil, err
		// This precedes incomplete answers: what is known already is the reason to stop.
		case report.RemovesHeld():
			err = removesHeld
		case report.Incomplete():
			err = cli.ErrReported
		}
		return report, err
	}, "wide", "json")
}

// readConfigurations reads the configurations at a path. Their syntax is checked here, so that one
// mistake is not reported by every node.
func readConfigurations(path string) ([]manifest.Configuration, error) {
	found, _, err := manifest.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\n  hint: want a file, a directory of TOML files, or - for standard input", err)
	}
	if err != nil {
		return nil, err
	}
	for i := range found {
		if _, err := config.Parse(found[i].Files...); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Table writes the nodes with problems, the changes, and a summary.
func (r *DiffReport) Table(w io.Writer, wide bool) error {
	for _, g := range groupNodes(r.Nodes, wide) {
		g.write(w)
	}
	t := cli.NewTable(wide, "CHANGE", "RESOURCE", "NODE", "HELD BY")
	for _, g := range groupChanges(r.Changes, wide) {
		listed := g.Listed()
		cells := []string{string(g.Change.Change), listed.Resource, g.nodes(), podsOf(g.Held, wide)}
		t.Add(cells, listed.ID+g.Change.Becomes())
	}
	if err := t.Write(w); err != nil {
		return err
	}
	// An empty line separates the table from the summary.
	if len(r.Changes) > 0 {
		fmt.Fprintln(w)
	}
	text := fmt.Sprintf("%s answered, %d without a change", cli.Count(r.Answered, "node"), r.Unchanged)
	if len(r.OtherConfig) > 0 {
		text += fmt.Sprintf("; with another configuration: %s", cli.Shorten(r.OtherConfig, wide, ","))
	}
	cli.Wrap(w, "", text)
	return nil
}

// nodeGroup is nodes with the same problems: usually all of them refuse the same line. NodeDiff is
// the state of the first of these nodes.
type nodeGroup struct {
	NodeDiff
	nodes []string
}

// groupNodes groups nodes with the same problems, unless wide. The groups have the order of their
// first nodes.
func groupNodes(nodes []NodeDiff, wide bool) []nodeGroup {
	var groups []nodeGroup
	for _, n := range nodes {
		i := slices.IndexFunc(groups, func(g nodeGroup) bool {
			isSameState := g.Answered == n.Answered && g.Refuses == n.Refuses && g.HeldUnknown == n.HeldUnknown
			return isSameState && slices.Equal(g.Problems, n.Problems)
		})
		if i < 0 || wide {
			groups = append(groups, nodeGroup{NodeDiff: n, nodes: []string{n.Node}})
			continue
		}
		groups[i].nodes = append(groups[i].nodes, n.Node)
	}
	return groups
}

// write writes the nodes and their problems. An error of w is ignored: the table after it meets the
// same error.
func (g *nodeGroup) write(w io.Writer) {
	names := cli.Shorten(g.nodes, false, ", ")
	isOne := len(g.nodes) == 1
	switch {
	case !g.Answered && isOne:
		names += " does not answer"
	case !g.Answered:
		names += " do not answer"
	case g.Refuses:
		names += " would refuse the configuration"
	}
	cli.Wrap(w, "", names+":")
	for _, p := range g.Problems {
		cli.Wrap(w, "    ", p)
	}
	if g.HeldUnknown != "" {
		cli.Wrap(w, "    ", "holders are unknown: "+g.HeldUnknown)
	}
}

// changeGroup is a change that several nodes have. Changes that affect pods are never grouped. more
// is the number of nodes besides NodeChange.Node.
type changeGroup struct {
	NodeChange
	more int
}

// nodes names the nodes of a group. It is the only node, or the first one and the number of the
// others.
func (g *changeGroup) nodes() string {
	if g.more == 0 {
		return g.Node
	}
	return fmt.Sprintf("%s +%d", g.Node, g.more)
}

// groupChanges groups equal changes of several nodes, unless wide.
func groupChanges(changes []NodeChange, wide bool) []changeGroup {
	// A change of the same device on several nodes has the same key, apart from the node.
	type key struct {
		what     answer.Effect
		old, new answer.Entry
	}
	var groups []changeGroup
	index := map[key]int{}
	for _, c := range changes {
		k := key{c.Change.Change, c.Old, c.New}
		i, isKnown := index[k]
		if isKnown && len(c.Held) == 0 && !wide {
			groups[i].more++
			continue
		}
		if len(c.Held) == 0 {
			index[k] = len(groups)
		}
		groups = append(groups, changeGroup{NodeChange: c})
	}
	return groups
}
