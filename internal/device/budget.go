package device

// The budget of the whole process for everything that is listed, absent devices included.
// A device may be plugged in at any time, a count multiplies it, and a device that was
// removed stays listed: without a limit a pod with 96 MiB is killed, and serves no
// resource.
//
// Memory in bytes of a resource, of a device, and of a slot, node, mount, entry or attribute of a
// device, including the current and the previous list for the kubelet.
const (
	MaxMemory      = 48 << 20
	ResourceMemory = 128 << 10
	DeviceMemory   = 3 << 10
	PartMemory     = 600
)

// MaxList is the size in bytes of the longest list of a resource that the kubelet accepts:
// it keeps gRPC's default limit. It ends the stream of a longer one, and the resource stays
// without devices.
const MaxList = 4 << 20

// MaxOffered is what present devices may take of MaxMemory. The rest is for devices that were removed and stay
// listed.
const MaxOffered = MaxMemory / 2

// Memory returns the memory of a listed device in bytes.
func (o *Offer) Memory() int {
	parts := o.Slots
	parts += len(o.Nodes) + len(o.Nets) + len(o.Mounts)
	parts += len(o.CDIDevices) + len(o.Hooks)
	parts += len(o.Env) + len(o.Annotations)
	parts += len(o.Attributes) + len(o.Capacity) + len(o.Features)
	const lists = 2 // the current and the previous list
	texts := lists * (textSize(o.Env) + textSize(o.Annotations))
	return DeviceMemory + PartMemory*parts + texts
}

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

// maxListedSize is the size in bytes of a slot in the kubelet's list without its ID and NUMA
// nodes: a field has up to three bytes besides its value, and "Unhealthy" is the longer word.
// A list that fits once fits whatever happens to its devices.
const maxListedSize = 3 + 3 + 2 + len("Unhealthy")

// ListedSize returns an upper bound for the size in bytes of a slot in the kubelet's list.
func ListedSize(id string, numa []int) int {
	return maxListedSize + len(id) + 9*len(numa)
}
