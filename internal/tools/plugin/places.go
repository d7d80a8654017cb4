package plugin

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
)

// place is a requested resource on a node.
type place struct {
	node string
	// answer is nil if the node does not answer.
	answer *nodeStatus
	// resource is the zero value if the node does not answer, or does not configure it.
	resource status.Resource
	// allocatable is the number in the status of the node.
	allocatable int
}

// places lists the nodes that have or configure a resource, by name. Nodes of another device plugin
// with the same resource name count too, because the scheduler does not distinguish them.
func (e *evidence) places(resource string) []place {
	byNode := map[string]place{}
	for name, object := range e.nodes {
		n := quantity(object.Status.Allocatable[resource])
		if n > 0 {
			byNode[name] = place{node: name, allocatable: n}
		}
	}
	for i := range e.answers {
		answer := &e.answers[i]
		node := answer.Node
		for _, r := range answer.Resources {
			if r.Name != resource {
				continue
			}
			p := byNode[node]
			p.node = node
			p.answer = answer
			// While devices move between the kubelet's APIs, two resources have one name.
			if len(p.resource.Devices) == 0 {
				p.resource = r
			}
			byNode[node] = p
		}
	}
	var all []place
	for _, p := range byNode {
		all = append(all, p)
	}
	order.Sort(all, func(a, b place) int { return strings.Compare(a.node, b.node) })
	return all
}

// hasDevice reports whether the node has a device of the resource. A node that does not answer may
// still have devices: the kubelet counts them.
func (p place) hasDevice() bool { return len(p.resource.Devices) > 0 || p.allocatable > 0 }

// free is the number of healthy slots that nobody holds. A node that does not answer may have some:
// the scheduler knows better. If the holders are unknown, every healthy slot counts as free.
func (p place) free() int {
	if p.answer == nil {
		return p.allocatable
	}
	if p.resource.Slots.Free != nil {
		return *p.resource.Slots.Free
	}
	return p.resource.Slots.Healthy
}

// slots is the number of all slots, free or not.
func (p place) slots() int {
	if p.answer == nil {
		return p.allocatable
	}
	return p.resource.Slots.All()
}

// holding is a device that a container holds.
type holding struct {
	node     string
	resource string
	device   status.Device
	holder   status.Holder
}

// path is the namespace and the name of the pod.
func (h *holding) path() string { return h.holder.Namespace + "/" + h.holder.Pod }

// holdings lists the requested devices that containers hold, as their nodes report it. A container is listed once
// for each slot that it holds. The result is empty if the holders are unknown.
func (e *evidence) holdings() []holding {
	var all []holding
	for i := range e.answers {
		answer := &e.answers[i]
		for _, r := range answer.Resources {
			isRequested := slices.ContainsFunc(e.requests, func(q request) bool { return q.resource == r.Name })
			if !isRequested {
				continue
			}
			for _, d := range r.Devices {
				for _, h := range d.Held {
					all = append(all, holding{
						node:     answer.Node,
						resource: r.Name,
						device:   d,
						holder:   h,
					})
				}
			}
		}
	}
	return all
}

// held lists the devices that the pod holds.
func (e *evidence) held() []holding {
	return slices.DeleteFunc(e.holdings(), func(h holding) bool { return h.path() != e.pod.Metadata.Path() })
}
