package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

// Driver is the name of this program's DRA driver.
const Driver = "generic-dp.github.io"

// Evidence is everything that may explain the state of a pod. gather.go reads it, and the rules
// only look at it.
type Evidence struct {
	// Name and Namespace are what the user asked about.
	Name      string
	Namespace string
	// Pod is nil if it does not exist.
	Pod *Pod
	// Events of the pod, or of the objects that should have created it.
	Events []Event
	// Requests are the extended resources that the pod requests, by name or by claims.
	Requests []Request
	// Nodes are all nodes by name. They are nil if they may not be read.
	Nodes map[string]*Node
	// Answers are the nodes that have answered. Of their resources, only the requested ones are
	// kept.
	Answers []nodeStatus
	// Silent is why nodes have not answered.
	Silent []NodeState
	// Holders are the pods that hold requested devices, by namespace/name.
	Holders map[string]*Pod

	// Claims of the pod, and what they may get.
	Claims []Claim
	// Slices are only the slices of this driver.
	Slices  []Slice
	Classes []Class
	// ClassesKnown is set if the classes could be read.
	ClassesKnown bool
	// TaintRules are empty in clusters that do not have this kind.
	TaintRules []TaintRule

	// Permissions are the nodes in /dev of devices that the pod holds.
	Permissions []answer.Node

	// Unread is what could not be read, and why.
	Unread []string
}

// Request is a number of devices that a pod requests.
type Request struct {
	Resource string
	// Count is the sum over all containers. For a claim it is 1.
	Count int
	// Class is the DeviceClass of a claim. It is empty for an extended resource.
	Class string
}

// isExtended reports whether a name is the name of an extended resource. Names without a domain and
// names in the domain kubernetes.io belong to Kubernetes.
func isExtended(name string) bool {
	domain, _, hasDomain := strings.Cut(name, "/")
	isNative := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
	return hasDomain && !isNative
}

// requests lists the extended resources of a pod's containers. They are sorted by name. For
// extended resources, requests equal limits. The kubelet reuses the devices of init containers, so
// the sum is an upper bound.
func (p *Pod) requests() []Request {
	var all []Request
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for name, text := range c.Resources.Limits {
			if !isExtended(name) {
				continue
			}
			i := slices.IndexFunc(all, func(r Request) bool { return r.Resource == name })
			if i < 0 {
				all = append(all, Request{Resource: name})
				i = len(all) - 1
			}
			all[i].Count += quantity(text)
		}
	}
	order.Sort(all, func(a, b Request) int { return strings.Compare(a.Resource, b.Resource) })
	return all
}

// The states of a pod that decide which rules apply.

// isWaiting reports whether the scheduler has not found a node.
func (e *Evidence) isWaiting() bool {
	return e.Pod != nil && e.Pod.Spec.NodeName == "" && e.Pod.Status.Phase == "Pending"
}

// isPlaced reports whether the pod is on a node and has not ended. Its containers may not have
// started yet.
func (e *Evidence) isPlaced() bool {
	if e.Pod == nil || e.Pod.Spec.NodeName == "" {
		return false
	}
	return e.Pod.Status.Phase != "Failed" && e.Pod.Status.Phase != "Succeeded"
}

// place is a requested resource on a node.
type place struct {
	node string
	// object is nil if the nodes may not be read.
	object *Node
	// answer is nil if the node does not answer.
	answer *nodeStatus
	// resource is the zero value if the node does not answer, or does not configure it.
	resource status.Resource
	// allocatable is the number in the status of the node.
	allocatable int
}

// places lists the nodes that have or configure a resource, by name. Nodes of another device plugin
// with the same resource name count too, because the scheduler does not distinguish them.
func (e *Evidence) places(resource string) []place {
	byNode := map[string]place{}
	for name, object := range e.Nodes {
		n := quantity(object.Status.Allocatable[resource])
		if n > 0 {
			byNode[name] = place{
				node:        name,
				object:      object,
				allocatable: n,
			}
		}
	}
	for i := range e.Answers {
		answer := &e.Answers[i]
		for _, r := range answer.Resources {
			if r.Name != resource {
				continue
			}
			p := byNode[answer.Member.Node]
			hadDevices := len(p.resource.Devices) > 0
			p.node = answer.Member.Node
			p.object = e.Nodes[answer.Member.Node]
			p.answer = answer
			// While devices move between the kubelet's APIs, two resources have one name.
			if !hadDevices {
				p.resource = r
			}
			byNode[answer.Member.Node] = p
		}
	}
	var all []place
	for _, p := range byNode {
		all = append(all, p)
	}
	order.Sort(all, func(a, b place) int { return strings.Compare(a.node, b.node) })
	return all
}

// free is the number of healthy slots that nobody holds. A node that does not answer may have some:
// the scheduler knows better. If the holders are unknown, every healthy slot counts as free.
func (p *place) free() int {
	if p.answer == nil {
		return p.allocatable
	}
	if p.resource.Slots.Free != nil {
		return *p.resource.Slots.Free
	}
	return p.resource.Slots.Healthy
}

// slots is the number of all slots, free or not.
func (p *place) slots() int {
	if p.answer == nil {
		return p.allocatable
	}
	return p.resource.Slots.All()
}

// unhealthy lists the devices that are not Healthy, with time and reason. It is empty if the node
// does not answer.
func (p *place) unhealthy() []string {
	var all []string
	for _, d := range p.resource.Devices {
		if d.Health == status.Healthy {
			continue
		}
		since := p.answer.since(p.resource.Name, d.ID)
		all = append(all, p.node+": "+d.ID+" is "+d.Health+sinceText(since)+": "+d.Reason)
	}
	return all
}

// holdings lists the devices that containers hold, as their nodes report it. A container is listed once
// for each slot that it holds. The result is empty if the holders are unknown.
func (e *Evidence) holdings() []holding {
	var all []holding
	for i := range e.Answers {
		answer := &e.Answers[i]
		for _, r := range answer.Resources {
			for _, d := range r.Devices {
				for _, h := range d.Held {
					all = append(all, holding{
						node:     answer.Member.Node,
						resource: r.Name,
						device:   d,
						holder:   h,
						since:    answer.since(r.Name, d.ID),
					})
				}
			}
		}
	}
	return all
}

// held lists the devices that the pod holds.
func (e *Evidence) held() []holding {
	if e.Pod == nil {
		return nil
	}
	return slices.DeleteFunc(e.holdings(), func(h holding) bool {
		return h.holder.Namespace != e.Pod.Metadata.Namespace || h.holder.Pod != e.Pod.Metadata.Name
	})
}

// holding is a device that a container holds.
type holding struct {
	node     string
	resource string
	device   status.Device
	holder   status.Holder
	// since is when it became Unhealthy, if that is known.
	since time.Time
}

// containerStatuses are the states of all containers of the pod.
func (e *Evidence) containerStatuses() []ContainerStatus {
	return slices.Concat(e.Pod.Status.InitContainerStatuses, e.Pod.Status.ContainerStatuses)
}

// workload is the owner of a pod: of a pod of a Deployment, the Deployment. It is empty for a pod
// without an owner.
func workload(p *Pod) string {
	if len(p.Metadata.OwnerReferences) == 0 {
		return ""
	}
	owner := p.Metadata.OwnerReferences[0]
	// The controller of Deployments names a ReplicaSet after the Deployment and this label.
	hash := p.Metadata.Labels["pod-template-hash"]
	name, isOfDeployment := strings.CutSuffix(owner.Name, "-"+hash)
	if owner.Kind == "ReplicaSet" && isOfDeployment && hash != "" {
		return "Deployment " + name
	}
	return owner.Kind + " " + owner.Name
}
