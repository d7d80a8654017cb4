package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
)

// StatusReport is the state of the devices of all nodes. Its JSON fields have the same names as in
// `status -o json` on a node. Lists are never null.
type StatusReport struct {
	// Nodes are the nodes that need an administrator: they do not answer, or report problems.
	Nodes []NodeState `json:"nodes"`
	// Resources have a row for each node with devices, rows with problems first.
	Resources []Row `json:"resources"`
	// Answered is the number of nodes that have answered.
	Answered int `json:"answered"`
	// WithoutPod are the nodes without a pod of the DaemonSet.
	WithoutPod []string `json:"without_pod"`
	// Unread is why the nodes of the cluster are not known. It is empty if they are.
	Unread string `json:"unread"`

	// isDetailed is set if the table lists each device: a filter leaves few rows, which have room.
	isDetailed bool
}

// NodeState is a node with problems.
type NodeState struct {
	Node     string   `json:"node"`
	Answered bool     `json:"answered"`
	Problems []string `json:"problems"`
}

// Row is a resource on a node. Node is empty for a resource without a device on any node.
type Row struct {
	Resource string `json:"resource"`
	API      string `json:"api"`
	Node     string `json:"node"`
	// Slots counts healthy and unhealthy slots, without the retiring ones.
	Slots int `json:"slots"`
	// Free is nil while the holders are unknown.
	Free *int `json:"free"`
	// Problems are lines for an administrator, empty if all devices are Healthy.
	Problems []string        `json:"problems"`
	Devices  []status.Device `json:"devices"`
}

// Title is the name of the resource, with its API unless that is the default.
func (r *Row) Title() string { return status.Resource{Name: r.Resource, API: r.API}.Title() }

// Filter selects a part of the status. The zero value selects everything.
type Filter struct {
	// Resource is a name with or without its domain.
	Resource string
	// Node is the name of a node. Empty means all nodes.
	Node string
}

// selects reports whether a resource is selected.
func (f Filter) selects(resource string) bool {
	return f.Resource == "" || status.IsNamed(resource, f.Resource)
}

// check returns an error if a node has answered and no node has the resource: its name has a typing
// error.
func (f Filter) check(answers []answered[nodeStatus]) error {
	names := map[string]bool{}
	hasAnswered := false
	for _, a := range answers {
		hasAnswered = hasAnswered || a.err == nil
		for _, r := range a.answer.Resources {
			if f.selects(r.Name) {
				return nil
			}
			names[r.Name] = true
		}
	}
	if f.Resource == "" || !hasAnswered {
		return nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	return fmt.Errorf("no node has a resource %q: the nodes have %s", f.Resource, cmp.Or(known, "none"))
}

// nodeStatus is the answer of a node.
type nodeStatus struct {
	status.Status
	// Node is the name of the node. It hides the name that the answer has.
	Node string
}

// Status asks all nodes, or the selected one, for their devices. A node that does not answer is a
// part of the report. The error means that no node could be asked, or that ctx has ended.
func (f *Fleet) Status(ctx context.Context, filter Filter) (*StatusReport, error) {
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	list := members.List
	if filter.Node != "" {
		if list, err = members.on(filter.Node); err != nil {
			return nil, err
		}
	}
	answers, err := f.statuses(ctx, list)
	if err != nil {
		return nil, err
	}
	if err := filter.check(answers); err != nil {
		return nil, err
	}
	report := merge(answers, filter)
	report.Unread = members.NodesUnread
	report.isDetailed = filter != Filter{}
	// With a filter, the nodes without a pod would distract from the answer.
	if filter == (Filter{}) {
		report.WithoutPod = members.Without()
	}
	return report, nil
}

// on returns the pod of a node. The list has one element. The error distinguishes an unknown node
// from a node without a pod, if the nodes are known.
func (m *Members) on(node string) ([]Member, error) {
	for _, member := range m.List {
		if member.Node == node {
			return []Member{member}, nil
		}
	}
	if m.Nodes != nil && m.Nodes[node] == nil {
		return nil, errors.New("no node " + node)
	}
	return nil, errors.New("no pod of generic-dp runs on node " + node)
}

// statuses asks members for their status.
func (f *Fleet) statuses(ctx context.Context, members []Member) ([]answered[nodeStatus], error) {
	return each(ctx, f, members, func(ctx context.Context, m *Member) (nodeStatus, error) {
		n := nodeStatus{Node: m.Node}
		err := f.ask(ctx, m, &n.Status, "status")
		return n, err
	})
}

// merge makes one report of the answers.
func merge(answers []answered[nodeStatus], filter Filter) *StatusReport {
	report := &StatusReport{
		Nodes:      []NodeState{},
		Resources:  []Row{},
		WithoutPod: []string{},
	}
	absent := map[string]status.Resource{}
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			report.Nodes = append(report.Nodes, a.state())
			continue
		}
		report.Answered++
		if problems := alerts(&a.answer.Status); len(problems) > 0 {
			report.Nodes = append(report.Nodes, NodeState{
				Node:     a.Node,
				Answered: true,
				Problems: problems,
			})
		}
		for _, r := range a.answer.Resources {
			// On a large cluster, most nodes lack most devices: that is no row for each of them.
			isListed := len(r.Devices) > 0 || filter.Node != ""
			switch {
			case !filter.selects(r.Name):
			case isListed:
				report.Resources = append(report.Resources, a.answer.row(r))
			default:
				absent[r.Title()] = r
			}
		}
	}
	report.addAbsent(absent)
	report.sort()
	return report
}

// state is the state of a member that has not answered.
func (a *answered[T]) state() NodeState {
	return NodeState{
		Node:     a.Node,
		Problems: lines(a.err),
	}
}

// lacks reports whether the kubelet does not know a resource of the node. That is a problem only if
// the resource has devices.
func (n *nodeStatus) lacks(r status.Resource) bool {
	return n.Kubelet != nil && !r.Registered && len(r.Devices) > 0
}

// row is a resource on the node.
func (n *nodeStatus) row(r status.Resource) Row {
	row := Row{
		Resource: r.Name,
		API:      r.API,
		Node:     n.Node,
		Slots:    r.Slots.Healthy + r.Slots.Unhealthy,
		Free:     r.Slots.Free,
		Problems: []string{},
		Devices:  r.Devices,
	}
	if n.lacks(r) {
		row.Problems = append(row.Problems, "not registered: "+r.Reason)
	}
	if len(r.Devices) == 0 {
		row.Problems = append(row.Problems, noDevices(r))
	}
	row.Problems = append(row.Problems, problemsOf(r)...)
	return row
}

// problemsOf are the problems of the devices of a resource that are not Healthy.
func problemsOf(r status.Resource) []string {
	var all []string
	for _, d := range r.Devices {
		if d.Health != status.Healthy {
			all = append(all, problemOf(d))
		}
	}
	return all
}

// problemOf is the state of a device, and since when it has that state.
func problemOf(d status.Device) string {
	since := ""
	if !d.Since.IsZero() {
		since = " since " + clock(d.Since)
	}
	return d.ID + " is " + d.Health + since + ": " + d.Reason
}

// noDevices is why a resource has no device on a node. An older version on the node does not report
// why.
func noDevices(r status.Resource) string {
	return "no device: " + cmp.Or(r.NoDevices, "no device matches on this host")
}

// alerts are the problems of a node that do not belong to one of its resources. They are lines of
// the form "heading: text".
func alerts(s *status.Status) []string {
	var all []string
	for _, a := range s.Alerts(time.Now()) {
		for _, line := range a.Lines {
			all = append(all, a.Heading+": "+line)
		}
	}
	if s.HeldUnknown != "" {
		all = append(all, "holders are unknown: "+s.HeldUnknown)
	}
	return all
}

// addAbsent adds a row for each resource that has no device on any node. One node stands for all of
// them: it may have another reason than the others.
func (r *StatusReport) addAbsent(absent map[string]status.Resource) {
	for title, resource := range absent {
		hasDevice := slices.ContainsFunc(r.Resources, func(row Row) bool { return row.Title() == title })
		if hasDevice {
			continue
		}
		r.Resources = append(r.Resources, Row{
			Resource: resource.Name,
			API:      resource.API,
			Free:     new(int),
			Problems: []string{noDevices(resource)},
			Devices:  []status.Device{},
		})
	}
}

// sort sorts rows: problems of nodes with devices first, resources without any device last.
func (r *StatusReport) sort() {
	rank := func(row Row) int {
		if len(row.Devices) == 0 {
			return 2
		}
		if len(row.Problems) > 0 {
			return 0
		}
		return 1
	}
	order.Sort(r.Resources, func(a, b Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.Node, b.Node))
	})
}

// lines are the lines of an error. err must not be nil.
func lines(err error) []string {
	return strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
}
