package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// Preview is what a configuration would change on one node. The node makes it, see `fleet preview`.
type Preview struct {
	// Changes are the effects on devices that are listed before or after the edit. The list is
	// empty, not nil, without one.
	Changes []Change `json:"changes"`
	// HeldUnknown is why the holders are unknown. It is empty if they are known.
	HeldUnknown string `json:"held_unknown"`
	// Refused are the problems for which the node would refuse the configuration, and keep the
	// one that it has.
	Refused []string `json:"refused"`
	// Problems are problems of the configuration with the hardware of the node.
	Problems []string `json:"problems"`
	// Memory is an upper bound for the memory of the listed devices, in bytes. Devices above
	// MaxMemory are left out.
	Memory    int `json:"memory"`
	MaxMemory int `json:"max_memory"`
}

// Change is an effect of an edit on a device: added, removed, moved to another resource, renamed,
// or another number of slots or other contents.
type Change struct {
	Change string `json:"change"`
	// Old is empty if the device is added, New if it is removed.
	Old Entry `json:"old"`
	New Entry `json:"new"`
	// Held are the containers that lose the device with their next start.
	Held []status.Holder `json:"held"`
}

// Entry is a device of a resource.
type Entry struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Slots    int    `json:"slots"`
}

// Listed is the device before the edit, or after it if it is new.
func (c *Change) Listed() Entry { return cmp.Or(c.Old, c.New) }

// DiffReport is what an edit would change on all nodes.
type DiffReport struct {
	// Changes are sorted: first the changes that affect pods, then by resource and ID.
	Changes []NodeChange `json:"changes"`
	// Nodes are the nodes that have not answered, would refuse the configuration, or have
	// problems with it.
	Nodes []NodeDiff `json:"nodes"`
	// Answered is the number of nodes that have answered, and Unchanged how many of them stay
	// as they are.
	Answered  int `json:"answered"`
	Unchanged int `json:"unchanged"`
	// OtherConfig are the nodes whose configuration the file does not contain.
	OtherConfig []string `json:"other_config"`
	// Memory is the largest upper bound for the memory of the listed devices on a node, in
	// bytes, and MaxMemory the limit.
	Memory int `json:"memory"`
	// MemoryNode is the node with the value of Memory. It is empty if no node lists a device.
	MemoryNode string `json:"memory_node"`
	MaxMemory  int    `json:"max_memory"`
}

// NodeChange is a change on a node.
type NodeChange struct {
	Node string `json:"node"`
	Change
}

// NodeDiff is a node with problems.
type NodeDiff struct {
	Node string `json:"node"`
	// Answered is false if the node could not be asked. Problems then says why.
	Answered bool `json:"answered"`
	// Refuses is set if the node would refuse the configuration.
	Refuses bool `json:"refuses"`
	// Problems are lines for an administrator, first the reasons for which the node would refuse.
	Problems []string `json:"problems"`
	// HeldUnknown is why the holders are unknown. It is empty if no holder can be affected.
	HeldUnknown string `json:"held_unknown"`
}

// RemovesHeld reports whether the edit takes a device away from a container. It is only certain if
// Incomplete is false.
func (r *DiffReport) RemovesHeld() bool {
	return slices.ContainsFunc(r.Changes, func(c NodeChange) bool { return len(c.Held) > 0 })
}

// Incomplete reports whether a node would refuse the configuration, or what it changes is not
// known.
func (r *DiffReport) Incomplete() bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeDiff) bool {
		return !n.Answered || n.Refuses || n.HeldUnknown != ""
	})
}

// Diff asks each node what a configuration would change there. If a manifest has several
// configurations, each node gets the one whose ConfigMap its pod mounts. A node that does not
// answer is a part of the report. The error means that nothing can be said about any node.
func (f *Fleet) Diff(ctx context.Context, configurations []manifest.Configuration) (*DiffReport, error) {
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	report := &DiffReport{
		Changes:     []NodeChange{},
		Nodes:       []NodeDiff{},
		OtherConfig: []string{},
	}
	var affected []Member
	var inputs [][]byte
	for _, m := range members.List {
		files := configurationOf(&m, configurations)
		// The node has another DaemonSet or another release of the chart.
		if files == nil {
			report.OtherConfig = append(report.OtherConfig, m.Node)
			continue
		}
		affected = append(affected, m)
		inputs = append(inputs, configMap(files))
	}
	if len(affected) == 0 {
		return nil, errors.New("no node has a configuration of this file: no ConfigMap in it has the name of one that the DaemonSet mounts")
	}
	// Each call writes only its own element.
	previews := make([]Preview, len(affected))
	failed := f.each(ctx, affected, func(ctx context.Context, i int) error {
		m := &affected[i]
		args := append([]string{"fleet", "preview"}, m.flags(append(hostFlags, "listen", "pod-resources", "node-name")...)...)
		return f.exec(ctx, m, inputs[i], decode(&previews[i]), args...)
	})
	// The user has interrupted the command: a report with a part of the nodes would look complete.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i, err := range failed {
		report.add(affected[i].Node, &previews[i], err)
	}
	report.sort()
	return report, nil
}

// configurationOf returns the files for a node: the files of the ConfigMap that its pod mounts, or
// of the only configuration. It returns nil if there are none. Generated ConfigMaps have a hash in
// their name, so that a single configuration needs no name.
func configurationOf(m *Member, all []manifest.Configuration) []config.File {
	if len(all) == 1 {
		return all[0].Files
	}
	for _, own := range all {
		if own.Object == "ConfigMap/"+m.ConfigMap {
			return own.Files
		}
	}
	return nil
}

// configMap writes files as a ConfigMap, in which FindOwn finds them again.
func configMap(files []config.File) []byte {
	data := map[string]string{}
	for _, f := range files {
		data[f.Name] = string(f.Data)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// Escapes for HTML would make the text up to six times as long.
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{
		"kind":     "ConfigMap",
		"metadata": map[string]string{"name": "new"},
		"data":     data,
	})
	if err != nil {
		panic(err) // strings always encode
	}
	return text.Bytes()
}

// add adds the answer of a node. If err is set, p is ignored.
func (r *DiffReport) add(node string, p *Preview, err error) {
	state := NodeDiff{
		Node:        node,
		Answered:    err == nil,
		Refuses:     len(p.Refused) > 0,
		Problems:    append(append([]string{}, p.Refused...), p.Problems...),
		HeldUnknown: p.HeldUnknown,
	}
	if err != nil {
		state.Problems = lines(oldVersion(err))
		r.Nodes = append(r.Nodes, state)
		return
	}
	r.Answered++
	if len(p.Changes) == 0 && !state.Refuses {
		r.Unchanged++
	}
	for _, c := range p.Changes {
		r.Changes = append(r.Changes, NodeChange{Node: node, Change: c})
	}
	// Without changes, nobody can lose a device.
	if len(p.Changes) == 0 {
		state.HeldUnknown = ""
	}
	if len(state.Problems) > 0 || state.HeldUnknown != "" {
		r.Nodes = append(r.Nodes, state)
	}
	r.MaxMemory = max(r.MaxMemory, p.MaxMemory)
	if p.Memory > r.Memory {
		r.Memory = p.Memory
		r.MemoryNode = node
	}
}

// oldVersion explains the error of a version that has no command of this name. Any other error is
// returned as it is. During an update of the DaemonSet, some nodes have the former version.
func oldVersion(err error) error {
	var remote *RemoteError
	if errors.As(err, &remote) && strings.Contains(remote.Text, `unknown command "fleet"`) {
		return fmt.Errorf("the version on this node is too old for diff: %w", err)
	}
	return err
}

// sort sorts changes, first the changes that affect pods.
func (r *DiffReport) sort() {
	sort.SliceStable(r.Changes, func(i, j int) bool {
		a := &r.Changes[i]
		b := &r.Changes[j]
		// Only whether there are holders matters, not how many.
		byHeld := cmp.Compare(min(len(b.Held), 1), min(len(a.Held), 1))
		byResource := cmp.Compare(a.Listed().Resource, b.Listed().Resource)
		byID := cmp.Compare(a.Listed().ID, b.Listed().ID)
		return cmp.Or(byHeld, byResource, byID, cmp.Compare(a.Node, b.Node)) < 0
	})
}

// Snapshot records a node, without serial numbers, and returns the recording. The recording is a
// txtar archive, of at most maxAnswer bytes.
func (f *Fleet) Snapshot(ctx context.Context, node string) ([]byte, error) {
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	list, err := members.on(node)
	if err != nil {
		return nil, err
	}
	var recording []byte
	failed := f.each(ctx, list, func(ctx context.Context, _ int) error {
		m := &list[0]
		args := append([]string{"snapshot", "--redact", "-"}, m.flags("config", "dev", "sysfs")...)
		return f.exec(ctx, m, nil, readAll(&recording), args...)
	})
	return recording, failed[0]
}
