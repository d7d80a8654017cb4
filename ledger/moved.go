package ledger

import (
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// netState is where the network interfaces of a device are. A container
// runtime moves them into the network namespace of the pod, and the host sees
// them go as if they were pulled out. The kernel brings those of hardware back
// when the namespace ends and destroys the others (default_device_exit_net in
// net/core/dev.c), so a device that a container holds is where it should be:
//
//   - It is Healthy while its hardware is there and a container holds it. That
//     is asked at once, and an answer is waited for as long as movedLimit; after
//     a restart, without limit: containers run on while the kubelet is away.
//   - One that nobody holds is gone, and so is one whose hardware is. For as
//     long as it is listed the kubelet is asked again, which may not have known
//     of its containers yet.
type netState struct {
	moves    bool   // interfaces of the device move into containers
	hardware string // its sysfs path; empty where it has none
	// left is when the interfaces left the host, zero while they are there. held
	// says that an answer that was given since then named a container, or may
	// have before a restart.
	left time.Time
	held bool
}

// away reports whether interfaces of the device have left the host.
func (n netState) away() bool { return n.moves && !n.left.IsZero() }

// netOf returns the state of a device that is matched.
func netOf(offer device.Offer) netState {
	if len(offer.Nets) == 0 {
		return netState{}
	}
	return netState{moves: true, hardware: offer.Hardware}
}

// movedOffer returns the offer of a device whose interfaces are in a container.
// What was wrong with it on the host is no longer seen.
func movedOffer(offer device.Offer) device.Offer {
	offer.Moved, offer.Problem = true, ""
	return offer
}

// inContainer reports whether the interfaces of a device, which are not on the
// host, are in the container that holds it.
func (r *round) inContainer(w *work, id string, rec *record) bool {
	n := &rec.net
	if !n.moves {
		return false
	}
	if n.hardware != "" && r.in.Hardware != nil && !r.in.Hardware(n.hardware) {
		// What is put in its place is another thing.
		*n = netState{}
		return false
	}
	if n.left.IsZero() {
		n.left = r.in.Now
	}
	if at := r.in.Held.At; !at.IsZero() && !at.Before(n.left) {
		holds := slices.ContainsFunc(r.held[id], func(h heldSlot) bool { return h.resource == w.name })
		if holds || !r.in.Held.Partial {
			n.held = holds
			return holds
		}
	}
	if n.left.After(r.out.AskSince) {
		r.out.AskSince = n.left
	}
	limit := n.left.Add(movedLimit)
	if !n.held && r.in.Now.Before(limit) {
		r.wake(limit)
		return true
	}
	return n.held
}

// lacksNets reports whether a device has lost nothing but interfaces, some at
// least, if these are the nodes that it has now.
func (rec record) lacksNets(nodes []node) bool {
	if !rec.net.moves || !rec.present || !rec.settled {
		return false
	}
	lost := 0
	for _, n := range rec.nodes {
		switch {
		case slices.Contains(nodes, n):
		case n.net:
			lost++
		default:
			return false
		}
	}
	return lost > 0 && len(nodes)+lost == len(rec.nodes)
}
