package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/fleet"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// removesHeld is the exit status of a diff that takes a device away from a container. Scripts use
// it to stop before the edit is applied.
const removesHeld statusError = 3

// newFleetDiff returns the command fleet diff.
func newFleetDiff(o *fleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE",
		Short: "show what an edit of the configuration would change on every node",
		Long: `diff asks each node what a configuration would change there, before you apply it:
devices that are added, removed, or get another ID, the pods that hold them, the
nodes that would refuse the configuration, and the memory of its lists. Nothing
is changed.

FILE is a TOML file, a directory of them, or a manifest with TOML files: a
ConfigMap, values of the chart, a HelmRelease or an Application; - is standard
input. If it has several ConfigMaps, each node gets the one that its pod mounts.

The exit status is 3 if a container would lose a device, and 1 if a node would
refuse the configuration or does not answer.`,
		Args: wantArgs(1, 1, "want one FILE, or - for standard input"),
	}
	return reports(cmd, func(cmd *cobra.Command, args []string) (reporter, error) {
		configurations, err := readConfigurations(args[0])
		if err != nil {
			return nil, err
		}
		cluster, err := o.open(cmd)
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
			err = errReported
		}
		return fleetDiff{report}, err
	}, "wide", "json", "yaml")
}

// readConfigurations reads the configurations in a file, or a directory as serve reads it. Their
// syntax is checked here, so that one mistake is not reported by every node.
func readConfigurations(path string) ([]manifest.Configuration, error) {
	found, err := findConfigurations(path)
	if err != nil {
		return nil, err
	}
	for _, own := range found {
		_, err := config.Parse(own.Files...)
		if err != nil {
			return nil, located(&own, err)
		}
	}
	return found, nil
}

// findConfigurations returns the configurations without checking them. Only a manifest may have
// more than one.
func findConfigurations(path string) ([]manifest.Configuration, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		files, _, err := config.Read(path)
		// A configuration without an object is for every node.
		return []manifest.Configuration{{Files: files}}, err
	}
	name, text, err := readInput(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\n  hint: want a file, a directory of TOML files, or - for standard input", err)
	}
	if err != nil {
		return nil, err
	}
	if isManifestText(string(text)) {
		return manifest.Find(name, text)
	}
	return []manifest.Configuration{{Files: []config.File{{Name: name, Data: text}}}}, nil
}

// isManifestText reports whether a text is YAML or JSON. The first line decides: in TOML it is a
// table, or a key with "=". The name of the file is no help, because the text may come from
// standard input.
func isManifestText(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		// Comments look the same in both languages.
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, isAssignment := strings.Cut(line, "=")
		isYAML := strings.HasPrefix(line, "---") || strings.HasPrefix(line, "{") || strings.HasPrefix(line, "- ")
		// In TOML, a colon before the "=" is only possible in a quoted key.
		hasColon := strings.Contains(key, ":") && (!isAssignment || !strings.ContainsAny(key, `"'`))
		return isYAML || hasColon
	}
	return false
}

// fleetDiff is the output of fleet diff.
type fleetDiff struct{ *fleet.DiffReport }

// table writes the nodes with problems, the changes, and a summary.
func (r fleetDiff) table(w io.Writer, wide bool) error {
	for _, g := range groupNodes(r.Nodes, wide) {
		g.write(w)
	}
	t := newFleetTable(wide, "CHANGE", "RESOURCE", "NODE", "HELD BY")
	for _, g := range groupChanges(r.Changes, wide) {
		listed := g.Listed()
		cells := []string{g.Change.Change, listed.Resource, g.nodes(), podsOf(g.Held, wide)}
		t.add(cells, listed.ID+becomes(&g.Change))
	}
	if err := t.write(w); err != nil {
		return err
	}
	// An empty line separates the table from the summary.
	if len(r.Changes) > 0 {
		fmt.Fprintln(w)
	}
	text := fmt.Sprintf("%s answered, %d without a change", count(r.Answered, "node"), r.Unchanged)
	if len(r.OtherConfig) > 0 {
		text += fmt.Sprintf("; with another configuration: %s", shorten(r.OtherConfig, wide))
	}
	wrap(w, "", text)
	if r.MemoryNode != "" {
		const mib = 1 << 20
		wrap(w, "", fmt.Sprintf("memory of the listed devices: at most %.1f of %d MiB, on %s", float64(r.Memory)/mib, r.MaxMemory/mib, r.MemoryNode))
	}
	return nil
}

// nodeGroup is nodes with the same problems: usually all of them refuse the same line. NodeDiff is
// the state of the first of these nodes.
type nodeGroup struct {
	fleet.NodeDiff
	nodes []string
}

// groupNodes groups nodes with the same problems, unless wide. The groups have the order of their
// first nodes.
func groupNodes(nodes []fleet.NodeDiff, wide bool) []nodeGroup {
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
	names := strings.ReplaceAll(shorten(g.nodes, false), ",", ", ")
	isOne := len(g.nodes) == 1
	switch {
	case !g.Answered && isOne:
		names += " does not answer"
	case !g.Answered:
		names += " do not answer"
	case g.Refuses:
		names += " would refuse the configuration"
	}
	wrap(w, "", names+":")
	for _, p := range g.Problems {
		wrap(w, "    ", p)
	}
	if g.HeldUnknown != "" {
		wrap(w, "    ", "holders are unknown: "+g.HeldUnknown)
	}
}

// changeGroup is a change that several nodes have. Changes that affect pods are never grouped. more
// is the number of nodes besides NodeChange.Node.
type changeGroup struct {
	fleet.NodeChange
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
func groupChanges(changes []fleet.NodeChange, wide bool) []changeGroup {
	// A change of the same device on several nodes has the same key, apart from the node.
	type key struct {
		what     string
		old, new fleet.Entry
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

// becomes says what a changed device is after the edit, for the end of a line. It is empty for a
// device that is added or removed.
func becomes(c *fleet.Change) string {
	switch c.Change {
	case "moved":
		if c.New.ID != c.Old.ID {
			return ": moves to " + c.New.Resource + " as " + c.New.ID
		}
		return ": moves to " + c.New.Resource
	case "renamed":
		return ": gets the ID " + c.New.ID
	case "slots":
		return fmt.Sprintf(": %d slots become %d", c.Old.Slots, c.New.Slots)
	case "contents":
		return ": a container gets something else when it starts"
	}
	return ""
}

// newPreview returns the node's side of fleet diff. It is hidden, because only fleet diff calls it,
// through kubectl exec. Its output is an API between versions.
func newPreview(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "preview",
		Short:  "print as JSON what the configuration on standard input would change on this host",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			preview, err := f.preview(cmd)
			if err != nil {
				return err
			}
			return encode(cmd.OutOrStdout(), "json", preview)
		},
	}
	// The running instance is asked for the holders, at the address of --listen or at the socket of
	// the kubelet.
	cmd.Flags().AddFlagSet(f.pick("config", "dev", "sysfs", "state-dir", "allow", "domains", "listen", "pod-resources", "node-name"))
	return cmd
}

// preview compares the served configuration with the one on standard input. A configuration that
// this node would refuse is no error: the preview has the reasons.
func (f *flags) preview(cmd *cobra.Command) (*fleet.Preview, error) {
	preview := &fleet.Preview{
		Changes:   []fleet.Change{},
		Refused:   []string{},
		Problems:  []string{},
		MaxMemory: device.MaxMemory,
	}
	name, text, err := readInput("-")
	if err != nil {
		return nil, err
	}
	// fleet diff sends a ConfigMap with all files of one configuration.
	found, err := manifest.Find(name, text)
	if err != nil {
		return nil, err
	}
	// The comparison is with what is served, even if the file on disk is broken.
	before, err := f.served()
	if err != nil {
		return nil, err
	}
	after, err := f.parseFiles(found[0].Files)
	if err != nil {
		preview.Refused = strings.Split(strings.TrimSpace(err.Error()), "\n")
		return preview, nil
	}
	// One scan serves both configurations, so that the hardware does not differ.
	view, err := f.scan(cmd.Context(), before)
	if err != nil {
		return nil, err
	}
	// Without holders, the changes are still known.
	held, err := f.holders(cmd.Context())
	if err != nil {
		preview.HeldUnknown = err.Error()
	}
	next := view.With(after)
	for _, c := range compare(view, next, held) {
		preview.Changes = append(preview.Changes, fleet.Change{
			Change: string(c.Change),
			Old:    fleet.Entry(c.Old),
			New:    fleet.Entry(c.New),
			Held:   c.Held,
		})
	}
	for _, n := range next.Matched.Notes {
		if n.Error {
			preview.Problems = append(preview.Problems, n.String())
		}
	}
	// These are the offers after the edit. Absent devices that stay listed are not counted.
	preview.Memory = len(next.Matched.Resources) * device.ResourceMemory
	for _, m := range next.Matched.Resources {
		for i := range m.Offers {
			preview.Memory += m.Offers[i].Memory()
		}
	}
	return preview, nil
}

// served loads the configuration that serve serves: the one at --config, or the last good one if
// that is broken. If neither is usable, the error is about --config.
func (f *flags) served() (*config.Config, error) {
	cfg, err := f.load(f.config)
	good := configuration.LastGood(f.paths.StateDir)
	if err == nil || good == nil {
		return cfg, err
	}
	return f.parseFiles(good)
}

// parseFiles validates the files of a configuration, with the privileges that --allow gives. The
// error has all problems of the first step that fails.
func (f *flags) parseFiles(files []config.File) (*config.Config, error) {
	cfg, err := config.Parse(files...)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Check(f.allow)
}

// permissionsReport is the output of fleet permissions.
type permissionsReport struct {
	Permissions []fleet.Permission `json:"permissions"`
}

// newPermissions returns the node's side of the rule "permission" of fleet why. It is hidden like
// preview.
func newPermissions(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "permissions",
		Short:  "list the owners and modes of the nodes of all devices",
		Hidden: true,
		Args:   noArgs,
	}
	cmd.Flags().AddFlagSet(f.pick("config", "dev", "sysfs", "state-dir", "allow", "domains", "node-name"))
	return reports(cmd, func(cmd *cobra.Command, _ []string) (reporter, error) {
		cfg, err := f.served()
		if err != nil {
			return nil, err
		}
		view, err := f.scan(cmd.Context(), cfg)
		if err != nil {
			return nil, err
		}
		return f.permissions(view.Matched.Resources), nil
	}, "json")
}
