// Package ledger maintains the life of devices: the form of a device's ID (Identify),
// its health from the first list to the last (State.Next), and what persists of both
// (Load, Prepare). Identify and State.Next are pure; the time is an argument.
//
// Next opens the state before (next.go), changes a copy in stages, of which moved.go is
// about network interfaces in containers, held.go about slots that containers hold and
// room.go about the size of all lists, and makes the lists from it (list.go).
package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Reasons of Unhealthy devices, in addition to those of offers. They are constant: a
// list changes with a device, not with the time.
const (
	ReasonSettling    = "settling"
	ReasonGone        = "device is gone"
	ReasonUnread      = "device can't be read yet"
	ReasonSlotRetired = "slot retired: count was lowered"
	ReasonRemoved     = "resource was removed from the configuration"
	reasonTakenOver   = "now offered by " // and the name of the resource
	reasonRenamed     = "now listed as "  // and the ID
)

const (
	// settleTime without an event completes a device: its drivers are bound and its
	// nodes exist.
	settleTime = 250 * time.Millisecond
	// settleLimit ends the wait for hardware with continual events.
	settleLimit = 5 * time.Second
	// leaveAfter is the minimum time that a slot is Unhealthy before it leaves the
	// list. A kubelet panics if a device left the list when its Allocate call returns,
	// so that the call must be over.
	leaveAfter = time.Minute
	// completeAfter is how long remembered devices are awaited.
	completeAfter = 5 * time.Second
	// movedLimit is how long a device whose interface left the host stays Healthy while
	// its holder is unknown.
	movedLimit = 5 * time.Second
)

// Held are the held slots, as reported by the kubelet.
type Held struct {
	// At is the time of the query; zero is never, and unknown slots count as held. A
	// slot leaves the list only by an answer from after its time was up, since an older
	// one may not include an Allocate call in flight.
	At time.Time
	// Partial is set if the kubelet may not know all containers, since it has just
	// started: reported slots are held, and no slot is free.
	Partial bool
	// IDs of slots and the resources through which they are held, without those of
	// other programs.
	IDs map[string]string
	// Sets has the sets of devices that containers hold, by name, see device.HealthSet.
	Sets map[string]bool
}

// Output is the output of Next.
type Output struct {
	// Resources in the order of the configuration, then retiring ones that were removed
	// from it, by name. One without listed devices is left out: its stream may end.
	Resources []ListedResource
	// Changes since the last output, for the log.
	Changes []Change
	// Wake is when Next must be called again without other input; zero if time alone
	// changes nothing.
	Wake time.Time
	// AskHeld requests the holders now and then: something waits only until no
	// container holds it.
	AskHeld bool
	// AskSince requests the holders at once, unless they were queried then or later.
	AskSince time.Time
	// Dropped is the number of slots of absent devices that left the lists in this call
	// before their time, since the lists had no room.
	Dropped int
	// HeldUnlisted is the number of devices that only the kubelet knows, as held, and that are
	// not listed since the lists have no room.
	HeldUnlisted int
}

// ListedResource is a resource as listed to the kubelet.
type ListedResource struct {
	Name string
	// Devices in natural order of their IDs, which are unique over all resources.
	Devices []Entry
	// Complete is set once every device remembered from before the start is present, or
	// was awaited long enough. The list is valid before: missing devices are on it as
	// Unhealthy, and a kubelet without a list rejects pods, including those of present
	// devices. It delays no list and no registration.
	Complete bool
	// Register is set if the kubelet has to know the resource: a device is or was
	// present. It stays set until the resource has ended. A retiring resource is not
	// registered for that.
	Register bool
	// Waiting are matched devices that are not listed yet.
	Waiting []Waiting
}

// Waiting is a device that another resource lists, or its resource with another ID, or that
// a container holds so.
type Waiting struct {
	ID, Reason string
	// NoRoom is set if absent devices that may be held leave no room for it.
	NoRoom bool
}

// Entry is one listed device.
type Entry struct {
	// Offer is the current offer of a matched device. An unmatched one has only ID,
	// Slots and NUMA. One whose interfaces are in a container (Moved) has its last
	// offer, or only these fields after a restart.
	Offer   device.Offer
	Healthy bool
	// Reason of an Unhealthy device, for an administrator.
	Reason string
	// Present is set if the device is matched, or its interfaces are in a container.
	Present bool
	// Sound is set if a device that is not Healthy is in order: another resource waits for it.
	Sound bool
	// Unseen is set if interfaces of the device are not on the host and no container is
	// known to hold it. A kubelet that has just started knows few containers, so that
	// this may be wrong, and is queried again.
	Unseen bool
	// Retired is how many slots are still listed beyond Offer.Slots, Unlisted how many
	// slots of an absent device are no longer listed, from the last one of Offer.Slots on.
	Retired, Unlisted int
	// Kept are slots that are listed behind all others, since containers hold them.
	Kept []int
}

// first is how many slots are listed from slot 0 on.
func (e Entry) first() int { return e.Offer.Slots + e.Retired - e.Unlisted }

// Lists reports whether a slot is listed.
func (e Entry) Lists(slot int) bool {
	return slot < e.first() || slices.Contains(e.Kept, slot)
}

// Change is a new device, a changed health or a device that left.
type Change struct {
	Resource string
	ID       string
	Healthy  bool
	Reason   string
	// Left is set if the device is no longer listed.
	Left bool
}

// State is the listed devices and their times. The zero State is empty. States are
// values: Next does not modify its receiver.
type State struct {
	started   bool
	resources []resource
	// forgot is set if a device that a container may hold was left out, and it is unknown
	// which one.
	forgot bool
}

type resource struct {
	name       string
	registered bool
	records    map[string]record // by ID
	last       []Entry
	// waits is since when new devices wait for room in the lists, by ID.
	waits map[string]time.Time
}

// record is the life of one device.
type record struct {
	offer   device.Offer
	present bool
	// pending is set if it was listed before the start and has not been present since.
	pending bool
	// wasGone is set if it was absent before the start.
	wasGone bool
	// unread is set if it may be unread hardware.
	unread bool
	// settled is reached once and lost when the nodes change or leave. The wait started
	// at begun, and changed is the last change seen; zero if present at the start.
	settled        bool
	begun, changed time.Time
	// nodes of the device without companions. keys are their keys, kept while the
	// device is absent: it is complete when it has them again.
	nodes []node
	keys  []string
	// since is when the device began to leave: by removal, by a move, or with its
	// retired resource. Zero while it stays.
	since time.Time
	// listed is how many slots are listed from slot 0 on. Those from offer.Slots on are
	// retired, since the count was lowered; kept are the ones behind that a container holds.
	listed  int
	kept    []int
	lowered time.Time
	// orphan is set if only the kubelet knows the device, which was never present.
	orphan bool
	net    netState
}

// node is the identity of a node.
type node struct {
	key, path    string
	net          bool // an interface, whose name is path
	major, minor uint32
}
