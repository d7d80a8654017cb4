package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

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

// Why explains why a pod does not start, or why it has lost its device. The namespace may be empty
// for the namespace of kubectl's context. The error means that nothing can be said, for example
// because the pod requests no device.
func (f *Fleet) Why(ctx context.Context, namespace, name string) (*WhyReport, error) {
	e, err := f.gather(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	report := &WhyReport{
		Namespace: e.Namespace,
		Pod:       e.Name,
		State:     e.state(),
		Reasons:   e.Explain(),
		Unread:    append([]string{}, e.Unread...),
	}
	// A rule about all nodes may be wrong about a silent one, so the user is told.
	for _, n := range e.Silent {
		report.Unread = append(report.Unread, n.Node+": "+strings.Join(n.Problems, "; "))
	}
	return report, nil
}

// state describes the pod in a few words.
func (e *Evidence) state() string {
	if e.Pod == nil {
		return "does not exist"
	}
	text := e.Pod.Status.Phase
	// The phase of a pod that is being deleted stays Running.
	if e.Pod.Metadata.DeletionTimestamp != nil {
		text = "terminating"
	}
	if e.Pod.Spec.NodeName == "" {
		return text + ", not scheduled"
	}
	text += " on " + e.Pod.Spec.NodeName
	if e.Pod.Status.Reason != "" {
		text += ", " + e.Pod.Status.Reason
	}
	return text
}

// gather reads the evidence. What cannot be read is noted, unless nothing can be said without it.
func (f *Fleet) gather(ctx context.Context, namespace, name string) (*Evidence, error) {
	e := &Evidence{
		Name:      name,
		Namespace: namespace,
		Holders:   map[string]*Pod{},
	}
	pod := &Pod{}
	// Everything else depends on the pod, so it is read first.
	err := f.get(ctx, pod, inNamespace(namespace, "pod", name)...)
	if isNotFound(err) {
		return e, f.gatherMissing(ctx, e, err)
	}
	if err != nil {
		return nil, err
	}
	e.Pod = pod
	e.Namespace = pod.Metadata.Namespace
	e.Requests = pod.requests()
	// The UID leaves out events of an earlier pod of the same name, such as one of a StatefulSet.
	selector := "involvedObject.name=" + name + ",involvedObject.uid=" + pod.Metadata.UID
	e.Events, err = list[Event](ctx, f, "events", "-n", e.Namespace, "--field-selector", selector)
	e.note("events", err)
	// This precedes the nodes, because it adds the resources that claims request.
	f.gatherClaims(ctx, e)
	if len(e.Requests) == 0 && len(pod.Spec.ResourceClaims) == 0 {
		return nil, fmt.Errorf("pod %s requests no extended resource and no claim: its containers get no device\n  hint: resources.limits of a container names the resource, such as example.com/zigbee: 1", pod.Metadata.Path())
	}
	// The rules about objects of Kubernetes still work without the DaemonSet.
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
func (e *Evidence) note(what string, err error) {
	if err != nil {
		e.Unread = append(e.Unread, what+": "+strings.Join(lines(err), " "))
	}
}

// gatherMissing looks for events of an object that cannot create the pod. If there is none, it
// returns the error of kubectl, with the names of similar pods.
func (f *Fleet) gatherMissing(ctx context.Context, e *Evidence, missing error) error {
	events, err := list[Event](ctx, f, inNamespace(e.Namespace, "events", "--field-selector", "reason=FailedCreate")...)
	for _, event := range events {
		// The name of a pod that was not created is not known: its owner has the event.
		if e.creates(event.InvolvedObject.Name) {
			e.Events = append(e.Events, event)
		}
	}
	if err == nil && len(e.Events) > 0 {
		// Only kubectl knows the namespace of its context. The event has it.
		if e.Namespace == "" {
			e.Namespace = e.Events[0].Metadata.Namespace
		}
		return nil
	}
	var similar []string
	// Without these names, the error is less helpful but still right.
	pods, _ := list[Pod](ctx, f, inNamespace(e.Namespace, "pods")...)
	for _, p := range pods {
		if strings.HasPrefix(p.Metadata.Name, e.Name+"-") {
			similar = append(similar, p.Metadata.Name)
		}
	}
	if len(similar) > 0 {
		return fmt.Errorf("%w\n  hint: pods with this prefix: %s", missing, strings.Join(few(similar), ", "))
	}
	return fmt.Errorf("%w\n  hint: -n names the namespace of the pod", missing)
}

// gatherClaims reads the claims of the pod and what they may get. Clusters without dynamic resource
// allocation do not have these kinds.
func (f *Fleet) gatherClaims(ctx context.Context, e *Evidence) {
	names := []string{}
	for _, c := range e.Pod.Spec.ResourceClaims {
		// A claim that was not made yet is found by claimMissing.
		if name := e.Pod.claimName(c); name != "" {
			names = append(names, name)
		}
	}
	if extended := e.Pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	hasClaims := len(e.Pod.Spec.ResourceClaims) > 0
	// Classes are needed first: an extended resource may stand for one, in a pod without any claim.
	classes, classErr := list[Class](ctx, f, "deviceclasses")
	e.Classes = classes
	e.ClassesKnown = classErr == nil
	mayUseDRA := hasClaims || len(names) > 0 || slices.ContainsFunc(e.Requests, func(r Request) bool {
		return slices.ContainsFunc(e.Classes, func(c Class) bool { return c.Spec.ExtendedResourceName == r.Resource })
	})
	// An error about classes does not matter then.
	if !mayUseDRA {
		return
	}
	e.note("device classes", classErr)
	for _, name := range names {
		var c Claim
		err := f.get(ctx, &c, "resourceclaim", name, "-n", e.Namespace)
		if err == nil {
			e.Claims = append(e.Claims, c)
		} else if !isNotFound(err) {
			e.note("claim "+name, err)
		}
	}
	listed, err := list[Slice](ctx, f, "resourceslices")
	e.note("resource slices", err)
	for _, s := range listed {
		if s.Spec.Driver == Driver {
			e.Slices = append(e.Slices, s)
		}
	}
	// Only since Kubernetes 1.37 without a feature gate.
	e.TaintRules, _ = list[TaintRule](ctx, f, "devicetaintrules")
	if hasClaims {
		e.addClaims()
	}
}

// gatherNodes asks the node of the pod, or all nodes if it has none.
func (f *Fleet) gatherNodes(ctx context.Context, e *Evidence) error {
	members, err := f.Members(ctx)
	if err != nil {
		return err
	}
	e.Nodes = members.Nodes
	if members.NodesUnread != "" {
		e.Unread = append(e.Unread, "nodes: "+members.NodesUnread)
	}
	asked := members.List
	if node := e.Pod.Spec.NodeName; node != "" {
		// The other nodes cannot explain a pod that has its node.
		if asked, err = members.on(node); err != nil {
			return err
		}
	}
	selects := func(resource string) bool {
		return slices.ContainsFunc(e.Requests, func(r Request) bool { return r.Resource == resource })
	}
	answers, failed, err := f.statuses(ctx, asked, selects)
	if err != nil {
		return err
	}
	for i, err := range failed {
		if err != nil {
			e.Silent = append(e.Silent, NodeState{Node: asked[i].Node, Problems: lines(err)})
			continue
		}
		e.Answers = append(e.Answers, answers[i])
	}
	// Only the node of the pod was asked.
	if e.isPlaced() && len(e.Answers) == 1 {
		f.gatherPermissions(ctx, e, &asked[0])
	}
	return nil
}

// gatherPermissions reads owner and mode of the nodes of the devices that the pod holds. It does so
// only for containers that do not run as root: this costs another call.
func (f *Fleet) gatherPermissions(ctx context.Context, e *Evidence, m *Member) {
	held := e.held()
	needed := slices.ContainsFunc(held, func(h holding) bool {
		id, isKnown := e.identity(h.holder.Container)
		return isKnown && id.UID != 0 && h.device.Health == status.Healthy
	})
	if !needed {
		return
	}
	asked := map[string]bool{}
	for _, h := range held {
		if asked[h.resource] {
			continue
		}
		asked[h.resource] = true
		// each is used for its timeout.
		explained, failed, _ := each(ctx, f, []Member{*m}, func(ctx context.Context, m *Member) (explained answer.Explain, err error) {
			err = f.ask(ctx, m, &explained, "explain", h.resource)
			return explained, err
		})
		e.note("owners of nodes on "+m.Node, failed[0])
		e.Permissions = append(e.Permissions, explained[0].Nodes...)
	}
}

// maxHolders limits how many pods are read that hold devices.
const maxHolders = 50

// gatherHolders reads the pods that hold the requested devices. A pod that does not exist any more
// is nil.
func (f *Fleet) gatherHolders(ctx context.Context, e *Evidence) {
	byNamespace := map[string][]string{}
	count := 0
	for _, h := range e.holdings() {
		key := h.holder.Namespace + "/" + h.holder.Pod
		if _, isKnown := e.Holders[key]; isKnown || count == maxHolders {
			continue
		}
		count++
		// The pod is known to be missing unless the answer below has it.
		e.Holders[key] = nil
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
				delete(e.Holders, namespace+"/"+name)
			}
			continue
		}
		for _, p := range append(answer.Items, answer.Pod) {
			if p.Metadata.Name != "" {
				e.Holders[p.Metadata.Path()] = &p
			}
		}
	}
}
