package device

import (
	"slices"
	"strings"
)

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

// Text is a string with variables: literal parts and names in turn. The
// configuration parses it once; matching fills in what is known of a device;
// what depends on the container (Index, Count) stays open until Allocate.
type Text []Part

// Part is a literal, or a variable where Var is not empty.
type Part struct {
	Literal string
	Var     string // "id", "usb.serial", "attr:NAME", "1"
}

// The variables that only an Allocate call can answer.
const (
	IndexVar = "index"
	CountVar = "count"
)

// Literal is a Text without variables.
func Literal(s string) Text {
	if s == "" {
		return nil
	}
	return Text{{Literal: s}}
}

// Expand replaces each variable that value knows and leaves the others open.
// The result has no two literals in a row. An open variable that value
// should have known is found with Vars.
func (t Text) Expand(value func(name string) (string, bool)) Text {
	if len(t) == 1 && t[0].Var == "" && t[0].Literal != "" {
		return t[:1:1]
	}
	var out Text
	for _, p := range t {
		if p.Var != "" {
			v, ok := value(p.Var)
			if !ok {
				out = append(out, p)
				continue
			}
			p = Part{Literal: v}
		}
		if p.Literal == "" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Var == "" {
			out[n-1].Literal += p.Literal
			continue
		}
		out = append(out, p)
	}
	return out
}

// Vars lists the names of the variables in t, in order, with repeats.
func (t Text) Vars() []string {
	var names []string
	for _, p := range t {
		if p.Var != "" {
			names = append(names, p.Var)
		}
	}
	return names
}

// Has reports whether t has the variable name.
func (t Text) Has(name string) bool {
	for _, p := range t {
		if p.Var == name {
			return true
		}
	}
	return false
}

// String writes t as the configuration would: variables as ${name}.
func (t Text) String() string {
	if len(t) == 1 && t[0].Var == "" {
		return t[0].Literal
	}
	var b strings.Builder
	for _, p := range t {
		if p.Var != "" {
			b.WriteString("${" + p.Var + "}")
		} else {
			b.WriteString(p.Literal)
		}
	}
	return b.String()
}
