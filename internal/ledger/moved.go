package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// netState is the state of the network interfaces of a device. A container runtime moves them
// into the network namespace of the pod, which looks like a removal on the host. When the
// namespace ends, the kernel returns interfaces of hardware to the host and destroys virtual
// ones (default_device_exit_net in net/core/dev.c). So a device that a container holds is
// present:
//
//   - It is Healthy while its hardware is present and a container holds it. The
//     holders are queried at once, and the answer is awaited for movedLimit. After a
//     restart it is awaited without a limit: containers keep running while the kubelet
//     is down.
//   - A device without a holder is gone, and so is a device without its hardware. While
//     it is listed the kubelet is queried again, because it may not have known its
//     containers yet.
type netState struct {
	// moves is set if the device has interfaces, which move into containers.
	moves bool
	// hardware is the sysfs path of the hardware, empty if there is none.
	hardware string
	// left is when the interfaces left the host, the zero time while they are present.
	left time.Time
	// held is set if an answer since left named a container. It is also set at a start,
	// because an earlier instance may have had that answer.
	held bool
}

// haveLeft reports whether interfaces of the device have left the host.
func (n netState) haveLeft() bool { return n.moves && !n.left.IsZero() }

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
func (t *transition) inContainer(d *draft, id string, rec *record) bool {
	n := &rec.net
	if !n.moves {
		return false
	}
	if n.hardware != "" && !t.in.hasHardware(n.hardware) {
		*n = netState{} // hardware that replaces it is a different device
		return false
	}
	if n.left.IsZero() {
		n.left = t.in.Now
	}
	isAnswered := !t.in.Held.At.IsZero() && !t.in.Held.At.Before(n.left)
	if isAnswered {
		isHeld := slices.ContainsFunc(t.held[id], func(h heldSlot) bool { return h.resource == d.name })
		if isHeld || !t.in.Held.Partial {
			n.held = isHeld
			return isHeld
		}
	}
	if n.left.After(t.out.AskSince) {
		t.out.AskSince = n.left
	}
	limit := n.left.Add(movedLimit)
	if !n.held && t.in.Now.Before(limit) {
		t.wake(limit)
		return true
	}
	return n.held
}

// lacksNets reports whether a device that now has these nodes has lost at least one interface,
// and nothing else.
func (rec record) lacksNets(nodes []node) bool {
	if !rec.net.moves || !rec.present || !rec.settled {
		return false
	}
	lost := 0
	for _, n := range rec.nodes {
		if slices.Contains(nodes, n) {
			continue
		}
		if !n.net {
			return false
		}
		lost++
	}
	return lost > 0 && len(nodes)+lost == len(rec.nodes)
}
