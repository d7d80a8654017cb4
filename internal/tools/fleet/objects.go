package fleet

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
	UID               string
	Labels            map[string]string
	OwnerReferences   []Owner
	CreationTimestamp time.Time
	DeletionTimestamp *time.Time
	// DeletionGracePeriodSeconds is a part of DeletionTimestamp, which is the end of the grace period.
	DeletionGracePeriodSeconds int
}

// terminatingSince is when the deletion of an object began that is being deleted.
func (m *Meta) terminatingSince() time.Time {
	grace := time.Duration(m.DeletionGracePeriodSeconds) * time.Second
	return m.DeletionTimestamp.Add(-grace)
}

// Owner is an owner of an object.
type Owner struct {
	Kind string
	Name string
	UID  string
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
	SchedulerName  string
	NodeSelector   map[string]string
	Affinity       Affinity
	Tolerations    []Toleration
	Containers     []Container
	InitContainers []Container
	// ResourceClaims are only the claims that the pod names. A claim for extended resources is in
	// its status.
	ResourceClaims  []PodClaim
	SecurityContext SecurityContext
	Volumes         []Volume
}

// Volume is a volume of a pod.
type Volume struct {
	Name string
	// ConfigMap is nil for a volume of another kind.
	ConfigMap *struct{ Name string }
}

// Affinity is the affinity of a pod for nodes. Only the required part matters: the preferred part
// excludes no node.
type Affinity struct {
	NodeAffinity struct {
		// It is nil if every node is allowed.
		RequiredDuringSchedulingIgnoredDuringExecution *struct{ NodeSelectorTerms []SelectorTerm }
	}
}

// SelectorTerm is an alternative of a node affinity: all its expressions hold. The alternatives are
// combined by or.
type SelectorTerm struct {
	MatchExpressions []Expression
	MatchFields      []Expression
}

// Expression is a condition about a label or a field.
type Expression struct {
	Key      string
	Operator string
	Values   []string
}

// Toleration is a toleration of taints. Operator is "Exists" or "Equal", which is the meaning of an
// empty one.
type Toleration struct {
	Key      string
	Operator string
	Value    string
	Effect   string
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
	SecurityContext SecurityContext
}

// SecurityContext is the identity of a pod or a container. A nil field is not set.
type SecurityContext struct {
	Privileged         *bool
	RunAsUser          *int64
	RunAsGroup         *int64
	FSGroup            *int64
	SupplementalGroups []int64
}

// PodClaim is a claim of a pod. Its name is the name in the pod, not the name of the object.
type PodClaim struct {
	Name                      string
	ResourceClaimName         string
	ResourceClaimTemplateName string
}

// PodStatus is the state of a pod.
type PodStatus struct {
	// Phase is Pending, Running, Succeeded, Failed or Unknown.
	Phase                 string
	Reason                string
	Message               string
	Conditions            []Condition
	ContainerStatuses     []ContainerStatus
	InitContainerStatuses []ContainerStatus
	// ResourceClaimStatuses name the claims that were made from templates.
	ResourceClaimStatuses []ClaimStatus
	// ExtendedResourceClaimStatus is nil unless DRA provides extended resources of the pod.
	ExtendedResourceClaimStatus *ClaimStatus
}

// Condition is a condition of a pod or a node.
type Condition struct {
	Type               string
	Status             string
	Reason             string
	Message            string
	LastTransitionTime time.Time
}

// ContainerStatus is the state of a container.
type ContainerStatus struct {
	Name  string
	Ready bool
	State ContainerState
	// LastState is the end of the container before its last restart.
	LastState ContainerState
	// User is the identity of its first process. Kubelets before 1.33 do not report it.
	User struct{ Linux *Identity }
}

// Identity is a user with its groups.
type Identity struct {
	UID                int64
	GID                int64
	SupplementalGroups []int64
}

// ContainerState is one of three states.
type ContainerState struct {
	Running    *struct{ StartedAt time.Time }
	Waiting    *Waiting
	Terminated *Terminated
}

// Waiting is why a container does not run.
type Waiting struct {
	Reason  string
	Message string
}

// Terminated is how a container ended.
type Terminated struct {
	Reason   string
	Message  string
	ExitCode int
}

// ClaimStatus names the object of a claim of a pod. ResourceClaimName is empty if no claim was
// needed.
type ClaimStatus struct {
	Name              string
	ResourceClaimName string
}

// Node is a node.
type Node struct {
	Metadata Meta
	Spec     struct {
		Unschedulable bool
		Taints        []Taint
	}
	Status struct {
		// Allocatable has the quantities of resources, held or not.
		Allocatable map[string]string
		Conditions  []Condition
	}
}

// Taint is a taint of a node or of a device.
type Taint struct {
	Key    string
	Value  string
	Effect string
	// TimeAdded is nil for most taints of nodes.
	TimeAdded *time.Time
}

func (t Taint) String() string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + t.Effect
}

// Event is an event.
type Event struct {
	Metadata       Meta
	Reason         string
	Message        string
	LastTimestamp  *time.Time
	EventTime      *time.Time
	InvolvedObject struct {
		Kind string
		Name string
		UID  string
	}
}

// at is when the event happened last. Events of the newer API have only EventTime. The zero time
// means that neither is set.
func (e *Event) at() time.Time {
	if e.LastTimestamp != nil {
		return *e.LastTimestamp
	}
	if e.EventTime != nil {
		return *e.EventTime
	}
	return time.Time{}
}

// Claim is a ResourceClaim.
type Claim struct {
	Metadata Meta
	Spec     struct {
		Devices struct{ Requests []ClaimRequest }
	}
	Status struct {
		Allocation *struct {
			Devices struct{ Results []Allocated }
		}
		// ReservedFor are the pods that may use the claim.
		ReservedFor []struct{ Name string }
	}
}

// ClaimRequest is a request of a claim. Before version v1 of the API, the class was a field of the
// request itself.
type ClaimRequest struct {
	Name            string
	DeviceClassName string
	Exactly         struct {
		DeviceClassName string
		// Capacity has the amounts that the claim needs of a device that claims share.
		Capacity struct{ Requests map[string]string }
	}
}

// Allocated is a device that a claim has. Device is the name in the pool of a node.
type Allocated struct {
	Driver string
	// Pool is NODE/generic-dp, for this driver.
	Pool   string
	Device string
}

// Slice is a ResourceSlice.
type Slice struct {
	Metadata Meta
	Spec     struct {
		Driver   string
		NodeName string
		Pool     struct{ Name string }
		Devices  []SliceDevice
	}
}

// SliceDevice is a device of a slice. Attributes have no value here unless they are strings.
type SliceDevice struct {
	Name       string
	Attributes map[string]struct{ String string }
	Capacity   map[string]struct{ Value string }
	Taints     []Taint
	// AllowMultipleAllocations is set for a device with several slots.
	AllowMultipleAllocations bool
}

// Class is a DeviceClass. ExtendedResourceName is empty if pods can only use it by claims.
type Class struct {
	Metadata Meta
	Spec     struct{ ExtendedResourceName string }
}

// TaintRule is a DeviceTaintRule. Empty fields of the selector select everything. It taints devices
// without a change of their slice.
type TaintRule struct {
	Metadata Meta
	Spec     struct {
		DeviceSelector struct {
			Driver string
			Pool   string
			Device string
		}
		Taint Taint
	}
}

// isReady reports whether a condition of a list holds.
func isReady(conditions []Condition) bool {
	c := condition(conditions, "Ready")
	return c != nil && c.Status == "True"
}

// condition returns the condition of a type, nil if there is none.
func condition(conditions []Condition, kind string) *Condition {
	i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// suffixes are the suffixes of quantities (k8s.io/apimachinery/pkg/api/resource), longer ones first.
var suffixes = []struct {
	text   string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
}

// amount is the value of a quantity, 0 if it is not one.
func amount(text string) float64 {
	factor := 1.0
	for _, s := range suffixes {
		if number, ok := strings.CutSuffix(text, s.text); ok {
			text = number
			factor = s.factor
			break
		}
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n * factor
}

// quantity returns the number of an extended resource, which the API server writes as "1k" for
// 1000. It is 0 for anything else.
func quantity(text string) int { return int(amount(text)) }
