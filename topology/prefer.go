package topology

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/device"
)

// The values of the key prefer.
const (
	NUMA   = "numa"
	Spread = "spread"
	Packed = "packed"
)

// Prefer returns which size of the available slots a container should get, in the order
// of all. It implements GetPreferredAllocation: all is the list of the resource, in its
// order, and the other arguments are the request's. It never fails, since the kubelet
// would fail the pod.
//
// The result has the slots of must, the rest is from available; it is shorter than size
// only if these are too few. The kubelet includes the slots that it has already chosen
// in size, names them in must and drops them from the response, so that must is
// returned whether available contains it or not.
//
// A second slot of hardware that the container already has is the last resort in any
// case, since it is of no use to the container. Otherwise
//
//   - numa spans as few NUMA nodes as possible, those of must first, and then
//     takes the hardware of which the fewest slots are in use;
//   - spread takes the hardware of which the fewest slots are in use;
//   - packed takes the hardware of which the most slots are in use, so that
//     whole devices stay free.
//
// Ties are broken by the order of all. An unknown value is numa.
func Prefer(prefer string, all []device.Listed, available, must []string, size int) []string {
	c := collect(all, available, must)
	need := size - len(c.chosen)
	if need > 0 {
		switch prefer {
		case Spread:
			c.order(need, leastUsed)
		case Packed:
			c.order(need, mostUsed)
		default:
			c.near(min(need, c.fresh()))
			c.order(need, nearest)
		}
	}
	slices.SortFunc(c.chosen, func(a, b slot) int { return cmp.Compare(a.rank, b.rank) })
	ids := make([]string, 0, len(c.chosen))
	for _, s := range c.chosen {
		ids = append(ids, s.id)
	}
	return ids
}

// slot is a listed slot and its index in the list.
type slot struct {
	id   string
	rank int
}

// hardware are the slots of one device.
type hardware struct {
	rank int    // of its first slot
	free []slot // in list order
	used int    // number in use by others
	mine int    // number that this container has or gets
	numa []int
	// step in which its NUMA nodes were chosen, 0 for those of must; only for numa.
	step   int
	inside bool
}

type choice struct {
	devices []*hardware // those with free slots or slots of must
	chosen  []slot
}

// collect groups the request by hardware.
func collect(all []device.Listed, available, must []string) *choice {
	const (
		isFree = 1 + iota
		isMine
	)
	state := make(map[string]int, len(available))
	for _, id := range available {
		state[id] = isFree
	}
	for _, id := range must {
		state[id] = isMine
	}
	c := &choice{}
	byName := make(map[string]*hardware)
	rank := 0
	add := func(cand device.Listed) {
		name := cand.Device
		if name == "" {
			name, _ = device.SplitSlot(cand.ID)
		}
		d := byName[name]
		if d == nil {
			d = &hardware{rank: rank}
			byName[name] = d
			c.devices = append(c.devices, d)
		}
		if len(cand.NUMA) > 0 && !slices.Equal(cand.NUMA, d.numa) {
			d.numa = union(d.numa, cand.NUMA)
		}
		s := slot{cand.ID, rank}
		rank++
		switch state[cand.ID] {
		case isFree:
			d.free = append(d.free, s)
		case isMine:
			d.mine++
			c.chosen = append(c.chosen, s)
		default:
			d.used++
		}
		delete(state, cand.ID)
	}
	for _, cand := range all {
		add(cand)
	}
	// The list may have changed since the kubelet received it.
	for _, id := range slices.SortedFunc(maps.Keys(state), device.CompareNatural) {
		add(device.Listed{ID: id})
	}
	return c
}

// fresh is the number of devices with a free slot and none of this container.
func (c *choice) fresh() int {
	n := 0
	for _, d := range c.devices {
		if d.mine == 0 && len(d.free) > 0 {
			n++
		}
	}
	return n
}

// order takes need slots, one of each device before a second of any, ordered by
// compare.
func (c *choice) order(need int, compare func(a, b *hardware) int) {
	free := slices.DeleteFunc(slices.Clone(c.devices), func(d *hardware) bool { return len(d.free) == 0 })
	slices.SortFunc(free, func(a, b *hardware) int {
		return cmp.Or(compare(a, b), cmp.Compare(a.rank, b.rank))
	})
	for round := 0; need > 0 && len(free) > 0; round++ {
		for _, d := range free {
			if need > 0 && d.mine <= round && len(d.free) > 0 {
				c.chosen = append(c.chosen, d.free[0])
				d.free = d.free[1:]
				d.mine++
				need--
			}
		}
		free = slices.DeleteFunc(free, func(d *hardware) bool { return len(d.free) == 0 })
	}
}

func leastUsed(a, b *hardware) int { return cmp.Compare(a.used, b.used) }

func mostUsed(a, b *hardware) int { return cmp.Compare(b.used, a.used) }

// nearest puts devices on chosen NUMA nodes first, in the order of choice.
func nearest(a, b *hardware) int {
	if a.inside != b.inside {
		if a.inside {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.step, b.step), leastUsed(a, b))
}

// near chooses NUMA nodes until need fresh devices are on them, starting with those of
// must. Each step takes the set of nodes that adds most devices per added node; that is
// optimal if devices have one node each or all the same ones.
func (c *choice) near(need int) {
	var nodes []int
	for _, d := range c.devices {
		if d.mine > 0 {
			nodes = union(nodes, d.numa)
		}
	}
	for step := 0; ; step++ {
		for _, d := range c.devices {
			if !d.inside && len(missing(d.numa, nodes)) == 0 {
				d.inside, d.step = true, step
				if d.mine == 0 && len(d.free) > 0 {
					need--
				}
			}
		}
		if need <= 0 {
			return
		}
		nodes = union(nodes, c.next(nodes, need))
	}
}

// next returns the set of NUMA nodes to add, one of those of the devices.
func (c *choice) next(nodes []int, need int) []int {
	var best offer
	var tried [][]int
	for _, d := range c.devices {
		if d.inside || d.mine > 0 || len(d.free) == 0 {
			continue
		}
		set := missing(d.numa, nodes)
		if slices.ContainsFunc(tried, func(t []int) bool { return slices.Equal(t, set) }) {
			continue
		}
		tried = append(tried, set)
		if o := c.offer(nodes, set, need); best.set == nil || o.betterThan(best) {
			best = o
		}
	}
	return best.set
}

// offer is the gain of a set of NUMA nodes.
type offer struct {
	set     []int
	devices int // that count towards need
	used    int // slots in use of those to take
	spare   int // devices beyond the need
}

func (c *choice) offer(nodes, set []int, need int) offer {
	o := offer{set: set}
	with := union(nodes, set)
	var used []int
	for _, d := range c.devices {
		if !d.inside && d.mine == 0 && len(d.free) > 0 && len(missing(d.numa, with)) == 0 {
			used = append(used, d.used)
		}
	}
	slices.Sort(used)
	o.devices = min(need, len(used))
	o.spare = len(used) - o.devices
	for _, n := range used[:o.devices] {
		o.used += n
	}
	return o
}

// betterThan reports whether o is preferable to p. Of equal gains, the one with the
// least used devices is, then the one with the fewest left over, so that large groups
// stay whole.
func (o offer) betterThan(p offer) bool {
	return cmp.Or(
		cmp.Compare(p.devices*len(o.set), o.devices*len(p.set)),
		cmp.Compare(o.used, p.used),
		cmp.Compare(o.spare, p.spare),
	) < 0
}
