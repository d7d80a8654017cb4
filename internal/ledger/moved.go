package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// netState is the state of the network interfaces of a device. A container runtime
// moves them into the network namespace of the pod, which looks like a removal on the
// host. When the namespace ends, the kernel returns those of hardware and destroys the
// others (default_device_exit_net in net/core/dev.c). So a device that a container
// holds is present:
//
//   - It is Healthy while its hardware is present and a container holds it. The
//     holders are queried at once, and an answer is awaited for movedLimit; after
//     a restart, without limit: containers keep running while the kubelet is
//     down.
//   - One without a holder is gone, as is one without its hardware. While it is
//     listed the kubelet is queried again, since it may not have known its
//     containers yet.
type netState struct {
	moves    bool   // its interfaces move into containers
	hardware string // its sysfs path; empty if none
	// left is when the interfaces left the host, zero while they are present. held is
	// set if an answer since then named a container, or may have before a restart.
	left time.Time
	held bool
}

// away reports whether interfaces of the device have left the host.
func (n netState) away() bool { return n.moves && !n.left.IsZero() }

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
	offer.Moved = true
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
		// A replacement is a different device.
		*n = netState{}
		return false
	}
	if n.left.IsZero() {
		n.left = t.in.Now
	}
	if at := t.in.Held.At; !at.IsZero() && !at.Before(n.left) {
		holds := slices.ContainsFunc(t.held[id], func(h heldSlot) bool { return h.resource == d.name })
		if holds || !t.in.Held.Partial {
			n.held = holds
			return holds
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

// lacksNets reports whether a device with these nodes has lost only interfaces, at
// least one.
func (rec record) lacksNets(nodes []node) bool {
	if !rec.net.moves || !rec.present || !rec.settled {
		return false
	}
	lost := 0
	for _, n := range rec.nodes {
		if slices.Contains(nodes, n) {
		} else if n.net {
			lost++
		} else {
			return false
		}
	}
	return lost > 0 && len(nodes)+lost == len(rec.nodes)
}
