package ledger

import (
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Input is the input of Next.
type Input struct {
	// Now is the current time, and Start the start of the process, by the same clock.
	Now, Start time.Time
	// Resources are the resources of the configuration in file order, with their matches. A
	// listed resource that is missing is being retired.
	Resources []Resource
	Held      Held
	// Blocked returns why an offer must not be made through a resource, because a container holds
	// its hardware in another way: under another ID, or through another resource. It is empty if
	// nothing speaks against the offer. A nil Blocked blocks nothing.
	Blocked func(resource string, offer *device.Offer) string
	// Hardware is the hardware of the host, sorted by its sysfs path.
	Hardware []*device.Hardware
	// Node returns the node at a path of the host, or nil. Exists reports whether there is any file.
	Node   func(path string) *device.Node
	Exists func(path string) bool
	// UnreadHardware is present hardware that could not be read yet: an unmatched device may
	// be part of it.
	UnreadHardware []device.UnreadHardware
	// Events are the times of the latest kernel events, by sysfs path. Events that are
	// older than settleTime do not matter.
	Events map[string]time.Time
	// Failing are the reasons of failed health checks, by ID. Unlike the problem of an offer,
	// they affect only the health.
	Failing map[string]string
}

// lastEvent returns the time of the last kernel event at or below the sysfs path of hardware,
// the zero time if there was none.
func (in *Input) lastEvent(hardware string) time.Time {
	var last time.Time
	if hardware == "" {
		return last
	}
	for path, at := range in.Events {
		isBelow := path == hardware || strings.HasPrefix(path, hardware+"/")
		if isBelow && at.After(last) {
			last = at
		}
	}
	return last
}

// hasHardware reports whether there is hardware at a sysfs path, including unread hardware.
func (in *Input) hasHardware(path string) bool {
	for _, u := range in.UnreadHardware {
		if u.Path == path {
			return true
		}
	}
	return in.hardwareAt(path) != nil
}

// hardwareAt returns the hardware at a sysfs path, or nil. The place of a virtual function is not its path, see
// device.IsPlaceOf, and ends with its address.
func (in *Input) hardwareAt(place string) *device.Hardware {
	i, found := sort.Find(len(in.Hardware), func(i int) int {
		return strings.Compare(place, in.Hardware[i].Path)
	})
	if found {
		return in.Hardware[i]
	}
	address := path.Base(place)
	if !device.IsPCIAddress(address) {
		return nil
	}
	i = slices.IndexFunc(in.Hardware, func(h *device.Hardware) bool {
		return h.Name == address
	})
	if i < 0 {
		return nil
	}
	return in.Hardware[i]
}

// Resource is one resource with its current matches.
type Resource struct {
	Name   string
	Offers []device.Offer
	// Grows is set if a device is its hardware with all selected nodes (each is
	// "device"), so that a new one may get more nodes.
	Grows bool
	// Derived is set if the name comes from devices: the resource ends with the last of its
	// devices. While it still lists devices and none matches, it is passed without offers:
	// then its devices were removed, but not the resource.
	Derived bool
	// MatchIncomplete is set if something that the resource matches could not be read: a
	// device without an offer may be present.
	MatchIncomplete bool
	// Refuse is why the whole resource is being retired, empty if it is not. The offers of
	// a retired resource are ignored.
	Refuse string
}
