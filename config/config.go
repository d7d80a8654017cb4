// Package config turns the text of TOML files into a validated Config, or into
// the list of everything that is wrong with them. It alone knows TOML.
//
// The library decodes each [[resource]] into plain tables, a scan of the text finds
// where the keys stand, and a function for each kind of table (readResource,
// readMatch, ...) binds its keys to what they fill, as package flag does it:
//
//	func readMount(v value) Mount {
//		m := Mount{ReadOnly: true}
//		v.read(func(t *table) {
//			t.text("host_path", &m.HostPath, mountPath, "absolute path on the host")
//			t.boolean("read_only", &m.ReadOnly, "whether a mount is read-only")
//		})
//		return m
//	}
//
// A new key is a field of the type and a line there. From that line come its
// decoding, type and range, its place and position in messages, the suggestions for
// misspelled and misplaced keys, and its part of the JSON Schema. A test wants the
// key and its help in reference.toml. Keys are read in the order of the lines; what
// they can't be together is checked after them, or in rules.go.
package config

import (
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// Config is a validated configuration. Every name is complete, every pattern
// compiled, every default filled in.
type Config struct {
	// Resources in file order: a device goes to the first that selects it.
	Resources []Resource
	// Files that were read, in name order.
	Files []string
	// Hash of the text of all files: equal hashes are equal configurations.
	Hash string
	// needs is what has to be in --allow, in file order.
	needs []need
}

// Resource is one [[resource]].
type Resource struct {
	// Name with its domain, "example.com/gpu"; as it is written where it has
	// variables, and then NameText is the part after the domain.
	Name     string
	NameText device.Text
	// Names maps what the variables of a name result in to a nicer name, both
	// without the domain.
	Names map[string]string
	// Place is how messages speak of it: `gpu.toml: resource 2 ("gpu")`.
	Place   string
	Match   []Match
	Exclude []Match
	Count   int
	Each    Each
	// GroupBy is the variable ("pci.slot") by whose value hardware is one
	// device; empty for none. Each is EachDevice then.
	GroupBy string
	Shared  bool
	// When is nil where the resource is always active.
	When        *When
	With        []Companion
	NUMA        NUMA
	Identity    Identity
	Register    Register
	Prefer      Prefer
	ForgetAfter time.Duration
	// Health is nil where nothing but presence is checked.
	Health    *Health
	Container Container
}

// Each says what one device is.
type Each string

// EachDevice: the hardware with all its selected nodes. EachNode: one node.
// EachAll: everything together.
const (
	EachDevice Each = "device"
	EachNode   Each = "node"
	EachAll    Each = "all"
)

// When says when a resource is active: all that is set must hold.
type When struct {
	NodeName pattern.Values
	// Exists are globs below /dev or /sys of which each must match something;
	// with a "!", nothing.
	Exists []pattern.Pattern
}

// Identity says what an ID is made of.
type Identity string

// The identities; see package device for the forms of IDs.
const (
	IdentityAuto   Identity = "auto"
	IdentitySerial Identity = "serial"
	IdentityPort   Identity = "port"
)

// Register says when a resource is made known to the kubelet.
type Register string

// The values of register.
const (
	RegisterWhenPresent Register = "when-present"
	RegisterAlways      Register = "always"
)

// Prefer says which free devices are suggested to the kubelet.
type Prefer string

// The values of prefer.
const (
	PreferNUMA   Prefer = "numa"
	PreferPacked Prefer = "packed"
	PreferSpread Prefer = "spread"
)

// NUMA says which NUMA nodes are reported: those of the hardware (Auto), or
// the fixed Nodes, which may be none.
type NUMA struct {
	Auto  bool
	Nodes []int
}

// Match is one match or exclude table. All that is set must hold.
type Match struct {
	// Place is how messages speak of it, Resource.Place and "match 1".
	Place string
	// Glob patterns of node paths; empty is no condition.
	Glob pattern.Values
	// USB and PCI hold the conditions by their key ("vendor", "id"); nil
	// where the table is absent. An empty, non-nil map names the bus alone.
	USB  map[string]pattern.Values
	PCI  map[string]pattern.Values
	Net  map[string]pattern.Values
	MDev map[string]pattern.Values
	// Subsystem and Driver of the node, see device.Node and matchers.
	Subsystem, Driver pattern.Values
	// Attr holds conditions on attributes of sysfs by their relative names,
	// which may have wildcards.
	Attr map[string]pattern.Values
	// CDIDevice selects the host's CDI devices by qualified name. Nothing but
	// Place is set beside it.
	CDIDevice pattern.Values
	// Virtual are devices without hardware. Nothing but Place is set beside
	// them.
	Virtual []Virtual
	// Mount says that what Glob selects is given as bind mounts (as = "mount"),
	// ReadOnly or not.
	Mount, ReadOnly bool
	// Dangerous allows what is refused otherwise.
	Dangerous bool
	// VFIO selects the VFIO nodes of the functions that PCI selects, and makes
	// one device of the functions of an IOMMU group. There is no Glob then.
	VFIO bool
	// ContainerPath, where set, replaces Container.Path for this match's
	// nodes; Permissions, where not empty, replaces Container.Permissions.
	ContainerPath device.Text
	Permissions   string
	// Required: hardware without a node of this match is no device.
	Required bool
}

// NamesHardware reports whether the match has a usb, pci, net or mdev table.
func (m *Match) NamesHardware() bool {
	return m.USB != nil || m.PCI != nil || m.Net != nil || m.MDev != nil
}

// Virtual is one device without hardware.
type Virtual struct {
	Name string
	Vars map[string]string // for ${var:NAME}
}

// Companion is a node or path given along with every device.
type Companion struct {
	Place string
	// Path or Glob is set.
	Path device.Text
	Glob pattern.Values
	// Mount says that it is given as a bind mount (as = "mount").
	Mount         bool
	Optional      bool
	ReadOnly      bool
	Permissions   string
	ContainerPath device.Text
}

// Health is the checks of a device beyond its presence. All that is set
// must hold.
type Health struct {
	// Open: each node of the device, companions aside, can be opened.
	Open bool
	// Attr is what attributes have to be. Names are relative paths, looked for
	// from the directory of each node up to that of its hardware.
	Attr map[string]pattern.Values
	// TCP is an address that takes connections; empty is none.
	TCP device.Text
	// Interval is the time between two checks of one device.
	Interval time.Duration
}

// Container is what a container gets.
type Container struct {
	// Path of the node in the container; empty is the host's path.
	Path        device.Text
	Permissions string
	Env         []device.Entry
	Annotations []device.Entry
	Mounts      []Mount
	CDI         bool
	// CDIDevices are qualified names of the host's CDI devices.
	CDIDevices []device.Text
	// NoFollow hands nodes over by the path they have at that moment.
	NoFollow bool
	// Owner is nil where it is left to the runtime.
	Owner *device.Owner
	// NetName of a moved interface in the container; empty is the host's.
	NetName        device.Text
	Hooks          []device.Hook
	AdditionalGIDs []uint32
}

// Mount is one of container.mounts; variables are allowed in both paths.
type Mount struct {
	HostPath, ContainerPath device.Text
	ReadOnly                bool
	Optional                bool
}
