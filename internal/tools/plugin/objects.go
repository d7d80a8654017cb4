package plugin

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The fields of Kubernetes objects that are used. encoding/json matches the names of the API to
// these fields whatever their case. The API's own packages would add 5 MB to the program.

// Meta is the metadata of an object. DeletionTimestamp is nil unless the object is being deleted.
type Meta struct {
	Name              string
	Namespace         string
	Labels            map[string]string
	OwnerReferences   []struct{ Kind, Name string }
	DeletionTimestamp *time.Time
	// DeletionGracePeriodSeconds is a part of DeletionTimestamp, which is the end of the grace period.
	DeletionGracePeriodSeconds int
}

// terminatingSince is when the deletion of an object began that is being deleted.
func (m *Meta) terminatingSince() time.Time {
	grace := time.Duration(m.DeletionGracePeriodSeconds) * time.Second
	return m.DeletionTimestamp.Add(-grace)
}

// Path is "namespace/name".
func (m *Meta) Path() string { return m.Namespace + "/" + m.Name }

// Pod is a pod.
type Pod struct {
	Metadata Meta
	Spec     PodSpec
	Status   PodStatus
}

// PodSpec is what a pod asks for.
type PodSpec struct {
	// NodeName is empty until the scheduler has placed the pod.
	NodeName       string
	Containers     []Container
	InitContainers []Container
	// ResourceClaims are the claims that the pod names.
	ResourceClaims []PodClaim
	// Volumes have no ConfigMap if they are of another kind.
	Volumes []struct{ ConfigMap *struct{ Name string } }
}

// Container is a container of a pod.
type Container struct {
	Name      string
	Command   []string
	Args      []string
	Resources struct {
		// Limits are enough: for extended resources, the API server requires equal requests.
		Limits map[string]string
		// Claims are the claims of the pod that the container uses, by their names in the pod.
		Claims []struct{ Name string }
	}
}

// PodClaim is a claim of a pod. Its name is the name in the pod, not the name of the object.
type PodClaim struct {
	Name string
	// ResourceClaimName is empty for a claim from a template.
	ResourceClaimName string
}

// PodStatus is the state of a pod.
type PodStatus struct {
	// Phase is Pending, Running, Succeeded, Failed or Unknown.
	Phase             string
	Reason            string
	Message           string
	Conditions        []Condition
	ContainerStatuses []struct {
		Name string
		// State has no reason for a container that runs.
		State struct {
			Waiting *struct{ Reason, Message string }
			Running *struct{ StartedAt time.Time }
		}
	}
	// ResourceClaimStatuses name the claims that were made from templates. The name of the object
	// is empty if no claim was needed.
	ResourceClaimStatuses []struct{ Name, ResourceClaimName string }
}

// Condition is a condition of a pod or a node.
type Condition struct {
	Type               string
	Status             string
	Message            string
	LastTransitionTime time.Time
}

// Node is a node.
type Node struct {
	Metadata Meta
	Status   struct {
		// Allocatable has the quantities of resources, held or not.
		Allocatable map[string]string
		Conditions  []Condition
	}
}

// Claim is a ResourceClaim.
type Claim struct {
	Spec struct {
		Devices struct{ Requests []ClaimRequest }
	}
}

// ClaimRequest is a request of a claim. Before version v1 of the API, the class was a field of the
// request itself.
type ClaimRequest struct {
	DeviceClassName string
	Exactly         struct{ DeviceClassName string }
}

// Class is a DeviceClass. ExtendedResourceName is empty if pods can only use it by claims.
type Class struct {
	Metadata Meta
	Spec     struct{ ExtendedResourceName string }
}

// containers are all containers of a pod.
func (p *Pod) containers() []Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// isWaiting reports whether the scheduler has not found a node.
func (p *Pod) isWaiting() bool {
	return p.Spec.NodeName == "" && p.Status.Phase == "Pending"
}

// isPlaced reports whether the pod is on a node and has not ended. Its containers may not have
// started yet.
func (p *Pod) isPlaced() bool {
	return p.Spec.NodeName != "" && p.Status.Phase != "Failed" && p.Status.Phase != "Succeeded"
}

// deletion is the command that deletes the pod.
func (p *Pod) deletion() string {
	return "kubectl delete pod -n " + p.Metadata.Namespace + " " + p.Metadata.Name
}

// podHash is the label of the pods of one version of a Deployment.
const podHash = "pod-template-hash"

// workload is the owner of a pod: of a pod of a Deployment, the Deployment. It is empty for a pod
// without an owner.
func (p *Pod) workload() string {
	if len(p.Metadata.OwnerReferences) == 0 {
		return ""
	}
	owner := p.Metadata.OwnerReferences[0]
	// The controller of Deployments names a ReplicaSet after the Deployment and this label.
	name, isOfDeployment := strings.CutSuffix(owner.Name, "-"+p.Metadata.Labels[podHash])
	if owner.Kind == "ReplicaSet" && isOfDeployment {
		return "Deployment " + name
	}
	return owner.Kind + " " + owner.Name
}

// isOtherVersion reports whether two pods are of one Deployment, but of different versions.
func (p *Pod) isOtherVersion(other *Pod) bool {
	isSame := p.Metadata.Namespace == other.Metadata.Namespace && p.workload() == other.workload()
	return isSame && p.Metadata.Labels[podHash] != other.Metadata.Labels[podHash]
}

// condition returns the condition of a type, nil if there is none.
func condition(conditions []Condition, kind string) *Condition {
	i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// quantity returns the number of an extended resource, which the API server writes as "1k" for
// 1000 (k8s.io/apimachinery/pkg/api/resource). It is 0 for anything else.
func quantity(text string) int {
	factor := 1
	for _, suffix := range []string{"k", "M", "G"} {
		factor *= 1000
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, _ := strconv.Atoi(number)
			return n * factor
		}
	}
	n, _ := strconv.Atoi(text)
	return n
}
