package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/status"
)

// notConfigured: no configuration has the resource. It needs the answer of at least one node. A
// typing error in the name is the usual cause.
func notConfigured(e *Evidence) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		if len(places) > 0 || len(e.Answers) == 0 {
			return nil
		}
		reason := &Reason{
			Text: "no node has " + r.Resource + ": no configuration has a resource of this name",
			Do:   []string{"add a [[resource]] of this name to the configuration, or correct the name in the pod"},
		}
		if near := nearest(r.Resource, e.configured()); near != "" {
			reason.Details = []string{"the nearest name is " + near}
		}
		return reason
	})
}

// configured lists the names of all resources of all nodes.
func (e *Evidence) configured() []string {
	names := map[string]bool{}
	for i := range e.Answers {
		for _, name := range e.Answers[i].configured {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
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

// noDeviceAnywhere: the resource is configured, but nothing on any node matches. The details group
// the nodes by the reason that they report.
func noDeviceAnywhere(e *Evidence) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		reasons := map[string][]string{}
		for _, p := range places {
			// A node that does not answer may still have devices: the kubelet counts them.
			if len(p.resource.Devices) > 0 || p.allocatable > 0 {
				return nil
			}
			why := noDevices(p.resource)
			reasons[why] = append(reasons[why], p.node)
		}
		var details []string
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			details = append(details, joinNodes(reasons[why])+": "+why)
		}
		return because("no node has "+r.Resource+": it is configured, but no device matches", details,
			"plug the device in, or correct the match: generic-dp explain "+r.Resource+" in the DaemonSet's pod shows each condition")
	})
}

// joinNodes names a few of some nodes. nodes has at least one name.
func joinNodes(nodes []string) string {
	const most = 3
	if len(nodes) > most {
		return strings.Join(nodes[:most], ", ") + fmt.Sprintf(" and %d more", len(nodes)-most)
	}
	return strings.Join(nodes, ", ")
}

// allUnhealthy: every device of the resource is Unhealthy or withheld, as while a container holds the
// same hardware by another resource, or pods hold the Healthy ones. It applies if the Healthy devices
// do not suffice.
func allUnhealthy(e *Evidence) *Reason {
	return e.perFullRequest(func(r Request, places []place) *Reason {
		var details []string
		for _, p := range places {
			details = append(details, p.unhealthy()...)
		}
		return because("devices of "+r.Resource+" are not Healthy, so that no pod gets them", details,
			"resolve the reason, such as by plugging the device in again: it turns Healthy without further action")
	})
}

// allHeld: other pods hold the devices. It also applies if some of the devices are Unhealthy: then
// allUnhealthy applies as well.
func allHeld(e *Evidence) *Reason {
	return e.perFullRequest(func(r Request, places []place) *Reason {
		var details []string
		for _, p := range places {
			details = append(details, e.holdersOn(&p)...)
		}
		return because("other pods hold devices of "+r.Resource, details,
			"delete a pod that does not need it, add a device, or raise count if a device may be shared")
	})
}

// holdersOn lists the devices of a node that pods hold.
func (e *Evidence) holdersOn(p *place) []string {
	var all []string
	for _, d := range p.resource.Devices {
		for _, h := range d.Held {
			text := p.node + ": " + d.ID + " is held by " + h.Namespace + "/" + h.Pod
			all = append(all, text+e.holderState(h))
		}
	}
	return all
}

// holderState says whether a pod that holds a device is about to end. It is empty for a pod that
// continues to run, and for a pod that was not read, see maxHolders.
func (e *Evidence) holderState(h status.Holder) string {
	pod, isKnown := e.Holders[h.Namespace+"/"+h.Pod]
	switch {
	case !isKnown:
		return ""
	case pod == nil:
		return ", which is deleted, but its containers still run"
	case pod.Metadata.DeletionTimestamp != nil:
		return ", which is terminating since " + clock(pod.Metadata.terminatingSince())
	}
	return ""
}

// rolloutStuck: the old pod of a Deployment holds the only device, and is not deleted before the
// new one is ready. With the strategy RollingUpdate, the new pod must usually be ready before the
// old one ends.
func rolloutStuck(e *Evidence) *Reason {
	return e.perFullRequest(func(r Request, _ []place) *Reason {
		own := workload(e.Pod)
		for _, h := range e.holdings() {
			other := e.Holders[h.holder.Namespace+"/"+h.holder.Pod]
			if h.resource != r.Resource || other == nil || own == "" || !isOlderVersion(other, e.Pod) {
				continue
			}
			return &Reason{
				Text:    "the previous version of the same pod holds " + r.Resource + ": the rollout of " + own + " waits for the new pod, and the new pod waits for the device",
				Details: []string{other.Metadata.Path() + " holds " + h.device.ID + " on " + h.node},
				Do: []string{
					"set spec.strategy.type: Recreate in " + own + ", so that the old pod ends first",
					"for this rollout: kubectl delete pod -n " + other.Metadata.Namespace + " " + other.Metadata.Name,
				},
			}
		}
		return nil
	})
}

// isOlderVersion reports whether two pods are of one Deployment, but of different versions. Their
// order is not compared: the pod that waits is the newer one.
func isOlderVersion(old, next *Pod) bool {
	const hash = "pod-template-hash"
	isSame := old.Metadata.Namespace == next.Metadata.Namespace && workload(old) == workload(next)
	return isSame && old.Metadata.Labels[hash] != next.Metadata.Labels[hash]
}

// tooMany: the pod requests more than any node has. It counts held and Unhealthy devices too, so
// that waiting would not help.
func tooMany(e *Evidence) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		most := 0
		where := ""
		for _, p := range places {
			if n := p.slots(); n > most {
				most = n
				where = p.node
			}
		}
		if most == 0 || r.Count <= most {
			return nil
		}
		return &Reason{
			Text:    fmt.Sprintf("the pod requests %d of %s, and no node has so many", r.Count, r.Resource),
			Details: []string{fmt.Sprintf("%s has %d", where, most)},
			Do:      []string{"request fewer, or raise count if devices may be shared"},
		}
	})
}

// notRegistered: a node has free devices, but its kubelet does not know them.
func notRegistered(e *Evidence) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		var details []string
		for _, p := range places {
			isKnown := p.answer == nil || p.answer.Kubelet == nil || p.resource.Registered
			if !isKnown && len(p.resource.Devices) > 0 {
				details = append(details, p.node+": "+p.resource.Reason)
			}
		}
		return because("the kubelet has not accepted "+r.Resource+" yet", details,
			"wait some seconds; the log of the DaemonSet's pod on this node has the reason: kubectl logs")
	})
}

// perRequest applies a rule to each request of a pod that waits for a node, and returns the first
// result. explain gets the places of the resource, which may be none.
func (e *Evidence) perRequest(explain func(r Request, places []place) *Reason) *Reason {
	if !e.isWaiting() {
		return nil
	}
	for _, r := range e.Requests {
		if reason := explain(r, e.places(r.Resource)); reason != nil {
			return reason
		}
	}
	return nil
}

// perFullRequest is perRequest for requests that no node has enough free devices for, although a
// node has enough devices.
func (e *Evidence) perFullRequest(explain func(r Request, places []place) *Reason) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		hasEnough := false
		for _, p := range places {
			if p.free() >= r.Count {
				return nil
			}
			hasEnough = hasEnough || p.slots() >= r.Count
		}
		if !hasEnough {
			return nil
		}
		return explain(r, places)
	})
}
