// Package ledger keeps the life of devices: the form of a device's ID (Identify),
// its health from the first list that has it to the last (State), and what of both
// outlives a restart (Load, Save). Identify and State.Next are pure: all that they
// know of the world is in their arguments, the time included.
package ledger

import (
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// Reasons why a device is listed as Unhealthy, besides those that an offer
// brings along. They are constant: a list changes when a device does, not
// with the time.
const (
	ReasonSettling    = "settling"
	ReasonGone        = "device is gone"
	ReasonUnread      = "device can't be read yet"
	ReasonSlotRetired = "slot retired: count was lowered"
	ReasonRemoved     = "resource was removed from the configuration"
	reasonClaimed     = "now offered by " // and the name of the resource
)

const (
	// settleTime without an event makes a device complete: its drivers have
	// bound and its nodes are there.
	settleTime = 250 * time.Millisecond
	// settleLimit ends the wait for hardware that always has an event.
	settleLimit = 5 * time.Second
	// leaveAfter is how long a slot is Unhealthy at least before it leaves
	// the list. A kubelet that finds a device gone from the list at the end
	// of an Allocate call for it panics, so that call must be over.
	leaveAfter = time.Minute
	// completeAfter is how long remembered devices are waited for.
	completeAfter = 5 * time.Second
	// movedLimit is how long a device whose interface left the host stays
	// Healthy while nobody says whether a container holds it.
	movedLimit = 5 * time.Second
)

// Input is all that Next looks at.
type Input struct {
	// Now, and when the process started, by one clock.
	Now, Start time.Time
	// Resources of the configuration in file order, with what was matched.
	// A resource that is no longer among them is retired.
	Resources []Resource
	Held      Held
	// LastEvent returns the time of the last kernel event at or below a sysfs path, zero
	// for long ago; nil is that for all.
	LastEvent func(hardware string) time.Time
	// Hardware reports whether there is hardware at a sysfs path; nil is
	// everywhere.
	Hardware func(path string) bool
	// Failing says why devices fail their health checks, by ID. Unlike a problem of
	// an offer it changes nothing but the health.
	Failing map[string]string
	// Unread is hardware that is there and could not be read yet: a device that is not
	// matched may be one of it.
	Unread []device.Unread
}

// Resource is one resource and what is matched for it now.
type Resource struct {
	Name   string
	Offers []device.Offer
	// Grows says that a device is its hardware with all selected nodes (each
	// is "device"), so that one that has just come may have more in a moment.
	Grows bool
	// ForgetAfter is how long a device that is gone stays listed; less than a
	// minute is a minute.
	ForgetAfter time.Duration
	// Derived says that devices make the name: the resource ends with the last of
	// them. One that none makes any more is given without offers for as long as
	// anything of it is listed: its devices are gone, and nobody removed it.
	Derived bool
	// Refuse is why the whole resource is being retired; empty where it isn't.
	// Offers don't count then.
	Refuse string
}

// Held is which slots containers hold, as the kubelet says.
type Held struct {
	// At is when it was asked; zero is never, and what is not known to be
	// free counts as held. A slot leaves the list only by an answer that was
	// given after its time was up, since an older one may not know of an
	// Allocate call that was on its way.
	At time.Time
	// Partial says that there may be containers that the kubelet did not know of,
	// as when it has just started: what it names is held, and nothing is free.
	Partial bool
	// IDs of slots and the resource that each is held through. Those of other
	// programs' resources are left out.
	IDs map[string]string
}

// Output is what follows from an Input.
type Output struct {
	// Resources in the order of the configuration, then those being retired
	// that are no longer in it, by name. One that has nothing left to list is no
	// longer among them: its stream may end.
	Resources []ListedResource
	// Changes since the last output, for the log.
	Changes []Change
	// Wake is when Next must be called again if nothing happens before; zero
	// where nothing changes with time alone.
	Wake time.Time
	// AskHeld says that something only waits until no container holds it: ask what
	// is held now and then, and call Next with the answer.
	AskHeld bool
	// AskSince is set where that is urgent: ask at once unless it was asked then or
	// later.
	AskSince time.Time
}

// ListedResource is one resource as the kubelet is shown it.
type ListedResource struct {
	Name string
	// Devices in natural order of their IDs, which are unique over all
	// resources.
	Devices []Entry
	// Complete says that every device remembered from before the start is
	// there, or that it was waited for long enough. The list is good before
	// that: what is missing is on it as Unhealthy, and a kubelet that has no
	// list refuses pods just like one whose list says so, those of the devices
	// that are there included. What can wait for it is what starts a kubelet.
	Complete bool
	// Register says that the kubelet has to know of the resource: a device is
	// or was there. It stays until the resource has ended. A resource that is
	// being retired is never registered for that.
	Register bool
	// Waiting are devices that are matched, but not listed yet, since another
	// resource has them on its list or a container holds them through it.
	Waiting []Waiting
}

// Waiting is a device that another resource still has.
type Waiting struct {
	ID string
	By string // the name of that resource
}

// Entry is one listed device.
type Entry struct {
	// Offer as it is matched now. Of a device that isn't matched any more
	// only ID, Slots and NUMA are known. Of one whose interfaces are in a
	// container (Moved) it is what was matched last; after a restart, too, only
	// these are known.
	Offer   device.Offer
	Healthy bool
	// Reason why it isn't, in words for an administrator.
	Reason string
	// Present says that the device is matched now, or that it is not because
	// its interfaces are in a container.
	Present bool
	// Unseen says that interfaces of the device are not on the host and that no
	// container is known to hold it. A kubelet that was just started knows of
	// few containers, so that this may be wrong, and is asked again.
	Unseen bool
	// Retired are slots from Offer.Slots on that are still listed, sorted.
	Retired []int
}

// Change is a device that turned up, changed its health or left.
type Change struct {
	Resource string
	ID       string
	Healthy  bool
	Reason   string
	// Left says that the device is no longer listed.
	Left bool
}

// State is what is listed and since when. The zero State lists and remembers
// nothing. States are values: Next leaves the one it is called on as it is.
type State struct {
	started   bool
	resources []resource
}

type resource struct {
	name       string
	registered bool
	records    map[string]record // by ID
	// pending are IDs from before the start that have not been there since.
	pending map[string]bool
	last    ListedResource
}

// record is the life of one device.
type record struct {
	offer   device.Offer
	present bool
	// unread says that it may be hardware that could not be read yet.
	unread bool
	// settled is reached once and lost when the nodes change or go. The wait
	// began with begun, and changed is the last change that was seen here;
	// zero for what was there at the start.
	settled        bool
	begun, changed time.Time
	// nodes of the device without companions. keys are their keys, kept while
	// the device is away: it is whole when it has them again.
	nodes []node
	keys  []string
	// since is when the device began to leave: when it went, moved or its
	// resource was retired. Zero while it stays.
	since   time.Time
	retired []retiredSlot // by slot
	net     netState
}

// node is what makes a node another one.
type node struct {
	key, path    string
	net          bool // it is an interface, and path its name
	major, minor uint32
}

type retiredSlot struct {
	slot  int
	since time.Time
}
