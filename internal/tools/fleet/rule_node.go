package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// schedulerSays: no other rule explains why the pod is not placed on a node. The message of the
// scheduler has the reasons, such as taints, selectors of nodes and devices, memory, and gates. It is
// the last resort, see Explain.
func schedulerSays(e *Evidence) *Reason {
	if !e.isWaiting() {
		return nil
	}
	scheduled := condition(e.Pod.Status.Conditions, "PodScheduled")
	if scheduled == nil && e.Pod.Spec.SchedulerName != "" {
		// The default scheduler sets the condition when it has failed to place a pod.
		return &Reason{
			Text: "scheduler " + e.Pod.Spec.SchedulerName + " has not considered the pod",
			Do:   []string{"check that this scheduler runs"},
		}
	}
	if scheduled == nil || scheduled.Message == "" {
		return nil
	}
	reason := &Reason{Text: "the scheduler says: " + scheduled.Message}
	for _, r := range e.Requests {
		for _, p := range e.places(r.Resource) {
			// A node that does not answer may have none.
			if p.answer != nil && p.free() >= r.Count {
				reason.Details = append(reason.Details, fmt.Sprintf("%s has %d %s free", p.node, p.free(), r.Resource))
			}
		}
	}
	reason.Details = few(reason.Details)
	return reason
}

// deviceTainted: a DRA device has a taint of an administrator. Taints of this driver mean that a
// device is not Healthy, which other rules explain.
func deviceTainted(e *Evidence) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		var details []string
		for _, s := range e.Slices {
			for _, d := range s.Spec.Devices {
				if s.Spec.Driver != Driver || d.Attributes["resource"].String != r.Resource {
					continue
				}
				for _, t := range slices.Concat(d.Taints, e.ruleTaints(&s, &d)) {
					isOurs := strings.HasPrefix(t.Key, Driver+"/")
					if !isOurs {
						details = append(details, fmt.Sprintf("%s: %s has the taint %s", s.Spec.NodeName, d.Name, t))
					}
				}
			}
		}
		return because("devices of "+r.Resource+" have a taint", details,
			"remove the DeviceTaintRule after the maintenance: kubectl get devicetaintrules, or tolerate the taint in the claim")
	})
}

// ruleTaints are the taints that DeviceTaintRules give to a device. Slices do not have them. The
// scheduler merges both.
func (e *Evidence) ruleTaints(s *Slice, d *SliceDevice) []Taint {
	var taints []Taint
	for _, rule := range e.TaintRules {
		selector := rule.Spec.DeviceSelector
		isDriver := selector.Driver == "" || selector.Driver == s.Spec.Driver
		isPool := selector.Pool == "" || selector.Pool == s.Spec.Pool.Name
		isDevice := selector.Device == "" || selector.Device == d.Name
		if isDriver && isPool && isDevice {
			taints = append(taints, rule.Spec.Taint)
		}
	}
	return taints
}
