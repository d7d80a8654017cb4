package ledger

import (
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// netState is the state of the network interfaces of a device. A container runtime moves them
// into the network namespace of the pod, which looks like a removal on the host. When the
// namespace ends, the kernel returns interfaces of hardware to the host and destroys virtual
// interfaces (default_device_exit_net in net/core/dev.c). A device that a container holds is therefore
// present:
//
//   - It is Healthy while its hardware is present and a container holds it.
//   - A device without a holder is gone, and so is a device without its hardware.
type netState struct {
	// moves is set if the device has interfaces, which move into containers.
	moves bool
	// hardware is the sysfs path of the hardware, empty if there is none.
	hardware string
	// haveLeft is set while interfaces of the device are not on the host.
	haveLeft bool
}

// netOf returns the state of a matched device.
func netOf(offer device.Offer) netState {
	if len(offer.Nets) == 0 {
		return netState{}
	}
	return netState{moves: true, hardware: offer.Hardware}
}

// movedOffer returns the offer of a device whose interfaces are in a container, without
// problems found on the host.
func movedOffer(offer device.Offer) device.Offer {
	offer.NetsInContainer = true
	offer.Problem = ""
	return offer
}

// inContainer reports whether the missing interfaces of a device are in the container
// that holds it.
func (t *transition) inContainer(id string, rec *record) bool {
	n := &rec.net
	if !n.moves {
		return false
	}
	if n.hardware != "" && !t.in.hasHardware(n.hardware) {
		*n = netState{} // its replacement is a different device
		return false
	}
	n.haveLeft = true
	isHeld := slices.ContainsFunc(t.in.Held.Slots[id], func(h HeldSlot) bool {
		return h.Resource == rec.resource
	})
	// No event announces that a virtual interface has ended with its pod.
	t.out.AwaitsHolders = t.out.AwaitsHolders || isHeld
	return isHeld || t.in.Held.IsUnknown
}

// lacksNets reports whether a device with these nodes before and now has lost at least one interface, and
// nothing else.
func (rec record) lacksNets(before, nodes []node) bool {
	if !rec.net.moves || rec.phase != ready {
		return false
	}
	lost := 0
	for _, n := range before {
		if slices.Contains(nodes, n) {
			continue
		}
		if !n.net {
			return false
		}
		lost++
	}
	return lost > 0 && len(nodes)+lost == len(before)
}
