package matchers

import (
	"fmt"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Memory in bytes for a resource, a device, and a slot, node, mount or entry of a device,
// including the current and previous lists for the kubelet. The sum of all offers is
// limited before they are built, since a device may be plugged in at any time and a count
// multiplies it: without a limit a pod of 96 MiB is killed, and serves no resource.
const (
	maxMemory      = 48 << 20
	resourceMemory = 128 << 10
	deviceMemory   = 3 << 10
	partMemory     = 600
	// maxTexts is the maximum length of all environment and annotations of a device.
	maxTexts = 1 << 20
)

var errTooLong = fmt.Errorf("longer than %d bytes in all: want shorter values", maxTexts)

// memoryOf is the least memory of an offer, known before it is built.
func memoryOf(r *config.Resource, c *candidate) int {
	with := &r.Container
	parts := max(r.Count, 1) + len(c.picks) + len(c.paths) + len(r.With) + len(with.Mounts) + len(with.Env) + len(with.Annotations) + len(with.CDIDevices) + len(with.Hooks)
	return deviceMemory + partMemory*parts
}

// built is the rest of its memory: for texts, and for companions that globs select.
func built(r *config.Resource, o *device.Offer) int {
	n := partMemory * max(0, len(o.Nodes)+len(o.Mounts)-len(r.With)-len(r.Container.Mounts))
	for _, list := range [][]device.Entry{o.Env, o.Annotations} {
		for _, e := range list {
			n += 2 * (textSize(e.Key) + textSize(e.Value)) // and what was listed before
		}
	}
	return n
}

func textSize(t device.Text) (n int) {
	for _, p := range t {
		n += len(p.Literal)
	}
	return n
}

// tooMuch notes that devices of a resource, or a whole resource, are left out, since they
// would take too much memory: bytes each.
func (m *run) tooMuch(r *config.Resource, what string, bytes int) {
	m.fault(r.Place, "a lower count, or less by match and exclude", "left out: %s takes %d KiB with count = %d: want at most half of the memory that earlier resources leave of %d MiB",
		what, bytes>>10, max(r.Count, 1), maxMemory>>20)
}
