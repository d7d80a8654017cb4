package ledger

import "slices"

// phase is where a listed device is in its life:
//
//	awaited ──┐             ┌── its nodes change ──┐
//	onlyHeld ─┼─ matched ─▶ settling ─ complete ─▶ ready
//	gone, unselected, unread ◀── no longer matched ┘
//
// A device that is complete when it is matched is ready at once. It leaves the list in any phase but
// settling and ready.
type phase int

const (
	// awaited is a device that was present before the start, and was not found since.
	awaited phase = iota
	// onlyHeld is a device that only the kubelet knows: it was never present.
	onlyHeld
	// settling is a present device whose drivers may not have made all its nodes.
	settling
	// ready is a present device that is complete.
	ready
	// unread is an absent device that may be present as hardware that could not be read.
	unread
	// gone is an absent device: its hardware is not on the host.
	gone
	// unselected is a device whose hardware is on the host, and that no match selects any more. An edit of the
	// configuration or another driver has that effect.
	unselected
)

// isPresent reports whether the device is matched, or its interfaces are in a container.
func (p phase) isPresent() bool { return p == settling || p == ready }

// mayComeSoon reports whether a list is not complete yet because of the device, which may soon be ready.
func (p phase) mayComeSoon() bool {
	return slices.Contains([]phase{awaited, settling, unread}, p)
}
