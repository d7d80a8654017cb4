// Package config parses TOML files into a validated Config, or returns all problems. It
// is the only importer of the TOML library.
//
// A scan of the text makes a tree of keys and values with their positions, the library says
// whether the text is TOML, and a function for each kind of table (readResource,
// readMatch, ...) binds its keys to fields, like package flag:
//
//	func readCompanion(v value) Companion {
//		c := Companion{Permissions: "rw"}
//		v.read(func(t *table) {
//			t.text("path", &c.Path, hostPath, "path on the host")
//			t.permissions(&c.Permissions, "permissions of a device node")
//		})
//		return c
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
	// Resources in file order: a device goes to the first resource that selects it.
	Resources []Resource
	// Files are the files of the configuration, in name order.
	Files []string
	// Hash identifies the text of all files.
	Hash string
	// Notes suggest better ways to write valid keys, in file order.
	Notes []Problem
	// needs are the privileges that the configuration requests.
	needs []need
	// starts are the positions of the resources, with the rest of Resource.Place in Place.
	starts []Problem
}

// Resource is one [[resource]].
type Resource struct {
	// Name is the name with its domain, "example.com/gpu". If it has variables, it is the text
	// as written.
	Name string
	// NameText is the part of a name with variables after the domain. It is empty for other
	// names.
	NameText device.Text
	// Names are nicer names for the results of a name with variables, without the domain. The
	// first match is used.
	Names []NicerName
	// Place names the resource in messages: `gpu.toml: resource 2 ("gpu")`.
	Place   string
	Match   []Match
	Exclude []Match
	// Count is the number of slots of each device.
	Count int
	Each  Each
	// Variables are the names of all variables of the resource, with repeats.
	Variables []string
	// GroupBy is the variable ("pci.slot") by which hardware is grouped: hardware with the same
	// value is one device. If it is set, Each is EachDevice.
	GroupBy string
	// Shared is set if other resources with Shared may offer the same devices at once.
	Shared bool
	// Exclusive is set if other resources with Exclusive may offer the same devices, or parts of
	// them, and containers hold only one of these offers at a time. It excludes Shared.
	Exclusive bool
	// When is nil if the resource is always active.
	When     *When
	With     []Companion
	NUMA     NUMA
	Identity Identity
	Register Register
	// API is the API through which the devices are advertised. With APIDRA, devices are always
	// injected by CDI names.
	API API
	// Attributes are the attributes by which claims select, with APIDRA.
	Attributes []Attribute
	// Capacity are the amounts that claims of one device share, with APIDRA.
	Capacity []Capacity
	// EvictAfter is how long a device is absent before its pods are evicted, with APIDRA. It is
	// negative if they are never evicted.
	EvictAfter time.Duration
	// Features are the values of healthy devices that become labels of the node.
	Features []Attribute
	Prefer   Prefer
	// Health is nil without health checks.
	Health    *Health
	Container Container
}

// NicerName is a name for the results that a condition matches.
type NicerName struct {
	Result pattern.Values
	// Name is legal: see device.LegalName. Written is the name as written.
	Name    string
	Written string

	// key is the condition as written.
	key string
	// at is the position of a pattern in the file. It is 0 for a literal result, so that literal
	// results come first.
	at int
}

// Each defines what one device is.
type Each string

// The values of each. With EachDevice, a device is the hardware with all its selected nodes; with
// EachNode, a single node; with EachAll, everything together.
const (
	EachDevice Each = "device"
	EachNode   Each = "node"
	EachAll    Each = "all"
)

// When defines when a resource is active: all set conditions must hold.
type When struct {
	NodeName pattern.Values
	// Exists are globs below /dev or /sys. Each of them must match a file, and each glob with a
	// "!" must match no file.
	Exists pattern.Values
}

// API is the API of the kubelet through which devices are advertised.
type API string

// The values of api. APIDevicePlugin is the default.
const (
	APIDevicePlugin API = "device-plugin"
	APIDRA          API = "dra"
)

// Attribute is an attribute of a device for claims.
type Attribute struct {
	Name  string
	Type  device.AttributeType
	Value device.Text
}

// Capacity is an amount that the claims of one device share.
type Capacity struct {
	Name  string
	Value device.Text
	// Default is the amount of a claim that requests none. If it is empty, that is everything.
	Default string
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

// NUMA defines the NUMA nodes that are reported to the kubelet.
type NUMA struct {
	// Auto reports the nodes of the hardware.
	Auto bool
	// Nodes are reported without Auto. If it is empty, no node is reported.
	Nodes []int
}

// Match is one match or exclude table. All set conditions must hold.
type Match struct {
	// Place names the match in messages: Resource.Place and "match 1".
	Place string
	// Glob are patterns of node paths. If it is empty, there is no such condition.
	Glob pattern.Values
	// Hardware are the conditions on attributes, by table ("usb") and key ("serial"). An empty
	// table selects all hardware of that kind.
	Hardware map[string]map[string]pattern.Values
	// Subsystem is the kernel subsystem of the node.
	Subsystem pattern.Values
	// Driver are the drivers of all devices from the node up to its hardware.
	Driver pattern.Values
	// Attr are conditions on sysfs attributes, by their relative names. These may have
	// wildcards.
	Attr map[string]pattern.Values
	// CDIDevice selects CDI devices of the host by qualified name. Only Place may be
	// set with it.
	CDIDevice pattern.Values
	// Virtual are devices without hardware. Only Place may be set with them.
	Virtual []Virtual
	// Mount is set if Glob selects files for bind mounts, because it is not below /dev.
	Mount bool
	// ReadOnly is set if these mounts are read-only.
	ReadOnly bool
	// Dangerous permits dangerous devices.
	Dangerous bool
	// VFIO selects the VFIO nodes of the selected PCI functions or mediated devices. The
	// functions of one IOMMU group form one device. It excludes Glob.
	VFIO bool
	// ContainerPath, if set, replaces Container.Path for the nodes of this match.
	ContainerPath device.Text
	// Permissions, if set, replaces Container.Permissions for the nodes of this match.
	Permissions string
	// Required is set if hardware, a group or a pool without a node of this match is not a
	// device.
	Required bool
	// Count is the number of slots of a device of this match. By default, it is the count of the
	// resource; it is 0 in exclude.
	Count int
}

// NamesHardware reports whether the match has a usb, pci, net or mdev table.
func (m *Match) NamesHardware() bool { return len(m.Hardware) > 0 }

// Has reports whether the match has one of these tables.
func (m *Match) Has(tables ...string) bool {
	return slices.ContainsFunc(tables, func(table string) bool {
		return m.Hardware[table] != nil
	})
}

// SelectsNets reports whether the match selects network interfaces themselves. If it selects nodes,
// by a glob or by VFIO, net is only a condition on the hardware of the nodes.
func (m *Match) SelectsNets() bool {
	selectsNodes := m.VFIO || !m.Glob.Empty()
	return m.Has("net") && !selectsNodes
}

// Virtual is one device without hardware.
type Virtual struct {
	Name string
	// Vars are the values of ${var:NAME}, by NAME.
	Vars map[string]string
}

// Companion is a node or path that accompanies every device.
type Companion struct {
	// Place names the companion in messages.
	Place string
	// Path is a path, or a pattern if Glob is set. The values of variables are literal in a pattern.
	Path device.Text
	// Glob is Path as a pattern, with wildcards in place of its variables. It is empty for a single companion.
	Glob pattern.Values
	// Mount is set for a bind mount, because the path is not below /dev. Below /dev, any path that is no
	// device node is a mount as well.
	Mount bool
	// Optional is set if a device without the companion is Healthy.
	Optional bool
	// ReadOnly is about mounts, and Permissions about device nodes.
	ReadOnly      bool
	Permissions   string
	ContainerPath device.Text
}

// Health are the checks of a device beyond presence. All set checks must pass.
type Health struct {
	// Open is set if each node of the device must open, except for companions.
	Open bool
	// Attr are the wanted values of attributes. Names are relative paths. The nearest directory
	// that has the attribute decides, from each node up to its hardware.
	Attr map[string]pattern.Values
	// Link is set if the network interfaces of the device must have a carrier.
	Link bool
	// TCP is an address that must accept connections. It is empty if there is no such check.
	TCP device.Text
	// Interval is the time between two checks of one device.
	Interval time.Duration
}

// Container are the settings of containers.
type Container struct {
	// Path of the node in the container. If it is empty, the node has its path on the host.
	Path        device.Text
	Permissions string
	Env         []device.Entry
	Annotations []device.Entry
	// CDI is set if devices are injected by CDI names instead of nodes and mounts.
	CDI bool
	// AutoCDI is set if CDI names are injected in addition to nodes whose names matter to
	// programs, because a link cannot change the name in the container.
	AutoCDI bool
	// Owner is nil if the runtime decides.
	Owner *device.Owner
	// NetName is the name of a moved interface in the container. If it is empty, the interface
	// keeps its name.
	NetName device.Text
	Hooks   []device.Hook
	// MaxPerContainer is how many slots of one device one container may get. 0 is no limit.
	MaxPerContainer int
	// HealthDir is the path in the container of a directory that shows the health of its device, or
	// that has a directory for each of its devices, by index. It is empty if there is none.
	HealthDir string
}
