package device

// The budget of the whole process for everything that is listed, absent devices included. A device may be
// plugged in at any time, a count multiplies it, and a device that was removed stays listed: without a limit a
// pod with 96 MiB is killed, and serves no resource.
//
// It is counted in parts. A slot, a node, a mount, an entry and an attribute of a device are one part each,
// which takes some 600 bytes.
const (
	// MaxParts is the limit of all lists together. One list may take it all: a kubelet accepts lists of 4 MiB,
	// and a slot takes at most 89 bytes there for each of its parts.
	MaxParts = 46_000
	// MaxOffered is what present devices may take of it. The rest is for devices that were removed and stay
	// listed.
	MaxOffered = MaxParts / 2
	// ResourceParts and DeviceParts are what a resource and a device take besides.
	ResourceParts = 120
	DeviceParts   = 3
	// textPart is the length of the texts of a device that count as one part.
	textPart = 300
)

// Parts returns what a listed device takes of the budget.
func (o *Offer) Parts() int {
	parts := DeviceParts + o.SlotParts(o.Slots)
	parts += len(o.Nodes) + len(o.Nets) + len(o.Mounts)
	parts += len(o.CDIDevices) + len(o.Hooks)
	parts += len(o.Env) + len(o.Annotations)
	parts += len(o.Attributes) + len(o.Capacity) + len(o.Features)
	return parts + (textSize(o.Env)+textSize(o.Annotations))/textPart
}

// SlotParts returns what slots of the device take. Each is listed with all NUMA nodes.
func (o *Offer) SlotParts(slots int) int { return slots * (1 + len(o.NUMA)/2) }

// textSize returns the size of the keys and values of entries in bytes.
func textSize(entries []Entry) int {
	size := 0
	for _, e := range entries {
		size += e.Key.LiteralSize() + e.Value.LiteralSize()
	}
	return size
}

// LiteralSize returns the length of the text without its variables.
func (t Text) LiteralSize() int {
	size := 0
	for _, p := range t {
		size += len(p.Literal)
	}
	return size
}
