package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

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
}

// NodeChange is a change on a node.
type NodeChange struct {
	Node string `json:"node"`
	answer.Change
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
	for _, m := range members.List {
		// The node has another DaemonSet or another release of the chart.
		if configurationOf(&m, configurations) == nil {
			report.OtherConfig = append(report.OtherConfig, m.Node)
			continue
		}
		affected = append(affected, m)
	}
	if len(affected) == 0 {
		return nil, errors.New("no node has a configuration of this file: no ConfigMap in it has the name of one that the DaemonSet mounts")
	}
	answers, err := each(ctx, f, affected, func(ctx context.Context, m *Member) (answer.File, error) {
		return f.check(ctx, m, configMap(configurationOf(m, configurations)))
	})
	// The user has interrupted the command: a report with a part of the nodes would look complete.
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		report.add(a.Node, &a.answer, a.err)
	}
	report.sort()
	return report, nil
}

// check lets a node check a configuration against the one that it serves.
func (f *Fleet) check(ctx context.Context, m *Member, input []byte) (answer.File, error) {
	var checked answer.Check
	text, err := f.exec(ctx, m, input, "check", "-", "--against", "served", "-o", "json")
	// With a problem in the configuration, check prints its answer and fails.
	decodeErr := decode(text, &checked)
	if len(checked.Files) == 1 {
		return checked.Files[0], nil
	}
	return answer.File{}, cmp.Or(err, decodeErr, errEmpty)
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

// add adds the answer of a node. If err is set, the answer is ignored.
func (r *DiffReport) add(node string, checked *answer.File, err error) {
	state := NodeDiff{
		Node:     node,
		Answered: err == nil,
		// A configuration with a mistake in its text is not compared.
		Refuses:  checked.Against == nil,
		Problems: []string{},
	}
	if err != nil {
		state.Refuses = false
		state.Problems = lines(err)
		r.Nodes = append(r.Nodes, state)
		return
	}
	r.Answered++
	for _, p := range checked.Problems {
		state.Problems = append(state.Problems, strings.Split(p.String(), "\n")...)
	}
	if state.Refuses {
		r.Nodes = append(r.Nodes, state)
		return
	}
	against := checked.Against
	for _, c := range against.Changes {
		r.Changes = append(r.Changes, NodeChange{Node: node, Change: c})
	}
	// Without changes, nobody can lose a device.
	if len(against.Changes) == 0 {
		r.Unchanged++
	} else {
		state.HeldUnknown = against.HeldUnknown
	}
	if len(state.Problems) > 0 || state.HeldUnknown != "" {
		r.Nodes = append(r.Nodes, state)
	}
}

// sort sorts changes, first the changes that affect pods.
func (r *DiffReport) sort() {
	order.Stable(r.Changes, func(a, b NodeChange) int {
		// Only whether there are holders matters, not how many.
		byHeld := cmp.Compare(min(len(b.Held), 1), min(len(a.Held), 1))
		byResource := cmp.Compare(a.Listed().Resource, b.Listed().Resource)
		byID := cmp.Compare(a.Listed().ID, b.Listed().ID)
		return cmp.Or(byHeld, byResource, byID, cmp.Compare(a.Node, b.Node))
	})
}

// Snapshot records a node, without serial numbers, and returns the recording. The recording is a
// txtar archive.
func (f *Fleet) Snapshot(ctx context.Context, node string) ([]byte, error) {
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	list, err := members.on(node)
	if err != nil {
		return nil, err
	}
	answers, err := each(ctx, f, list, func(ctx context.Context, m *Member) ([]byte, error) {
		return f.exec(ctx, m, nil, "snapshot", "--redact", "-")
	})
	return answers[0].answer, cmp.Or(answers[0].err, err)
}
