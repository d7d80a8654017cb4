// Package holds knows which containers hold which devices. It answers the two questions that keep
// a device from having two holders: View.Slots says who holds a device, and View.Blocked says
// whether it may be offered.
//
// A hold has one of three sources. The checkpoint of the kubelet names the pods that have slots
// (checkpoint.go). Until it does, the grant of an Allocate call stands for the pod (grant.go).
// Claims are recorded by the driver for dynamic resource allocation. When a hold ends is a table in
// ends.go; what follows the pods is in review.go.
package holds

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Device is what a device uses of the host, as far as other devices matter.
type Device struct {
	// Places are what it uses, see device.Conflict. A device that is gone may use nothing.
	Places []string `json:"places,omitempty"`
	// Shared is set if containers may hold it beside shared devices of other resources.
	Shared bool `json:"shared,omitempty"`
	// Exclusive is set if it also excludes what is above and below its hardware.
	Exclusive bool `json:"exclusive,omitempty"`
	// Names are the names of its USB hardware, see device.USBNames.
	Names []string `json:"names,omitempty"`
	// IsUnplugged is set if the device was held while its port was empty.
	IsUnplugged bool `json:"is_unplugged,omitempty"`
}

// DeviceOf is what an offer uses of the host.
func DeviceOf(o *device.Offer) Device {
	return Device{
		Places:    o.Places,
		Names:     o.Names,
		Shared:    o.Shared,
		Exclusive: o.Exclusive,
	}
}

// Wanted is a device that a container would get through a resource.
type Wanted struct {
	ID string
	// Resource is the key of the resource, see device.ResourceKey.
	Resource string
	// Slots is the number of slots that the device has, for a claim.
	Slots int
	Device
}

// Holder is who holds a slot of a device.
type Holder struct {
	// ID is the device, and Slot the number of its slot. Slots of claims are numbered from 0.
	ID   string
	Slot int
	// Resource is the key of the resource through which it is held.
	Resource string
	// Claim is the UID of the claim, empty for a pod of a device plugin.
	Claim string
}

// holderOf is the pod that holds a slot through a resource.
func holderOf(slot, resource string) Holder {
	id, number := device.SplitSlot(slot)
	return Holder{
		ID:       id,
		Slot:     number,
		Resource: resource,
	}
}

// compareHolders orders holders by device, with claims last.
func compareHolders(a, b Holder) int {
	return cmp.Or(
		cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Claim, b.Claim),
		cmp.Compare(a.Slot, b.Slot),
		cmp.Compare(a.Resource, b.Resource),
	)
}

// excludes reports whether a container that holds a device keeps other containers from getting
// another one. use is what the held device uses, nil if that is not known. Slots of one device of
// one resource do not exclude each other: the kubelet counts them.
func (h *Holder) excludes(use *Device, w *Wanted) bool {
	if h.ID == w.ID {
		return h.Resource != w.Resource
	}
	if use == nil {
		// It may be any hardware. Devices that exclude nothing but themselves are told apart by
		// their IDs.
		return w.Exclusive
	}
	heldName, _ := device.SplitResourceKey(h.Resource)
	wantedName, _ := device.SplitResourceKey(w.Resource)
	areShared := use.Shared && w.Shared
	if areShared && heldName != wantedName {
		return false
	}
	if use.Exclusive || w.Exclusive {
		return device.Conflict(use.Places, w.Places)
	}
	return device.SameHardware(use.Places, w.Places)
}

// reason is why a device is not available while a container holds another one.
func (h *Holder) reason(use *Device, w *Wanted) string {
	switch {
	case h.ID == w.ID:
		return "held by a container through " + h.Resource
	case use == nil:
		return fmt.Sprintf("a container holds %s through %s, and it is not known which hardware that is", h.ID, h.Resource)
	}
	return "held as " + h.ID + " through " + h.Resource
}

// CheckWithin returns why one container cannot have these devices together: two of them are the same
// hardware, or exclude each other.
func CheckWithin(devices []Wanted) error {
	for i := range devices {
		w := &devices[i]
		for j := range devices[:i] {
			other := &devices[j]
			h := Holder{ID: other.ID, Resource: other.Resource}
			if other.ID != w.ID && h.excludes(&other.Device, w) {
				return fmt.Errorf("devices %q and %q exclude each other, and a container cannot have both", other.ID, w.ID)
			}
		}
	}
	return nil
}

// notOffered is what a held device uses although it is not offered now. It may return to its port, so that
// it keeps the places there until the port has other hardware. plugged has the names of the hardware in
// each port, see device.PortOf, nil if they are not known.
func (d Device) notOffered(plugged map[string][]string) Device {
	names := slices.Concat(d.Names, d.Places)
	for _, place := range d.Places {
		port := device.PortOf(place)
		if port == "" {
			continue
		}
		there, isPlugged := plugged[port]
		if !isPlugged {
			d.IsUnplugged = true
			continue
		}
		isBack := device.ShareSerial(names, there)
		isOther := device.HaveOtherSerials(names, there) || d.IsUnplugged && !isBack
		if there != nil && isOther {
			d.Places = device.LastingPlaces(d.Places)
			return d
		}
	}
	return d
}
