package plugin

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/order"
)

// Member is the pod of the DaemonSet on one node. Everything is read from the pod, because each
// release of the chart may use other names and paths.
type Member struct {
	Node      string
	Namespace string
	Pod       string
	Container string
	// Program is the path of this program in the container.
	Program string
	// ConfigMap is the name of the ConfigMap with the configuration, if it is mounted.
	ConfigMap string
	// Problem is why the pod cannot be asked. It is empty if it can.
	Problem string
	// rank is higher for the one of two pods on a node that answers, as during an update.
	rank int
	// started is when the container was started. It is zero if the container does not run.
	started time.Time
}

// precedes reports whether m is asked, and not another pod on the same node. If both are ready, the one
// that was started first serves, and the other one waits for its end: during an update, or if two
// releases of the chart select the node.
func (m *Member) precedes(other *Member) bool {
	if m.rank != other.rank {
		return m.rank > other.rank
	}
	if m.started.IsZero() || other.started.IsZero() {
		return other.started.IsZero()
	}
	return m.started.Before(other.started)
}

// Members are the pods of the DaemonSet, by node.
type Members struct {
	List []Member
	// Nodes are all nodes by name. They are nil if they may not be read.
	Nodes map[string]*Node
	// NodesUnread is why the nodes are not known.
	NodesUnread string
}

// Members finds the pods of the DaemonSet, and the nodes. It is an error if there is no pod. A node
// that cannot be asked is in the list, with its problem.
func (f *Fleet) Members(ctx context.Context) (*Members, error) {
	pods, err := f.pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod with the label %s found\n  hint: -n names the namespace of the DaemonSet, --selector the label of its pods", f.Selector)
	}
	m := &Members{}
	nodes, err := list[Node](ctx, f, "nodes")
	if err != nil {
		// Without cluster-wide rights the pods still answer.
		m.NodesUnread = err.Error()
	} else {
		m.Nodes = map[string]*Node{}
	}
	for i := range nodes {
		m.Nodes[nodes[i].Metadata.Name] = &nodes[i]
	}
	best := map[string]Member{}
	for i := range pods {
		next := newMember(&pods[i])
		// The scheduler has not placed the pod yet.
		if next.Node == "" {
			continue
		}
		last, isKnown := best[next.Node]
		if !isKnown || next.precedes(&last) {
			best[next.Node] = next
		}
	}
	for _, member := range best {
		// The pod of a dead node stays Running for minutes, so the node is asked about first.
		if problem := m.nodeProblem(member.Node); problem != "" {
			member.Problem = problem
		}
		m.List = append(m.List, member)
	}
	order.Sort(m.List, func(a, b Member) int { return strings.Compare(a.Node, b.Node) })
	return m, nil
}

// pods lists the pods of the DaemonSet.
func (f *Fleet) pods(ctx context.Context) ([]Pod, error) {
	args := []string{"pods", "-l", f.Selector}
	if f.Namespace != "" {
		return list[Pod](ctx, f, append(args, "-n", f.Namespace)...)
	}
	return list[Pod](ctx, f, append(args, "--all-namespaces")...)
}

// newMember describes a pod of the DaemonSet. The container is the one that runs serve, or else the
// first one: a chart may add others.
func newMember(p *Pod) Member {
	m := Member{
		Node:      p.Spec.NodeName,
		Namespace: p.Metadata.Namespace,
		Pod:       p.Metadata.Name,
		Program:   "/generic-dp",
	}
	for _, c := range p.Spec.Containers {
		isServing := slices.Contains(c.Args, "serve") || slices.Contains(c.Command, "serve")
		if m.Container != "" && !isServing {
			continue
		}
		m.Container = c.Name
		if len(c.Command) > 0 && path.Base(c.Command[0]) == "generic-dp" {
			m.Program = c.Command[0]
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil {
			m.ConfigMap = v.ConfigMap.Name
		}
	}
	// Only in a pod that runs can kubectl exec start a command.
	isRunning := p.Status.Phase == "Running"
	ready := condition(p.Status.Conditions, "Ready")
	switch {
	case ready != nil && ready.Status == "True":
		m.rank = 2
	case isRunning:
		m.rank = 1
	}
	hasEnded := false
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != m.Container {
			continue
		}
		if c.State.Running != nil {
			m.started = c.State.Running.StartedAt
		} else {
			hasEnded = true
		}
	}
	switch {
	case !isRunning:
		m.Problem = fmt.Sprintf("pod %s is %s%s", p.Metadata.Path(), p.Status.Phase, waitingReason(p))
	case hasEnded: // as with a broken first configuration
		m.Problem = fmt.Sprintf("pod %s does not run; its log says why: kubectl logs -n %s %s", p.Metadata.Path(), m.Namespace, m.Pod)
	}
	return m
}

// waitingReason is why a container of a pod does not run, for the end of a sentence.
func waitingReason(p *Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return ": " + w.Reason + ": " + w.Message
		} else if w != nil {
			return ": " + w.Reason
		}
	}
	if p.Status.Message != "" {
		return ": " + p.Status.Message
	}
	return ""
}

// nodeProblem is why the kubelet of a node cannot run anything now. Such a node is not asked: the
// API server would wait for it.
func (m *Members) nodeProblem(name string) string {
	node := m.Nodes[name]
	// Without the right to read nodes, the pod is asked, and may be silent until the timeout.
	if node == nil {
		return ""
	}
	ready := condition(node.Status.Conditions, "Ready")
	if ready == nil || ready.Status == "True" {
		return ""
	}
	return fmt.Sprintf("the node is not ready since %s: %s", clock(ready.LastTransitionTime), ready.Message)
}

// Without lists the nodes without a pod of the DaemonSet. The list is empty, not nil, if the nodes
// are not known. It is sorted.
func (m *Members) Without() []string {
	names := []string{}
	for name := range m.Nodes {
		hasPod := slices.ContainsFunc(m.List, func(member Member) bool { return member.Node == name })
		if !hasPod {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// clock is a time for people. All nodes are shown in one time zone.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// exec runs this program in the pod of a node, and returns its output. The environment of the
// container says where the host and the configuration are.
func (f *Fleet) exec(ctx context.Context, m *Member, input []byte, args ...string) ([]byte, error) {
	call := []string{"exec", "-n", m.Namespace, m.Pod, "-c", m.Container}
	// Without -i, kubectl does not connect standard input.
	if input != nil {
		call = append(call, "-i")
	}
	call = append(call, "--", m.Program)
	return f.Kubectl.Run(ctx, input, append(call, args...)...)
}

// ask runs this program in the pod of a node, and decodes its output.
func (f *Fleet) ask(ctx context.Context, m *Member, into any, args ...string) error {
	text, err := f.exec(ctx, m, nil, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return decode(text, into)
}
