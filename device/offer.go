package device

import "slices"

// Offer is one device of one resource: what was matched, under its ID, with
// everything resolved that does not depend on the container that asks.
type Offer struct {
	// ID of slot 0; SlotID gives those of the others.
	ID string
	// Hardware is the sysfs path of the hardware behind the device, for
	// spreading over hardware and for settling; empty where there is none.
	Hardware string
	// Slots is how many containers may hold the device at once, at least 1.
	Slots int
	// Pool says that the device is everything that a resource selects: members
	// come and go, and it is the same device.
	Pool bool
	// NUMA nodes, sorted, none negative; empty is no preference.
	NUMA []int
	// Nodes in the order in which they are handed over: the device's own by
	// path, then the companions'.
	Nodes []OfferedNode
	// Nets are network interfaces that move into the container.
	Nets []OfferedNet
	// Moved says that its interfaces have moved into the container that holds
	// the device, and are gone from the host for as long.
	Moved bool
	// Mounts are bind mounts, companions' included.
	Mounts []Mount
	// CDIDevices are qualified names of the host's own CDI devices that are
	// passed along.
	CDIDevices []string
	// Env and Annotations have the same entries in the same order in every
	// offer of a resource.
	Env         []Entry
	Annotations []Entry
	// CDI says that the container is given the qualified CDI name of the
	// device instead of raw nodes and mounts.
	CDI bool
	// Owner, Hooks and AdditionalGIDs reach a container by CDI only.
	Owner          *Owner
	Hooks          []Hook
	AdditionalGIDs []uint32
	// Problem is why the device can't be handed over now, in words for an
	// administrator; empty where it can.
	Problem string
}

// OfferedNode is a device node as it is handed to a container.
type OfferedNode struct {
	// HostPath is where the node is now, "/dev/ttyUSB1".
	HostPath     string
	Type         NodeType
	Major, Minor uint32
	// Key names the node within its device, and stays when the kernel's name
	// changes: "if00:ttyUSB". It is the name of the node's link.
	Key string
	// Path in the container; Index and Count may still be open.
	Path Text
	// Permissions are some of "rwm".
	Permissions string
	// Follow says that the node has hardware and is handed over by a link
	// that follows it to whatever node it has next.
	Follow bool
	// Companion says that the node comes along with every device and is
	// given once in a container.
	Companion bool
}

// OfferedNet is a network interface that moves into a container.
type OfferedNet struct {
	// HostName is its name now. Key names it within its device as that of an
	// OfferedNode does.
	HostName, Key string
	// Name in the container; empty is HostName.
	Name string
}

// Owner is who a node belongs to in a container; what is nil is left to the
// runtime.
type Owner struct {
	UID, GID *uint32
	Mode     *uint32 // permission bits
}

// Hook is a program that the runtime runs (CDI specification, "hooks").
type Hook struct {
	Name    string // "createContainer", "startContainer", ...
	Path    string
	Args    []string
	Env     []string
	Timeout int // seconds, 0 for none
}

// Mount is a bind mount of a host path into a container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
	// Optional mounts are left out while HostPath is missing.
	Optional bool
}

// Entry is one environment variable or annotation.
type Entry struct {
	Key, Value Text
	// PerDevice says that the value names something of the device: values of
	// several devices in one container are joined with Separator.
	PerDevice bool
	// Separator is empty for a comma. Prefix and Suffix are put around the
	// joined whole.
	Separator, Prefix, Suffix string
}

// Listed is one slot of one device as the kubelet is shown it.
type Listed struct {
	ID      string
	Healthy bool
	NUMA    []int
	// The kubelet is not shown the rest. Reason is why the slot is not healthy, in
	// words for an administrator. Device is the same for all slots of one piece of
	// hardware, or of one device where it has none.
	Reason, Device string
}

// SameList reports whether two lists look alike to the kubelet.
func SameList(a, b []Listed) bool {
	return slices.EqualFunc(a, b, func(a, b Listed) bool {
		return a.ID == b.ID && a.Healthy == b.Healthy && slices.Equal(a.NUMA, b.NUMA)
	})
}

// Response is what one container gets: the answer to one Allocate request.
type Response struct {
	Nodes       []InjectedNode
	Mounts      []Mount
	Env         map[string]string
	Annotations map[string]string
	// CDI holds fully qualified CDI device names.
	CDI []string
}

// InjectedNode is one device node of a Response. HostPath may be a link that
// the container runtime resolves at every start of the container.
type InjectedNode struct {
	HostPath, ContainerPath, Permissions string
}
