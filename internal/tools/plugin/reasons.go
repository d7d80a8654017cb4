package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
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

// explanation collects the reasons for the state of a pod, which follow from the evidence.
type explanation struct {
	*evidence
	reasons []Reason
}

// add adds a reason. Its lists are not nil, for JSON.
func (x *explanation) add(rule, text string, details []string, do ...string) {
	x.reasons = append(x.reasons, Reason{
		Rule:    rule,
		Text:    text,
		Details: append([]string{}, cli.Few(details)...),
		Do:      append([]string{}, do...),
	})
}

// addIfAny adds a reason that only applies if there are details.
func (x *explanation) addIfAny(details []string, rule, text string, do ...string) {
	if len(details) > 0 {
		x.add(rule, text, details, do...)
	}
}

// explain lists the reasons in the order in which a pod meets them. The list is empty, not nil, if no
// reason is known.
func (e *evidence) explain() []Reason {
	x := explanation{
		evidence: e,
		reasons:  []Reason{},
	}
	x.unusedClaims()
	if e.pod.isWaiting() {
		for _, r := range e.requests {
			x.missing(r)
		}
		// The message of the scheduler only helps if nothing else explains it.
		if len(x.reasons) == 0 {
			x.unscheduled()
		}
	}
	if e.pod.Status.Phase == "Failed" && e.pod.Status.Reason != "" {
		x.failed()
	}
	if e.pod.isPlaced() {
		x.lost()
		x.retiring()
		x.withoutDevice()
	}
	return x.reasons
}

// unusedClaims: no container uses a claim of the pod, so that no container gets its devices.
func (x *explanation) unusedClaims() {
	used := map[string]bool{}
	for _, c := range x.pod.containers() {
		for _, claim := range c.Resources.Claims {
			used[claim.Name] = true
		}
	}
	for _, c := range x.pod.Spec.ResourceClaims {
		if !used[c.Name] {
			x.add("claim-unused", "no container uses the claim "+c.Name+" of the pod, so that none gets its device", nil,
				"add resources: {claims: [{name: "+c.Name+"}]} to the container")
		}
	}
}

// missing is why no node can give the pod a resource.
func (x *explanation) missing(r request) {
	places := x.places(r.resource)
	if len(places) == 0 {
		x.notConfigured(r)
		return
	}
	most := slices.MaxFunc(places, func(a, b place) int { return a.slots() - b.slots() })
	hasFree := slices.ContainsFunc(places, func(p place) bool { return p.free() >= r.count })
	if !slices.ContainsFunc(places, place.hasDevice) {
		x.noDevice(r, places)
		return
	}
	x.notOffered(r, places)
	switch {
	case r.count > most.slots():
		x.add("too-many", fmt.Sprintf("the pod requests %d of %s, and no node has so many", r.count, r.resource),
			[]string{fmt.Sprintf("%s has %d", most.node, most.slots())},
			"request fewer, or raise count if devices may be shared")
	case !hasFree:
		x.unhealthy(r, places)
		x.heldByOthers(r)
	}
}

// notConfigured: no configuration has the resource. It needs the answer of at least one node. A typing
// error in the name is the usual cause.
func (x *explanation) notConfigured(r request) {
	if len(x.answers) == 0 {
		return
	}
	configured := map[string]bool{}
	for _, a := range x.answers {
		for _, r := range a.Resources {
			configured[r.Name] = true
		}
	}
	known := cli.Few(slices.Sorted(maps.Keys(configured)))
	x.add("not-configured", "no node has "+r.resource+": no configuration has a resource of this name",
		[]string{"the nodes have " + cmp.Or(strings.Join(known, ", "), "none")},
		"add a [[resource]] of this name to the configuration, or correct the name in the pod")
}

// noDevice: the resource is configured, but nothing on any node matches. The details group the nodes
// by the reason that they report.
func (x *explanation) noDevice(r request, places []place) {
	nodes := map[string][]string{}
	for _, p := range places {
		why := noDevices(p.resource)
		nodes[why] = append(nodes[why], p.node)
	}
	var details []string
	for _, why := range slices.Sorted(maps.Keys(nodes)) {
		details = append(details, strings.Join(cli.Few(nodes[why]), ", ")+": "+why)
	}
	x.add("no-device", "no node has "+r.resource+": it is configured, but has no device", details,
		"resolve the reason, such as by plugging the device in or correcting the match: generic-dp explain "+r.resource+" in the DaemonSet's pod shows each condition")
}

// notOffered: a node has devices, but its kubelet does not know them, or pods cannot request by name
// what nodes only offer by DRA.
func (x *explanation) notOffered(r request, places []place) {
	var details []string
	isOnlyByDRA := true
	for _, p := range places {
		hasDevices := len(p.resource.Devices) > 0
		isByName := p.allocatable > 0 || hasDevices && p.resource.API != "dra"
		isOnlyByDRA = isOnlyByDRA && !isByName
		if p.answer != nil && p.answer.lacks(p.resource) {
			details = append(details, p.node+": "+p.resource.Reason)
		}
	}
	x.addIfAny(details, "not-registered", "the kubelet has not accepted "+r.resource+" yet",
		"wait some seconds; the log of the DaemonSet's pod on this node has the reason: kubectl logs")
	if isOnlyByDRA && !r.isClaim && x.classes != nil && !x.hasClassOf(r.resource) {
		x.add("class-missing", "nodes offer "+r.resource+" by DRA, and no DeviceClass has it as extendedResourceName", nil,
			"kubectl generic-dp classes FILE prints the classes of a configuration, for kubectl apply; dra.resources in the chart's values creates them")
	}
}

// unhealthy: devices are Unhealthy or withheld, as while a container holds the same hardware by
// another resource.
func (x *explanation) unhealthy(r request, places []place) {
	var details []string
	for _, p := range places {
		for _, problem := range problemsOf(p.resource) {
			details = append(details, p.node+": "+problem)
		}
	}
	x.addIfAny(details, "unhealthy", "devices of "+r.resource+" are not Healthy, so that no pod gets them",
		"resolve the reason, such as by plugging the device in again: it turns Healthy without further action")
}

// heldByOthers: other pods hold the devices. With the strategy RollingUpdate, the pod of a Deployment
// must usually be ready before its previous version ends, which has the only device.
func (x *explanation) heldByOthers(r request) {
	do := []string{"delete a pod that does not need it, add a device, or raise count if a device may be shared"}
	var details []string
	own := x.pod.workload()
	for _, h := range x.holdings() {
		if h.resource != r.resource {
			continue
		}
		text := h.node + ": " + h.device.ID + " is held by " + h.path()
		pod, isKnown := x.holders[h.path()]
		switch {
		case isKnown && pod == nil:
			text += ", which is deleted, but its containers still run"
		case isKnown && pod.Metadata.DeletionTimestamp != nil:
			text += ", which is terminating since " + clock(pod.Metadata.terminatingSince())
		case isKnown && own != "" && pod.isOtherVersion(&x.pod):
			text += ", the previous version of the same pod"
			do = []string{
				"the rollout waits for the new pod, and the new pod for the device: set spec.strategy.type: Recreate in " + own,
				"for this rollout: kubectl delete pod -n " + h.holder.Namespace + " " + h.holder.Pod,
			}
		}
		details = append(details, text)
	}
	x.addIfAny(details, "held", "other pods hold devices of "+r.resource, do...)
}

// unscheduled is the message of the scheduler, which has the reasons that are not about devices, with
// the nodes that have a free device.
func (x *explanation) unscheduled() {
	scheduled := condition(x.pod.Status.Conditions, "PodScheduled")
	if scheduled == nil || scheduled.Message == "" {
		return
	}
	var details []string
	var do []string
	for _, r := range x.requests {
		if r.isClaim {
			do = []string{"kubectl get devicetaintrules shows the devices that an administrator keeps pods away from"}
		}
		for _, p := range x.places(r.resource) {
			// A node that does not answer may have none.
			if p.answer != nil && p.free() >= r.count {
				details = append(details, fmt.Sprintf("%s has %d %s free", p.node, p.free(), r.resource))
			}
		}
	}
	x.add("scheduler", "the scheduler says: "+scheduled.Message, details, do...)
}

// failed: the kubelet has refused or evicted the pod. It never tries again.
func (x *explanation) failed() {
	x.add("failed", "the pod has failed on "+x.pod.Spec.NodeName+": "+x.pod.Status.Reason, []string{x.pod.Status.Message},
		"the kubelet does not try again: "+x.pod.deletion()+", then create it again; a Deployment has already replaced it")
}

// lost: the device of the pod is Unhealthy.
func (x *explanation) lost() {
	x.addIfAny(x.heldAs(status.Unhealthy), "lost", "the pod has lost its device",
		"plug it in again, then restart the container: it keeps the node that it started with until then",
		"to use another device instead: "+x.pod.deletion(),
		"container.health_dir restarts a container without further action, and generic-dp-evict moves its pod: see docs/pods.md")
}

// retiring: an edit of the configuration has removed the device of the pod, or DRA cannot publish it.
func (x *explanation) retiring() {
	x.addIfAny(x.heldAs(status.Retiring), "retiring", "the pod keeps its device, but no other pod gets it",
		"nothing while the pod runs; its successor must request a resource that the configuration has, or the reason must be resolved")
}

// heldAs are the problems of the devices of the pod that have this health.
func (x *explanation) heldAs(health string) []string {
	var details []string
	for _, h := range x.held() {
		if h.device.Health == health {
			details = append(details, h.resource+" "+problemOf(h.device))
		}
	}
	return details
}

// withoutDevice: the pod runs on a node whose kubelet has not given it the device. Kubelets start a
// static pod without the device if its resource is not registered yet. It needs the answer of the
// node, with its holders.
func (x *explanation) withoutDevice() {
	if x.pod.Status.Phase != "Running" {
		return
	}
	held := x.held()
	for _, r := range x.requests {
		if r.isClaim {
			continue // the driver knows the holders of claims by other means
		}
		places := x.places(r.resource)
		isKnown := len(places) > 0 && places[0].answer != nil && places[0].answer.HeldUnknown == ""
		has := slices.ContainsFunc(held, func(h holding) bool { return h.resource == r.resource })
		if isKnown && !has {
			x.add("without-device", "the pod runs without "+r.resource+": the kubelet has not given it a device", nil,
				"delete the pod, so that it starts again",
				`for a static pod, register = "always" in the configuration: the kubelet starts it without the device otherwise`)
		}
	}
}
