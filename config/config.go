// Package config turns the text of TOML files into a validated Config, or into
// the list of everything that is wrong with them. It alone knows TOML.
//
// Each file is decoded into plain tables, which a small walker then reads: it
// knows place, key and type of every value, so that a message names them. A
// kind of table is a list of keys as data (resourceTable, matchTable, ...): a
// new key is one line there and a function that gives it its meaning.
package config

import (
	"time"

	"github.com/generic-dp/generic-dp/device"
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
}

// Resource is one [[resource]].
type Resource struct {
	// Name with its domain, "example.com/gpu".
	Name string
	// Place is how messages speak of it: `gpu.toml: resource 2 ("gpu")`.
	Place       string
	Match       []Match
	Exclude     []Match
	Count       int
	Each        Each
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
const (
	EachDevice Each = "device"
	EachNode   Each = "node"
)

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
	// Glob patterns of node paths; empty Values is no condition.
	Glob Values
	// USB and PCI hold the conditions by their key ("vendor", "id"); nil
	// where the table is absent. An empty, non-nil map names the bus alone.
	USB map[string]Values
	PCI map[string]Values
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

// NamesHardware reports whether the match has a usb or a pci table.
func (m *Match) NamesHardware() bool { return m.USB != nil || m.PCI != nil }

// Companion is a node or path given along with every device.
type Companion struct {
	Place string
	// Path or Glob is set.
	Path device.Text
	Glob string
	// Mount says that it is given as a bind mount (as = "mount").
	Mount         bool
	Optional      bool
	ReadOnly      bool
	Permissions   string
	ContainerPath device.Text
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
}

// Mount is one of container.mounts; variables are allowed in both paths.
type Mount struct {
	HostPath, ContainerPath device.Text
	ReadOnly                bool
	Optional                bool
}
