package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// excludedBySelector: nodes with a free device have not the labels that the pod wants. It does not
// apply if one of the nodes matches.
func excludedBySelector(e *Evidence) *Reason {
	return e.perFreeNode(func(r Request, nodes []*Node) *Reason {
		var details []string
		for _, n := range nodes {
			missing := unmatched(&e.Pod.Spec, n)
			if missing == "" {
				return nil
			}
			details = append(details, n.Metadata.Name+": "+missing)
		}
		return &Reason{
			Text:    "the pod does not select any node that has a free " + r.Resource,
			Details: few(details),
			Do:      []string{"change nodeSelector or affinity of the pod, or label the node: kubectl label node"},
		}
	})
}

// unmatched returns which part of nodeSelector or of the required node affinity a node does not
// match, empty if it matches both. The scheduler requires both.
func unmatched(spec *PodSpec, n *Node) string {
	for key, want := range spec.NodeSelector {
		if got, ok := n.Metadata.Labels[key]; !ok {
			return "it has no label " + key + "=" + want
		} else if got != want {
			return "its label is " + key + "=" + got + ", not " + want
		}
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		if term.matches(n) {
			return ""
		}
	}
	return "it does not match the required node affinity"
}

// matches reports whether all expressions of a term hold. The only field is the node's name. A term
// without expressions matches no node, as in the API.
func (t *SelectorTerm) matches(n *Node) bool {
	for _, expr := range t.MatchExpressions {
		value, ok := n.Metadata.Labels[expr.Key]
		if !expr.matches(value, ok) {
			return false
		}
	}
	for _, expr := range t.MatchFields {
		if !expr.matches(n.Metadata.Name, true) {
			return false
		}
	}
	return len(t.MatchExpressions)+len(t.MatchFields) > 0
}

// matches reports whether an expression holds for a label. value is the label of the node, empty if
// exists is false. An unknown operator never holds.
func (x *Expression) matches(value string, exists bool) bool {
	switch x.Operator {
	case "In":
		return exists && slices.Contains(x.Values, value)
	case "NotIn":
		return !exists || !slices.Contains(x.Values, value)
	case "Exists":
		return exists
	case "DoesNotExist":
		return !exists
	case "Gt", "Lt":
		return exists && len(x.Values) == 1 && x.compares(value)
	}
	return false
}

// compares compares numbers, which labels have as texts. It is false if either is not a number.
func (x *Expression) compares(value string) bool {
	number, err := strconv.Atoi(value)
	limit, limitErr := strconv.Atoi(x.Values[0])
	if err != nil || limitErr != nil {
		return false
	}
	if x.Operator == "Gt" {
		return number > limit
	}
	return number < limit
}

// excludedByTaint: nodes with a free device, which the pod selects, have a taint that it does not
// tolerate. It does not apply if the pod tolerates all taints of one of these nodes.
func excludedByTaint(e *Evidence) *Reason {
	return e.perFreeNode(func(r Request, nodes []*Node) *Reason {
		var details []string
		for _, n := range nodes {
			if unmatched(&e.Pod.Spec, n) != "" {
				continue
			}
			taint := untolerated(&e.Pod.Spec, n)
			if taint == "" {
				return nil
			}
			details = append(details, n.Metadata.Name+": "+taint)
		}
		if len(details) == 0 {
			return nil
		}
		return &Reason{
			Text:    "nodes that have a free " + r.Resource + " have a taint that the pod does not tolerate",
			Details: few(details),
			Do:      []string{"add a toleration to the pod, or remove the taint: kubectl taint node, or kubectl uncordon"},
		}
	})
}

// untolerated returns the first taint of a node that keeps the pod away, empty if there is none.
func untolerated(spec *PodSpec, n *Node) string {
	for _, t := range n.Spec.Taints {
		if t.Effect == "PreferNoSchedule" || spec.tolerates(t) {
			continue
		}
		// kubectl cordon causes this taint.
		if t.Key == "node.kubernetes.io/unschedulable" {
			return "it is cordoned"
		}
		return t.String()
	}
	return ""
}

// tolerates reports whether a pod tolerates a taint. Empty keys and effects mean all.
func (spec *PodSpec) tolerates(t Taint) bool {
	return slices.ContainsFunc(spec.Tolerations, func(o Toleration) bool {
		isKey := o.Key == t.Key || o.Key == "" && o.Operator == "Exists"
		isEffect := o.Effect == "" || o.Effect == t.Effect
		isValue := o.Operator == "Exists" || o.Value == t.Value
		return isKey && isEffect && isValue
	})
}

// schedulerSays: nodes have a free device, and no other rule explains why the pod is not placed
// there. The message of the scheduler may explain it. It is the last resort, see Explain.
func schedulerSays(e *Evidence) *Reason {
	if !e.isWaiting() {
		return nil
	}
	scheduled := condition(e.Pod.Status.Conditions, "PodScheduled")
	if scheduled == nil || scheduled.Message == "" {
		// The default scheduler sets the condition when it has failed to place a pod.
		if scheduled == nil && e.Pod.Spec.SchedulerName != "" {
			return &Reason{
				Text: "scheduler " + e.Pod.Spec.SchedulerName + " has not considered the pod",
				Do:   []string{"check that this scheduler runs"},
			}
		}
		return nil
	}
	return &Reason{Text: "the scheduler says: " + scheduled.Message}
}

// perFreeNode applies a rule to the first request that nodes have enough free devices for. Without
// the right to read nodes nothing is known about them. explain gets the nodes sorted by name.
func (e *Evidence) perFreeNode(explain func(r Request, nodes []*Node) *Reason) *Reason {
	return e.perRequest(func(r Request, places []place) *Reason {
		var nodes []*Node
		for _, p := range places {
			if p.free() >= r.Count && p.object != nil {
				nodes = append(nodes, p.object)
			}
		}
		if len(nodes) == 0 {
			return nil
		}
		return explain(r, nodes)
	})
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
		if len(details) == 0 {
			return nil
		}
		return &Reason{
			Text:    "devices of " + r.Resource + " have a taint",
			Details: few(details),
			Do:      []string{"remove the DeviceTaintRule after the maintenance: kubectl get devicetaintrules, or tolerate the taint in the claim"},
		}
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
