// Package ledger maintains the life of devices: the form of a device's ID (Identify),
// its health from the first list to the last (State.Next), and what persists of both
// (Load, Prepare). Identify and State.Next are pure; the time is an argument.
//
// Next opens the state before, changes a copy in stages (next.go), and makes the lists from it (list.go).
// settle.go is about new devices, moved.go about network interfaces in containers, held.go about slots that
// containers hold and room.go about the size of all lists. The phases of a device are in phase.go.
package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Reasons of Unhealthy devices, in addition to the problems of offers. They are constant: a
// list changes with a device, not with the time.
const (
	ReasonSettling    = "settling"
	ReasonGone        = "device is gone"
	ReasonUnselected  = "no match selects it any more"
	ReasonUnread      = "device can't be read yet"
	ReasonSlotRetired = "slot retired: count was lowered"
	ReasonRemoved     = "resource was removed from the configuration"
	reasonTakenOver   = "to be offered by " // and the name of the resource
	reasonRenamed     = "now listed as "    // and the ID
	reasonToBeRenamed = "to be listed as "  // and the ID
)

const (
	// settleTime is the time without an event after which a device is complete: its drivers
	// are bound and its nodes exist.
	settleTime = 250 * time.Millisecond
	// settleLimit ends the wait for hardware with continual events.
	settleLimit = 5 * time.Second
	// leaveAfter is the minimum time that a slot is Unhealthy before it leaves the
	// list. A kubelet panics if a device left the list when its Allocate call returns,
	// so that the call must be over.
	leaveAfter = time.Minute
	// completeAfter is how long remembered devices and unread hardware are awaited after the start.
	completeAfter = 5 * time.Second
	// forgetAfter is how long a removed device that no container holds stays listed.
	forgetAfter = 10 * time.Minute
)

// Held are the held slots.
type Held struct {
	// IsUnknown is set if it is not known which pods hold devices. Then every slot counts as held.
	IsUnknown bool
	// Slots are the held slots by the ID of the device. Resources of other programs are left out.
	Slots map[string][]HeldSlot
}

// HeldSlot is a slot that a container holds.
type HeldSlot struct {
	Number int
	// Resource is the key of the resource through which it is held.
	Resource string
}

// Output is the output of Next.
type Output struct {
	// Resources are the listed resources: first the configured ones in their order, then
	// removed ones that are being retired, by name. A resource that has ended is left out.
	Resources []ListedResource
	// Changes since the last output, for the log.
	Changes []Change
	// Wake is when Next must be called again without other input. It is the zero time if
	// the passage of time changes nothing.
	Wake time.Time
	// AwaitsHolders is set if something waits only until no container holds it.
	AwaitsHolders bool
	// WithoutRoom is the number of present devices that are not listed with all their slots, because the
	// lists have no room.
	WithoutRoom int
	// Dropped is the number of slots of absent devices that left the lists in this call
	// before their time, because the lists had no room.
	Dropped int
	// HeldUnlisted is the number of held devices that only the kubelet knows and that are not
	// listed, because the lists have no room.
	HeldUnlisted int
}

// ListedResource is a resource as listed to the kubelet.
type ListedResource struct {
	Name string
	// Devices in natural order of their IDs, which are unique over all resources.
	Devices []Entry
	// Complete is set once every device that is remembered from before the start is present and all
	// hardware is read, or that was awaited long enough. It delays neither a list nor a registration: a list is
	// valid before, with missing devices as Unhealthy, and a kubelet without a list rejects
	// even the pods of present devices.
	Complete bool
	// Register is set if the kubelet must know the resource from now on, until it ends: because it has a
	// device, or because a container holds one of its devices while it is being retired.
	Register bool
	// Waiting are matched devices that are not listed yet.
	Waiting []Waiting
}

// Waiting is a matched device that is not listed yet. Its hardware is listed or held through
// another resource or under another ID, or the lists have no room for it.
type Waiting struct {
	ID, Reason string
	// Moves is set if another resource still lists the device.
	Moves bool
}

// Entry is one listed device.
type Entry struct {
	// Offer is the current offer of a matched device. The offer of an unmatched device has
	// only ID, Slots, NUMA and Places. A device whose interfaces are in a container (NetsInContainer) has its
	// last offer, or only these fields after a restart.
	Offer   device.Offer
	Healthy bool
	// Reason tells an administrator why the device is Unhealthy.
	Reason string
	// Present is set if the device is matched, or its interfaces are in a container.
	Present bool
	// Withheld is set if the device is Unhealthy although it works: another resource, or the
	// same resource under another ID, offers its hardware or waits to do so, or a container holds
	// its hardware in another way.
	Withheld bool
	// NetsMissing is set if interfaces of the device are not on the host and no container holds it.
	NetsMissing bool
	// Listed is how many slots are listed, from slot 0 on. A present device retires those from
	// Offer.Slots on.
	Listed int
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
	started bool
	// records are the listed devices, by ID. One resource lists an ID: kubelets up to 1.36 cannot distinguish
	// an ID in two resources.
	records map[string]record
}

// record is the life of one device.
type record struct {
	// resource is the name of the resource that lists the device.
	resource string
	offer    device.Offer
	phase    phase
	// begun is when the device began to settle, and changed is the time of its last change. Both
	// are the zero time if the device was present at the start.
	begun   time.Time
	changed time.Time
	// keys are the keys of the nodes. They are kept while the device is absent: it is
	// complete when it has all of them again.
	keys []string
	// since is when the device began to leave, by a removal, by a move or with its retired
	// resource. It is the zero time while the device stays.
	since time.Time
	// listed is the number of slots that are listed from slot 0 on. Slots from offer.Slots on are
	// retired, because the count was lowered.
	listed int
	// lowered is when the count was lowered last.
	lowered time.Time
	net     netState
	// isShown is set once the device was in an output, with this reason.
	isShown bool
	reason  string
}

// idsByResource returns the IDs of the listed devices of each resource, in natural order.
func idsByResource(records map[string]record) map[string][]string {
	ids := map[string][]string{}
	for id, rec := range records {
		ids[rec.resource] = append(ids[rec.resource], id)
	}
	for _, list := range ids {
		slices.SortFunc(list, device.CompareNatural)
	}
	return ids
}
