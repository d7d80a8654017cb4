// Package config parses TOML files into a validated Config, or returns all problems. It
// is the only importer of the TOML library.
//
// The library decodes each [[resource]] into plain tables, a scan of the text finds the
// positions of keys, and a function for each kind of table (readResource, readMatch,
// ...) binds its keys to fields, like package flag:
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
// A new key is a field and a line there. That line defines its decoding, type and
// range, its place and position in messages, the suggestions for misspelled and
// misplaced keys, and its part of the JSON Schema. A test expects the key and its help
// in reference.toml. Keys are read in the order of the lines; invalid combinations are
// checked after them, or in rules.go.
package config

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Config is a validated configuration: names are complete, patterns compiled, defaults
// filled in.
type Config struct {
	// Resources in file order: a device goes to the first that selects it.
	Resources []Resource
	// Files are the files of the configuration, in name order.
	Files []string
	// Hash of the text of all files: equal hashes are equal configurations.
	Hash string
	// Notes suggest better forms of valid configuration, in file order.
	Notes []Problem
	// needs are the requested privileges, in file order.
	needs []report
}

// Resource is one [[resource]].
type Resource struct {
	// Name with its domain, "example.com/gpu"; as written if it has variables, and then
	// NameText is the part after the domain.
	Name     string
	NameText device.Text
	// Names are nicer names for results of a name with variables, both without the domain:
	// the first that matches counts.
	Names []NicerName
	// Place names it in messages: `gpu.toml: resource 2 ("gpu")`.
	Place   string
	Match   []Match
	Exclude []Match
	Count   int
	Each    Each
	// Variables are the names of all variables of the resource, with repeats.
	Variables []string
	// GroupBy is the variable ("pci.slot") whose equal values group hardware to one
	// device; empty for none. Each is EachDevice then.
	GroupBy string
	Shared  bool
	// When is nil if the resource is always active.
	When     *When
	With     []Companion
	NUMA     NUMA
	Identity Identity
	Register Register
	// API is how the devices are offered. Attributes, by which claims select, and EvictAfter, the time
	// that a device is gone before its pods are evicted, negative for never, are for APIDRA,
	// which always injects by CDI names.
	API         API
	Attributes  []Attribute
	EvictAfter  time.Duration
	Prefer      Prefer
	ForgetAfter time.Duration
	// Health is nil without health checks.
	Health    *Health
	Container Container
}

// NicerName is a name for the results that a condition matches.
type NicerName struct {
	Result pattern.Values
	Name   string

	key string
	at  int // position in the file of a pattern, 0 without wildcards
}

// Each defines what one device is.
type Each string

// EachDevice: the hardware with all its selected nodes. EachNode: one node. EachAll:
// everything together.
const (
	EachDevice Each = "device"
	EachNode   Each = "node"
	EachAll    Each = "all"
)

// When defines when a resource is active: all set conditions must hold.
type When struct {
	NodeName pattern.Values
	// Exists are globs below /dev or /sys, each of which must match a file; with a "!",
	// none.
	Exists pattern.Values
}

// API is the API of the kubelet by which devices are offered.
type API string

// APIDevicePlugin is the default.
const (
	APIDevicePlugin API = "device-plugin"
	APIDRA          API = "dra"
)

// Attribute is an attribute of a device for claims.
type Attribute struct {
	Name  string
	Value device.Text
}

// Identity selects the form of IDs.
type Identity string

// The identities; see package device for the forms of IDs.
const (
	IdentityAuto   Identity = "auto"
	IdentitySerial Identity = "serial"
	IdentityPort   Identity = "port"
	IdentityName   Identity = "name"
)

// Register defines when a resource is registered.
type Register string

// The values of register.
const (
	RegisterWhenPresent Register = "when-present"
	RegisterAlways      Register = "always"
)

// Prefer selects the free devices suggested to the kubelet.
type Prefer string

// The values of prefer.
const (
	PreferNUMA   Prefer = "numa"
	PreferPacked Prefer = "packed"
	PreferSpread Prefer = "spread"
)

// NUMA defines the reported NUMA nodes: those of the hardware (Auto), or the fixed
// Nodes, which may be none.
type NUMA struct {
	Auto  bool
	Nodes []int
}

// Match is one match or exclude table. All set conditions must hold.
type Match struct {
	// Place names it in messages: Resource.Place and "match 1".
	Place string
	// Glob patterns of node paths; empty is no condition.
	Glob pattern.Values
	// Hardware are the conditions on attributes, by table ("usb") and key ("vendor"). An
	// empty table selects all that has such attributes.
	Hardware map[string]map[string]pattern.Values
	// Subsystem and Driver of the node, see device.Node and matchers.
	Subsystem, Driver pattern.Values
	// Attr are conditions on sysfs attributes by their relative names, which may have
	// wildcards.
	Attr map[string]pattern.Values
	// CDIDevice selects CDI devices of the host by qualified name. Only Place may be
	// set with it.
	CDIDevice pattern.Values
	// Virtual are devices without hardware. Only Place may be set with them.
	Virtual []Virtual
	// Mount is set if the files that Glob selects are bind mounts (as = "mount"),
	// ReadOnly or not.
	Mount, ReadOnly bool
	// Dangerous permits dangerous devices.
	Dangerous bool
	// VFIO selects the VFIO nodes of the functions that PCI selects, and groups the
	// functions of an IOMMU group to one device. There is no Glob then.
	VFIO bool
	// ContainerPath, if set, replaces Container.Path for this match's nodes;
	// Permissions, unless empty, replaces Container.Permissions.
	ContainerPath device.Text
	Permissions   string
	// Required: hardware, a group or a pool without a node of this match is not a device.
	Required bool
}

// NamesHardware reports whether the match has a usb, pci, net or mdev table.
func (m *Match) NamesHardware() bool { return len(m.Hardware) > 0 }

// Has reports whether the match has one of these tables.
func (m *Match) Has(tables ...string) bool {
	return slices.ContainsFunc(tables, func(t string) bool { return m.Hardware[t] != nil })
}

// SelectsNets reports whether the match selects network interfaces themselves. With a glob,
// net is only a condition on the hardware of the nodes.
func (m *Match) SelectsNets() bool { return m.Has("net") && m.Glob.Empty() && !m.VFIO }

// Virtual is one device without hardware.
type Virtual struct {
	Name string
	Vars map[string]string // for ${var:NAME}
}

// Companion is a node or path that accompanies every device.
type Companion struct {
	Place string
	// Path or Glob is set.
	Path device.Text
	Glob pattern.Values
	// Mount is set for a bind mount (as = "mount").
	Mount         bool
	Optional      bool
	ReadOnly      bool
	Permissions   string
	ContainerPath device.Text
}

// Health are the checks of a device beyond presence. All set checks must pass.
type Health struct {
	// Open: each node of the device, except for companions, must open.
	Open bool
	// Attr are the wanted values of attributes. Names are relative paths, searched from
	// the directory of each node up to that of its hardware.
	Attr map[string]pattern.Values
	// TCP is an address that must accept connections; empty is none.
	TCP device.Text
	// Interval is the time between two checks of one device.
	Interval time.Duration
}

// Container are the settings of containers.
type Container struct {
	// Path of the node in the container; empty is the host's path.
	Path        device.Text
	Permissions string
	Env         []device.Entry
	Annotations []device.Entry
	// Mounts are companions, too.
	Mounts []Companion
	// CDI injects devices by CDI names instead of nodes and mounts; AutoCDI adds them
	// if programs find nodes by name, which a link can't follow.
	CDI, AutoCDI bool
	// CDIDevices are qualified names of the host's CDI devices.
	CDIDevices []device.Text
	// NoFollow injects nodes by their current paths.
	NoFollow bool
	// Owner is nil for the runtime's default.
	Owner *device.Owner
	// NetName of a moved interface in the container; empty is the host's.
	NetName        device.Text
	Hooks          []device.Hook
	AdditionalGIDs []uint32
	// MaxPerContainer is how many slots of one device one container may get; 0 is any.
	MaxPerContainer int
	// HealthDir is the path in the container of the directory that shows the health of
	// its devices; empty is none. HealthHold is the minimum time that it shows a loss.
	HealthDir  string
	HealthHold time.Duration
}
