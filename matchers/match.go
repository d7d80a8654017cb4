// Package matchers turns a configuration and a snapshot of a host into the
// devices that each resource offers. The result depends only on these, on Options
// and on the answers of Host, so that the service and all commands agree, and a
// recorded machine can be matched anywhere.
//
// Each active resource (when.go), in file order, goes through these steps (run.go):
//
//	select   nodes, hardware, interfaces, paths and CDI devices, by its matches
//	         (predicate.go, select.go, vfio.go)
//	claim    candidates that no earlier resource has claimed (claims.go)
//	combine  into devices, by each (combine.go), and by the name of
//	         the resource (names.go)
//	offer    nodes, mounts and environment of a device, with every variable
//	         filled in (offer.go, container.go, variables.go); a device that is
//	         dangerous (danger.go) or incomplete is offered with a Problem
//	note     hints for the administrator (notes.go)
//
// Explain runs the same steps, and then evaluates the conditions of each match again,
// one by one (explain.go, nearest.go).
package matchers

import (
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Options are the other inputs of Match.
type Options struct {
	// NodeName is the name of the Kubernetes node, or empty if it is not known.
	NodeName string
	// Allow are the privileges of the configuration.
	Allow config.Allow
	// CDIDevices are the devices of the host's own CDI specs, by name.
	CDIDevices []device.CDIDevice
	// CDIUnread is why CDIDevices are not known. It is nil if they are known.
	CDIUnread error
	// CDI is set if CDI specs can be written.
	CDI bool
	// Host reads other data.
	Host Host
	// Now is the clock of the deadline of a resource. It is nil for time.Now.
	Now func() time.Time
}

// Host reads data that only some configurations need. Paths in sysfs are relative to its root,
// as in a snapshot. All other paths are absolute paths of the host. A search ends at the time until, and what
// it would still have found is not known.
//
// All methods are called in the goroutine of Match, one at a time. A method may wait for the
// kernel, but not without a limit: during Match, the loop of the agent reacts to no event.
type Host interface {
	// Attr returns the values of an attribute of a directory in sysfs, or nil if there is no
	// such attribute. A name with wildcards may have several values. unread is set if the
	// attribute may exist and could not be read yet.
	Attr(dir, name string, until time.Time) (values []string, unread bool)
	// Driver returns the driver of a directory in sysfs, or an empty string.
	Driver(dir string) string
	// CharDriver returns the driver of a major number of character devices, or an empty string.
	CharDriver(major uint32) string
	// InUse returns how the host uses a network interface, or an empty string.
	InUse(*device.Node) string
	// Exists reports whether a path exists. known is not set if the search takes too long.
	Exists(path string) (exists, known bool)
	// Glob lists the paths that a condition selects. complete is not set if some may be missing, because
	// the search takes too long.
	Glob(v pattern.Values, until time.Time) (paths []string, complete bool)
}

// Result is the result of Match. Its maps and slices belong to the caller, but it points to
// resources of the configuration.
type Result struct {
	// Resources are in the order of the configuration, including resources without offers.
	Resources []Offered
	// Inactive are the resources whose when does not hold on this host. A resource that only lost
	// its name to an earlier resource is not in the list.
	Inactive []*config.Resource
	// Notes are for the administrator, in the order of the configuration.
	Notes []Note
	// Unknown has the resources of which not all devices are known, with the reason: a search or the
	// comparison of patterns takes too long. A device of such a resource that has no offer
	// may still exist. The ledger does not treat it as removed (MatchIncomplete).
	Unknown map[*config.Resource]string
	// Late is set if a resource could not be matched in time. Such a configuration
	// must not become the last good one.
	Late bool
	// LeftOut is the number of devices that are not offered, because they would take too much of
	// the lists. The agent shows the number in its status, because nothing may be left out silently.
	LeftOut int
}

// Offered is an active resource with its offers. A resource with variables in its name is one
// Offered for each name.
type Offered struct {
	Resource *config.Resource
	// Name has no variables.
	Name string
	// Offers are sorted by ID, and include offers with a Problem.
	Offers []device.Offer
	// Checks are the health checks of offers without a Problem, by ID. It is empty if the
	// resource has no health.
	Checks map[string]device.Check
}

// Note is a hint about the configuration on this host.
type Note struct {
	config.Problem
	// Error is set if the note is about a mistake. The commands check and devices report such a
	// note as a problem, unless OfNode is set.
	Error bool
	// OfNode is set if the mistake only exists while the name of the node is unknown, such as for a
	// command that runs on another machine.
	OfNode bool
}

// Match finds the offers of each resource. forms has the form of the ID of each USB device, see
// device.Forms. It may be nil if serial numbers are unique.
//
// A device goes to the first active resource that selects it, or to all of them that have
// shared = true, or to all of them that have shared = "exclusive". Each ID is offered once. So is
// each node, except for companions and the devices of such resources.
//
// Match does not fail: it reports mistakes and unknown values as notes, or as the Problem of an
// offer. It changes neither cfg nor snap. The result refers to resources of cfg, so that cfg must
// not change as long as the result is in use.
func Match(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) Result {
	m := newRun(cfg, snap, forms, opts)
	m.matchAll(cfg, func(*config.Resource, string) {})
	return m.result
}
