package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/status"
)

// Reason is one explanation, and what to do.
type Reason struct {
	// Rule is the name of the reason. The names are an API.
	Rule string `json:"rule"`
	// Text is one sentence, Details are the facts behind it, and Do says what to do. Both lists may be
	// empty, but are not nil.
	Text    string   `json:"text"`
	Details []string `json:"details"`
	Do      []string `json:"do"`
}

// explain lists the reasons in the order in which a pod meets them. The list is empty, not nil, if no
// reason is known.
func (e *evidence) explain() []Reason {
	reasons := []Reason{}
	reasons = append(reasons, e.unusedClaims()...)
	if e.pod.isWaiting() {
		for _, r := range e.requests {
			reasons = append(reasons, e.missing(r)...)
		}
		reasons = append(reasons, e.tainted()...)
		// The message of the scheduler only helps if nothing else explains it.
		if len(reasons) == 0 {
			reasons = e.unscheduled()
		}
	}
	if e.pod.Status.Phase == "Failed" && e.pod.Status.Reason != "" {
		reasons = append(reasons, e.failed())
	}
	if e.pod.isPlaced() {
		reasons = append(reasons, e.lost()...)
		reasons = append(reasons, e.withoutDevice()...)
	}
	for i := range reasons {
		reasons[i].Details = append([]string{}, few(reasons[i].Details)...)
		reasons[i].Do = append([]string{}, reasons[i].Do...)
	}
	return reasons
}

// few returns the first lines, and how many more there are: 500 nodes may have the same reason. It
// does not change lines.
func few(lines []string) []string {
	const most = 8
	if len(lines) <= most {
		return lines
	}
	more := fmt.Sprintf("and %d more", len(lines)-most)
	return append(lines[:most:most], more)
}

// unusedClaims: no container uses a claim of the pod, so that no container gets its devices.
func (e *evidence) unusedClaims() []Reason {
	used := map[string]bool{}
	for _, c := range e.pod.containers() {
		for _, claim := range c.Resources.Claims {
			used[claim.Name] = true
		}
	}
	var reasons []Reason
	for _, c := range e.pod.Spec.ResourceClaims {
		if !used[c.Name] {
			reasons = append(reasons, Reason{
				Rule: "claim-unused",
				Text: "no container uses the claim " + c.Name + " of the pod, so that none gets its device",
				Do:   []string{"add resources: {claims: [{name: " + c.Name + "}]} to the container"},
			})
		}
	}
	return reasons
}

// missing is why no node can give the pod a resource.
func (e *evidence) missing(r request) []Reason {
	places := e.places(r.resource)
	if len(places) == 0 {
		return e.notConfigured(r)
	}
	if slices.IndexFunc(places, func(p place) bool { return !p.isEmpty() }) < 0 {
		return []Reason{noDevice(r, places)}
	}
	reasons := e.notOffered(r, places)
	most := slices.MaxFunc(places, func(a, b place) int { return a.slots() - b.slots() })
	if r.count > most.slots() {
		return append(reasons, Reason{
			Rule:    "too-many",
			Text:    fmt.Sprintf("the pod requests %d of %s, and no node has so many", r.count, r.resource),
			Details: []string{fmt.Sprintf("%s has %d", most.node, most.slots())},
			Do:      []string{"request fewer, or raise count if devices may be shared"},
		})
	}
	hasFree := slices.ContainsFunc(places, func(p place) bool { return p.free() >= r.count })
	if hasFree {
		return reasons
	}
	reasons = append(reasons, unhealthy(r, places)...)
	return append(reasons, e.heldByOthers(r)...)
}

// notConfigured: no configuration has the resource. It needs the answer of at least one node. A typing
// error in the name is the usual cause.
func (e *evidence) notConfigured(r request) []Reason {
	if len(e.answers) == 0 {
		return nil
	}
	reason := Reason{
		Rule: "not-configured",
		Text: "no node has " + r.resource + ": no configuration has a resource of this name",
		Do:   []string{"add a [[resource]] of this name to the configuration, or correct the name in the pod"},
	}
	var configured []string
	for _, a := range e.answers {
		configured = append(configured, a.configured...)
	}
	if near := nearest(r.resource, configured); near != "" {
		reason.Details = []string{"the nearest name is " + near}
	}
	return []Reason{reason}
}

// nearest returns the name that is most similar, empty if none is similar. A name with another
// domain and the same local part counts as similar.
func nearest(name string, all []string) string {
	const maxEdits = 5
	best := ""
	fewest := min(maxEdits, len(name)/2)
	for _, other := range all {
		edits := pattern.Distance(name, other)
		_, local, _ := strings.Cut(name, "/")
		if status.IsNamed(other, local) {
			edits = 1 // only the domain differs
		}
		if edits <= fewest && (best == "" || edits < fewest) {
			best = other
			fewest = edits
		}
	}
	return best
}

// noDevice: the resource is configured, but nothing on any node matches. The details group the nodes
// by the reason that they report.
func noDevice(r request, places []place) Reason {
	nodes := map[string][]string{}
	for _, p := range places {
		why := noDevices(p.resource)
		nodes[why] = append(nodes[why], p.node)
	}
	var details []string
	for _, why := range slices.Sorted(maps.Keys(nodes)) {
		details = append(details, strings.Join(few(nodes[why]), ", ")+": "+why)
	}
	return Reason{
		Rule:    "no-device",
		Text:    "no node has " + r.resource + ": it is configured, but no device matches",
		Details: details,
		Do: []string{
			"plug the device in, or correct the match: generic-dp explain " + r.resource + " in the DaemonSet's pod shows each condition",
		},
	}
}

// notOffered: a node has devices, but its kubelet does not know them, or pods cannot request by name
// what nodes only offer by DRA.
func (e *evidence) notOffered(r request, places []place) []Reason {
	var reasons []Reason
	var details []string
	isOnlyByDRA := true
	for _, p := range places {
		if len(p.resource.Devices) == 0 {
			isOnlyByDRA = isOnlyByDRA && p.allocatable == 0
			continue
		}
		isOnlyByDRA = isOnlyByDRA && p.allocatable == 0 && p.resource.API == "dra"
		if p.answer.Kubelet != nil && !p.resource.Registered {
			details = append(details, p.node+": "+p.resource.Reason)
		}
	}
	if len(details) > 0 {
		reasons = append(reasons, Reason{
			Rule:    "not-registered",
			Text:    "the kubelet has not accepted " + r.resource + " yet",
			Details: details,
			Do: []string{
				"wait some seconds; the log of the DaemonSet's pod on this node has the reason: kubectl logs",
			},
		})
	}
	if isOnlyByDRA && !r.isClaim && e.classes != nil && !e.hasClassOf(r.resource) {
		reasons = append(reasons, Reason{
			Rule: "class-missing",
			Text: "nodes offer " + r.resource + " by DRA, and no DeviceClass has it as extendedResourceName",
			Do: []string{
				"kubectl generic-dp classes FILE prints the classes of a configuration, for kubectl apply; dra.resources in the chart's values creates them",
			},
		})
	}
	return reasons
}

// unhealthy: devices are Unhealthy or withheld, as while a container holds the same hardware by
// another resource.
func unhealthy(r request, places []place) []Reason {
	var details []string
	for _, p := range places {
		for _, d := range p.resource.Devices {
			if d.Health != status.Healthy {
				since := sinceText(p.answer.since(r.resource, d.ID))
				details = append(details, p.node+": "+d.ID+" is "+d.Health+since+": "+d.Reason)
			}
		}
	}
	if len(details) == 0 {
		return nil
	}
	return []Reason{{
		Rule:    "unhealthy",
		Text:    "devices of " + r.resource + " are not Healthy, so that no pod gets them",
		Details: details,
		Do: []string{
			"resolve the reason, such as by plugging the device in again: it turns Healthy without further action",
		},
	}}
}

// heldByOthers: other pods hold the devices. With the strategy RollingUpdate, the pod of a Deployment
// must usually be ready before its previous version ends, which has the only device.
func (e *evidence) heldByOthers(r request) []Reason {
	reason := Reason{
		Rule: "held",
		Text: "other pods hold devices of " + r.resource,
	}
	own := e.pod.workload()
	for _, h := range e.holdings() {
		if h.resource != r.resource {
			continue
		}
		text := h.node + ": " + h.device.ID + " is held by " + h.path()
		pod, isKnown := e.holders[h.path()]
		switch {
		case isKnown && pod == nil:
			text += ", which is deleted, but its containers still run"
		case isKnown && pod.Metadata.DeletionTimestamp != nil:
			text += ", which is terminating since " + clock(pod.Metadata.terminatingSince())
		case isKnown && own != "" && pod.isOtherVersion(&e.pod):
			text += ", the previous version of the same pod"
			reason.Do = []string{
				"the rollout waits for the new pod, and the new pod for the device: set spec.strategy.type: Recreate in " + own,
				"for this rollout: kubectl delete pod -n " + h.holder.Namespace + " " + h.holder.Pod,
			}
		}
		reason.Details = append(reason.Details, text)
	}
	if len(reason.Details) == 0 {
		return nil
	}
	if reason.Do == nil {
		reason.Do = []string{"delete a pod that does not need it, add a device, or raise count if a device may be shared"}
	}
	return []Reason{reason}
}

// tainted: an administrator has tainted devices of this driver. Taints in its slices mean that a
// device is not Healthy, which is another reason.
func (e *evidence) tainted() []Reason {
	var details []string
	for _, rule := range e.taintRules {
		s := rule.Spec.DeviceSelector
		if s.Driver == "" || s.Driver == Driver {
			where := strings.Trim(s.Pool+" "+s.Device, " ")
			details = append(details, strings.TrimSuffix(rule.Metadata.Name+": "+rule.Spec.Taint.String()+" for "+where, " for "))
		}
	}
	isByDRA := slices.ContainsFunc(e.requests, func(r request) bool {
		return r.isClaim || e.hasClassOf(r.resource)
	})
	if len(details) == 0 || !isByDRA {
		return nil
	}
	return []Reason{{
		Rule:    "device-taint",
		Text:    "DeviceTaintRules keep pods away from devices of this driver",
		Details: details,
		Do: []string{
			"remove the rule after the maintenance: kubectl get devicetaintrules, or tolerate the taint in the claim",
		},
	}}
}

// unscheduled is the message of the scheduler, which has the reasons that are not about devices, with
// the nodes that have a free device.
func (e *evidence) unscheduled() []Reason {
	scheduled := condition(e.pod.Status.Conditions, "PodScheduled")
	if scheduled == nil || scheduled.Message == "" {
		return nil
	}
	reason := Reason{
		Rule: "scheduler",
		Text: "the scheduler says: " + scheduled.Message,
	}
	for _, r := range e.requests {
		for _, p := range e.places(r.resource) {
			// A node that does not answer may have none.
			if p.answer != nil && p.free() >= r.count {
				reason.Details = append(reason.Details, fmt.Sprintf("%s has %d %s free", p.node, p.free(), r.resource))
			}
		}
	}
	return []Reason{reason}
}

// failed: the kubelet has refused or evicted the pod. It never tries again.
func (e *evidence) failed() Reason {
	return Reason{
		Rule:    "failed",
		Text:    "the pod has failed on " + e.pod.Spec.NodeName + ": " + e.pod.Status.Reason,
		Details: []string{e.pod.Status.Message},
		Do: []string{
			"the kubelet does not try again: kubectl delete pod -n " + e.pod.Metadata.Namespace + " " + e.pod.Metadata.Name +
				", and create it again; a Deployment has done that by itself",
		},
	}
}

// lost: the device of the pod is not Healthy any more.
func (e *evidence) lost() []Reason {
	var details []string
	for _, h := range e.held() {
		if h.device.Health != status.Healthy {
			details = append(details, h.resource+" "+h.device.ID+" is Unhealthy"+sinceText(h.since)+": "+h.device.Reason)
		}
	}
	if len(details) == 0 {
		return nil
	}
	return []Reason{{
		Rule:    "lost",
		Text:    "the pod has lost its device",
		Details: details,
		Do: []string{
			"plug it in again, then restart the container: it keeps the node that it started with until then",
			"to use another device instead: kubectl delete pod -n " + e.pod.Metadata.Namespace + " " + e.pod.Metadata.Name,
			"container.health_dir restarts a container without further action, and generic-dp-evict moves its pod: see docs/pods.md",
		},
	}}
}

// withoutDevice: the pod runs on a node whose kubelet has not given it the device. Kubelets start a
// static pod without the device if its resource is not registered yet. It needs the answer of the
// node, with its holders.
func (e *evidence) withoutDevice() []Reason {
	if e.pod.Status.Phase != "Running" {
		return nil
	}
	held := e.held()
	var reasons []Reason
	for _, r := range e.requests {
		if r.isClaim {
			continue // the driver knows the holders of claims by other means
		}
		places := e.places(r.resource)
		isKnown := len(places) > 0 && places[0].answer != nil && places[0].answer.HeldUnknown == ""
		has := slices.ContainsFunc(held, func(h holding) bool { return h.resource == r.resource })
		if !isKnown || has {
			continue
		}
		reasons = append(reasons, Reason{
			Rule: "without-device",
			Text: "the pod runs without " + r.resource + ": the kubelet has not given it a device",
			Do: []string{
				"delete the pod, so that it starts again",
				`for a static pod, register = "always" in the configuration: the kubelet starts it without the device otherwise`,
			},
		})
	}
	return reasons
}
