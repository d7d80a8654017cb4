package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

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
		namespace := cluster.Namespace
		cluster.Namespace = ""
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
		return report, nil
	}, "json")
}

// Table writes the reasons as numbered paragraphs: the first one is usually the cause of the others.
func (r *WhyReport) Table(w io.Writer, _ bool) error {
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
		cli.Wrap(w, "", "nothing is wrong with its devices: the nodes offer what the pod requests, and report no problem; kubectl describe pod shows what the kubelet and the runtime say")
	}
	for _, line := range r.Unread {
		cli.Wrap(w, "", "not known: "+line)
	}
	return nil
}

// WhyReport explains the state of a pod.
type WhyReport struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// State is the phase of the pod and its node.
	State   string   `json:"state"`
	Reasons []Reason `json:"reasons"`
	// Unread is what could not be read, so that reasons may be missing.
	Unread []string `json:"unread"`
}

// Why explains why a pod does not get its device, or has lost it. It leaves to kubectl describe what
// the events of the pod say. The namespace may be empty for the namespace of kubectl's context. The
// error means that nothing can be said, for example because the pod requests no device.
func (f *Fleet) Why(ctx context.Context, namespace, name string) (*WhyReport, error) {
	e, err := f.gather(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &WhyReport{
		Namespace: e.pod.Metadata.Namespace,
		Pod:       name,
		State:     e.pod.state(),
		Reasons:   e.explain(),
		Unread:    e.unread,
	}, nil
}

// state describes the pod in a few words.
func (p *Pod) state() string {
	text := p.Status.Phase
	// The phase of a pod that is being deleted stays Running.
	if p.Metadata.DeletionTimestamp != nil {
		text = "terminating"
	}
	if p.Spec.NodeName == "" {
		return text + ", not scheduled"
	}
	text += " on " + p.Spec.NodeName
	if p.Status.Reason != "" {
		text += ", " + p.Status.Reason
	}
	return text
}

// evidence is everything that may explain the state of a pod.
type evidence struct {
	pod Pod
	// requests are the extended resources that the pod requests, by name or by claims.
	requests []request
	// nodes are all nodes by name. They are nil if they may not be read.
	nodes map[string]*Node
	// answers are the nodes that have answered.
	answers []nodeStatus
	// holders are the pods that hold requested devices, by namespace/name. A pod that does not exist
	// any more is nil.
	holders map[string]*Pod
	// classes are nil if they may not be read.
	classes []Class
	// unread is what could not be read, and why.
	unread []string
}

// gather reads the evidence. What cannot be read is noted, unless nothing can be said without it.
func (f *Fleet) gather(ctx context.Context, namespace, name string) (*evidence, error) {
	e := &evidence{
		holders: map[string]*Pod{},
		unread:  []string{},
	}
	// Everything else depends on the pod, so it is read first.
	err := f.get(ctx, &e.pod, inNamespace(namespace, "pod", name)...)
	if isNotFound(err) {
		return nil, fmt.Errorf("%w\n  hint: -n names the namespace of the pod; kubectl get pods lists the pods of a Deployment", err)
	}
	if err != nil {
		return nil, err
	}
	e.requests = e.pod.requests()
	// This precedes the nodes, because it adds the resources that claims request.
	f.gatherClaims(ctx, e)
	if len(e.requests) == 0 && len(e.pod.Spec.ResourceClaims) == 0 {
		return nil, fmt.Errorf("pod %s requests no extended resource and no claim: its containers get no device\n  hint: resources.limits of a container names the resource, such as example.com/zigbee: 1", e.pod.Metadata.Path())
	}
	// The reasons in objects of Kubernetes are known without the DaemonSet.
	if err := f.gatherNodes(ctx, e); err != nil {
		e.note("the DaemonSet", err)
		return e, nil
	}
	f.gatherHolders(ctx, e)
	return e, nil
}

// inNamespace returns arguments of kubectl for a namespace, or for the namespace of its context.
func inNamespace(namespace string, args ...string) []string {
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	return args
}

// note notes what could not be read. It does nothing if err is nil.
func (e *evidence) note(what string, err error) {
	if err != nil {
		e.unread = append(e.unread, what+": "+strings.Join(lines(err), " "))
	}
}

// gatherClaims reads the claims that the pod names, and adds the resources that they request. Each
// request counts as one device. Clusters without dynamic resource allocation do not have these kinds.
// The scheduler says if a claim or its class does not exist.
func (f *Fleet) gatherClaims(ctx context.Context, e *evidence) {
	claims := e.pod.Spec.ResourceClaims
	classes, err := list[Class](ctx, f, "deviceclasses")
	e.classes = classes
	if len(claims) > 0 {
		e.note("device classes", err)
	}
	for _, c := range claims {
		var claim Claim
		name := e.pod.claimName(c)
		if name == "" {
			continue
		}
		err := f.get(ctx, &claim, "resourceclaim", name, "-n", e.pod.Metadata.Namespace)
		if !isNotFound(err) {
			e.note("claim "+name, err)
		}
		for _, r := range claim.Spec.Devices.Requests {
			if class := r.class(); class != "" {
				e.requests = append(e.requests, request{
					resource: e.classResource(class),
					count:    1,
					isClaim:  true,
				})
			}
		}
	}
}

// gatherNodes asks the node of the pod, or all nodes if it has none.
func (f *Fleet) gatherNodes(ctx context.Context, e *evidence) error {
	members, err := f.Members(ctx)
	if err != nil {
		return err
	}
	e.nodes = members.Nodes
	if members.NodesUnread != "" {
		e.unread = append(e.unread, "nodes: "+members.NodesUnread)
	}
	asked := members.List
	if node := e.pod.Spec.NodeName; node != "" {
		// The other nodes cannot explain a pod that has its node.
		if asked, err = members.on(node); err != nil {
			return err
		}
	}
	answers, err := f.statuses(ctx, asked)
	if err != nil {
		return err
	}
	for _, a := range answers {
		// What is said about all nodes may be wrong about a silent one, so the user is told.
		e.note(a.Node, a.err)
		if a.err == nil {
			e.answers = append(e.answers, a.answer)
		}
	}
	return nil
}

// maxHolders limits how many pods are read that hold devices.
const maxHolders = 50

// gatherHolders reads the pods that hold the requested devices.
func (f *Fleet) gatherHolders(ctx context.Context, e *evidence) {
	byNamespace := map[string][]string{}
	for _, h := range e.holdings() {
		_, isKnown := e.holders[h.path()]
		if isKnown || len(e.holders) == maxHolders {
			continue
		}
		// The pod is known to be missing unless the answer below has it.
		e.holders[h.path()] = nil
		byNamespace[h.holder.Namespace] = append(byNamespace[h.holder.Namespace], h.holder.Pod)
	}
	for namespace, names := range byNamespace {
		// kubectl prints a list for several names, and an object for one.
		var answer struct {
			Items []Pod
			Pod
		}
		args := append([]string{"pods", "-n", namespace, "--ignore-not-found"}, names...)
		// One call for each namespace: kubectl takes several names, but one namespace.
		err := f.get(ctx, &answer, args...)
		// With --ignore-not-found, kubectl prints nothing if no pod exists.
		if err != nil && !errors.Is(err, errEmpty) {
			e.note("pods of namespace "+namespace, err)
			for _, name := range names {
				delete(e.holders, namespace+"/"+name)
			}
			continue
		}
		for _, p := range append(answer.Items, answer.Pod) {
			if p.Metadata.Name != "" {
				e.holders[p.Metadata.Path()] = &p
			}
		}
	}
}
