package dra

import (
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// State is the health of a Device.
type State byte

// The states. The scheduler gives only healthy devices to pods.
const (
	Healthy State = iota
	// Withheld is a device that works and stays with its holder, but that no other claim gets.
	Withheld
	// Settling is a device whose state is expected to be known in a moment.
	Settling
	// Unhealthy is a present device that does not work, or that failed its check.
	Unhealthy
	// Gone is an absent device that stays listed.
	Gone
)

// Device is one device of one resource to publish.
type Device struct {
	// ID is unique over all resources of the node.
	Resource, ID string
	// Attributes by name, in the driver's domain unless the name has one, such as
	// "resource.kubernetes.io/pciBusID". The attributes resource, id and
	// resource.kubernetes.io/numaNode come from the other fields. Empty ones are left out; nil are
	// unknown.
	Attributes map[string]device.Typed
	// Mistyped is set if Attributes lacks an attribute because of its value. The device is not
	// published: a selector on the attribute would be an error for every pod that needs any device.
	Mistyped bool
	// Capacity are the amounts that claims share if Slots is more than 1.
	Capacity map[string]device.Capacity
	// NUMA nodes, sorted.
	NUMA []int
	// Slots is the number of containers that may hold the device at once.
	Slots int
	// Uses is what it uses of the host. Claims hold only one of two exclusive devices that use the same
	// places.
	Uses holds.Device

	State State
	// Reason says why State is not Healthy, for an administrator.
	Reason string
	// Since is the beginning of State.
	Since time.Time
	// EvictAfter is the time from Since until pods lose a device that is Gone; if
	// negative they never do.
	EvictAfter time.Duration

	// CDI are the names that bring it into a container.
	CDI []string

	name string // once it is sorted
	// consumes is set by addCounters.
	consumes []consumption
}

// Name is the name of the device in the node's pool.
func (d *Device) Name() string { return DeviceName(d.ID) }

// ref is the device in files of claims.
func (d *Device) ref() device.Ref { return device.Ref{Resource: d.Resource, ID: d.ID} }

// List is the latest devices, which any number of readers follow. The zero value is ready
// to use.
type List struct {
	mu      sync.Mutex
	devices []Device
	changed chan struct{} // nil while nobody reads
}

// Set replaces the devices and wakes the readers, even if the devices are equal.
func (l *List) Set(devices []Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The copy is not nil even for no devices, which differs from the state before the first Set.
	l.devices = append([]Device{}, devices...)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Get returns the devices, nil before the first Set, and a channel that is closed by the
// next one. The devices must not be changed.
func (l *List) Get() ([]Device, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.devices, l.changed
}

const (
	// maxLabel is the maximum length of a DNS label.
	maxLabel = 63
	// lower are the letters and digits of a DNS label.
	lower = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// separators replaces the separators of IDs in names.
var separators = strings.NewReplacer(":", "-", ".", "--")

// DeviceName returns the name of a device as DNS label: its ID with "-" for ":" and "--"
// for ".". An ID that this would make ambiguous, or too long, is replaced by its readable
// part and a hash. IDs are unique over all resources, so that the resource's name is not
// part of it: a device that moves to another resource stays the same device to the
// scheduler, and has one holder.
func DeviceName(id string) string {
	name := separators.Replace(id)
	// An exact name can be read as one ID only.
	exact := len(name) <= maxLabel && id != "" && !hashed(id)
	// Two separators in a row, or one at an end, would make the name ambiguous.
	separated := true
	for _, c := range id {
		letter := strings.ContainsRune(lower, c)
		exact = exact && (letter || !separated && (c == ':' || c == '.'))
		separated = !letter
	}
	if exact && !separated {
		return name
	}
	name = strings.Map(func(c rune) rune {
		if strings.ContainsRune(lower+"-", c) {
			return c
		}
		return '-'
	}, strings.ToLower(name))
	return device.CutLabel(strings.Trim(name, "-"), maxLabel-device.HashLen) + device.HashPart(id)
}

// hashed reports whether the name of an ID would end like a hash part, "-x" and more. Such an ID
// could have the name of another, hashed ID.
func hashed(id string) bool {
	i := len(id) - device.HashLen
	return i >= 0 && id[i+1] == 'x' && (id[i] == ':' || id[i] == '.')
}
