package device

import (
	"slices"
	"strings"
)

// Offer is one device of one resource: a matched device with its ID. Everything that does not depend
// on the container is resolved.
type Offer struct {
	// ID of slot 0. SlotID returns the IDs of the other slots.
	ID string
	// Hardware is the sysfs path of its hardware. It is used to spread containers over hardware,
	// and to wait until new hardware has all its nodes. It is empty if there is no hardware.
	Hardware string
	// Product is the name that the hardware reports. It is empty if it reports none.
	Product string
	// Members are the sysfs paths of all hardware of a pool, a group or an IOMMU group.
	Members []string
	// Shared is set if containers may hold the device beside shared devices of other resources that
	// use the same hardware.
	Shared bool
	// Exclusive is set if no container may hold the device while a container holds another device
	// with a conflicting place, see Conflict.
	Exclusive bool
	// Places are what the device uses of the host.
	Places []string
	// Names are the names of its USB hardware, see USBNames.
	Names []string
	// Slots is how many containers may hold the device at once. It is at least 1.
	Slots int
	// Pool is set if the device is everything that a resource selects. It stays the same device
	// when members appear and disappear.
	Pool bool
	// NUMA are the sorted NUMA nodes, without negative numbers. If it is empty, there is no
	// preference.
	NUMA []int
	// Nodes in the order of injection: the nodes of the device by path, then the companions.
	Nodes []OfferedNode
	// Nets are network interfaces that move into the container.
	Nets []OfferedNet
	// NetsInContainer is set while the network interfaces are in the container that holds the
	// device. They are missing on the host then.
	NetsInContainer bool
	// Mounts are bind mounts, including companions.
	Mounts []Mount
	// CDIDevices are qualified names of CDI devices of other specs to inject.
	CDIDevices []string
	// Env and Annotations have the same entries in the same order in every
	// offer of a resource.
	Env         []Entry
	Annotations []Entry
	// Attributes are the attributes by which claims select, by name. It is nil without DRA.
	Attributes map[string]Typed
	// Mistyped is set if the value of an attribute is not of its type. Attributes lacks it, so that a
	// selector on it would fail for the devices of all pods.
	Mistyped bool
	// Features are values that become labels of the node, by name.
	Features map[string]string
	// Capacity are the amounts that claims share, by name. It is nil without DRA.
	Capacity map[string]Capacity
	// Amounts are what one container gets of Capacity, by name. If it is nil, that is everything.
	Amounts map[string]string
	// CDI is set if the device is injected by its qualified CDI name instead of raw
	// nodes and mounts.
	CDI bool
	// AlsoCDI is set if its nodes are injected by its CDI name as well, under their current
	// names. The links stay, because a runtime without CDI ignores the CDI name.
	AlsoCDI bool
	// Owner and Hooks require CDI.
	Owner *Owner
	Hooks []Hook
	// HealthDir is the path in the container of the directory that shows the health of its device, or
	// that has a directory for each of its devices, by index. It is empty if there is none.
	HealthDir string
	// Problem is why the device cannot be injected, for an administrator. It is empty if the
	// device can be injected.
	Problem string
}

// IsOther reports whether two offers certainly are different USB devices, although they may have the same
// port. An offer from a file has no names, but its places may have its serial number.
func (o *Offer) IsOther(other *Offer) bool {
	return HaveOtherSerials(slices.Concat(o.Names, o.Places), slices.Concat(other.Names, other.Places))
}

// OfferedNode is a device node to inject into a container.
type OfferedNode struct {
	// HostPath is the current path of the node, "/dev/ttyUSB1".
	HostPath     string
	Type         NodeType
	Major, Minor uint32
	// Key names the node within its device, and does not change with the kernel's name:
	// "if00:ttyUSB". It is the name of the node's link.
	Key string
	// Path in the container. The variables Index and Count may still be open.
	Path Text
	// Permissions are some of "rwm".
	Permissions string
	// Follow is set if the node has hardware and is injected through a link that
	// follows it.
	Follow bool
	// Companion is set for a node that accompanies every device and is injected once
	// per container.
	Companion bool
}

// OfferedNet is a network interface that moves into a container.
type OfferedNet struct {
	// HostName is its current name.
	HostName string
	// Key names the interface within its device, like OfferedNode.Key.
	Key string
	// Name in the container. If it is empty, the interface keeps HostName.
	Name string
}

// Owner is the owner of a node in a container. The runtime decides about nil fields.
type Owner struct {
	UID, GID *uint32
	Mode     *uint32 // permission bits
}

// Hook is a program on the host that the runtime runs (CDI specification, "hooks").
type Hook struct {
	Name    string // "createContainer", "startContainer", ...
	Path    string
	Args    []string
	Env     []string
	Timeout int // seconds, or 0 if there is no timeout
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
	// PerDevice is set if the value depends on the device: values of several devices in
	// one container are joined with Separator.
	PerDevice bool
	// An empty Separator is a comma. Prefix and Suffix enclose the joined value.
	Separator, Prefix, Suffix string
}

// Listed is one slot of one device on the list for the kubelet.
type Listed struct {
	ID      string
	Healthy bool
	NUMA    []int
	// Reason is why the slot is not healthy, for an administrator. It is not sent to the kubelet.
	Reason string
	// Device is the same for all slots of one piece of hardware, or of one device without
	// hardware. It is not sent to the kubelet.
	Device string
}

// SameList reports whether two lists are equal for the kubelet.
func SameList(a, b []Listed) bool { return slices.EqualFunc(a, b, isSameSlot) }

// isSameSlot reports whether two slots are equal for the kubelet.
func isSameSlot(a, b Listed) bool {
	return a.ID == b.ID && a.Healthy == b.Healthy && slices.Equal(a.NUMA, b.NUMA)
}

// Response is the response to an Allocate request for one container.
type Response struct {
	Nodes       []InjectedNode
	Mounts      []Mount
	Env         map[string]string
	Annotations map[string]string
	// CDI are qualified CDI device names.
	CDI []string
	// Places maps each path and interface in the container to its source on the host. It includes what CDI
	// names of this program inject.
	Places map[string]string
}

// InjectedNode is one device node of a Response. HostPath may be a link that
// the container runtime resolves at every start of the container.
type InjectedNode struct {
	HostPath, ContainerPath, Permissions string
}

// Text is a string with variables: a sequence of literals and variables. The configuration is parsed
// once, matching inserts the values of a device, and the variables of the container (Index, Count)
// stay open until Allocate.
type Text []Part

// Part is a literal, or a variable if Var is not empty.
type Part struct {
	Literal string
	Var     string // "id", "usb.serial", "attr:NAME", "1"
}

// The variables that depend on the Allocate request.
const (
	IndexVar = "index"
	CountVar = "count"
)

// The beginnings of variables with an argument: ${attr:NAME} is an attribute of sysfs, ${var:NAME} belongs to
// a virtual device, ${devnode:GLOB} is a node, and ${capacity.NAME} depends on the claim.
const (
	AttrPrefix     = "attr:"
	VarPrefix      = "var:"
	DevnodePrefix  = "devnode:"
	CapacityPrefix = "capacity."
)

// IsOfContainer reports whether the value of a variable depends on the container.
func IsOfContainer(name string) bool {
	isPosition := name == IndexVar || name == CountVar
	return isPosition || strings.HasPrefix(name, CapacityPrefix)
}

// Literal returns a Text without variables.
func Literal(s string) Text {
	if s == "" {
		return nil
	}
	return Text{{Literal: s}}
}

// Expand replaces the variables that value knows and leaves the others open. The result has no two
// adjacent literals. Vars returns the open variables.
func (t Text) Expand(value func(name string) (string, bool)) Text {
	isLiteral := len(t) == 1 && t[0].Var == ""
	if isLiteral && t[0].Literal != "" {
		return t[:1:1]
	}
	var out Text
	var literal strings.Builder
	end := func() {
		out = append(out, Literal(literal.String())...)
		literal.Reset()
	}
	for _, p := range t {
		v := p.Literal
		ok := true
		if p.Var != "" {
			v, ok = value(p.Var)
		}
		literal.WriteString(v)
		if !ok {
			end()
			out = append(out, p)
		}
	}
	end()
	return out
}

// Vars returns the names of the variables in t, in order and with repeats.
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
	return slices.ContainsFunc(t, func(p Part) bool {
		return p.Var == name
	})
}

// String returns t as the configuration writes it, with variables as ${name}.
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
