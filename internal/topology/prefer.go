// Package topology computes which free devices to prefer for a container, and their
// NUMA nodes. It is pure.
package topology

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
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
// A second slot of the same hardware is the last resort in any case, since it is of no
// use to the container. Otherwise
//
//   - numa spans as few NUMA nodes as possible, those of must first, and then
//     takes the hardware with the fewest slots in use;
//   - spread takes the hardware with the fewest slots in use;
//   - packed takes the hardware with the most slots in use, so that whole
//     devices stay free.
//
// Ties are broken by the order of all. An unknown value is numa.
func Prefer(prefer string, all []device.Listed, available, must []string, size int) []string {
	c := newChoice(all, available, must)
	need := size - len(c.chosen)
	if need > 0 {
		switch prefer {
		case Spread:
			c.take(need, leastUsed)
		case Packed:
			c.take(need, mostUsed)
		default:
			c.chooseNUMA(need)
			c.take(need, nearest)
		}
	}
	slices.Sort(c.chosen)
	ids := make([]string, len(c.chosen))
	for n, i := range c.chosen {
		ids[n] = c.list[i].ID
	}
	return ids
}

// choice is the state of one request.
type choice struct {
	list    []device.Listed
	devices []*hardware
	chosen  []int // indexes of the list
}

// hardware has the slots of one device.
type hardware struct {
	first int   // index of its first slot in the list
	free  []int // indexes
	used  int   // slots in use by others
	mine  int   // slots of this container
	numa  []int
	// step of chooseNUMA that chose the last of its NUMA nodes, 0 for those of must;
	// notChosen before.
	step int
}

const notChosen = math.MaxInt

// fresh reports whether the device has a free slot and none of this container.
func (d *hardware) fresh() bool { return d.mine == 0 && len(d.free) > 0 }

// newChoice groups the slots of a request by hardware.
func newChoice(all []device.Listed, available, must []string) *choice {
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
	c := &choice{list: slices.Clip(all)}
	byName := make(map[string]*hardware)
	add := func(i int) {
		l := &c.list[i]
		d := byName[l.Device]
		if d == nil {
			d = &hardware{first: i, step: notChosen}
			byName[l.Device] = d
			c.devices = append(c.devices, d)
		}
		if len(l.NUMA) > 0 && !slices.Equal(l.NUMA, d.numa) {
			d.numa = union(d.numa, l.NUMA)
		}
		switch state[l.ID] {
		case isFree:
			d.free = append(d.free, i)
		case isMine:
			d.mine++
			c.chosen = append(c.chosen, i)
		default:
			d.used++
		}
		delete(state, l.ID)
	}
	for i := range all {
		add(i)
	}
	// The list may have changed since the kubelet got it.
	for _, id := range slices.SortedFunc(maps.Keys(state), device.CompareNatural) {
		base, _ := device.SplitSlot(id)
		c.list = append(c.list, device.Listed{ID: id, Device: base})
		add(len(c.list) - 1)
	}
	return c
}

// take chooses need slots, of devices in the order of compare: one of each device before a
// second of any.
func (c *choice) take(need int, compare func(a, b *hardware) int) {
	free := slices.DeleteFunc(slices.Clone(c.devices), func(d *hardware) bool {
		return len(d.free) == 0
	})
	slices.SortFunc(free, func(a, b *hardware) int {
		return cmp.Or(compare(a, b), cmp.Compare(a.first, b.first))
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
		free = slices.DeleteFunc(free, func(d *hardware) bool {
			return len(d.free) == 0
		})
	}
}

func leastUsed(a, b *hardware) int { return cmp.Compare(a.used, b.used) }

func mostUsed(a, b *hardware) int { return cmp.Compare(b.used, a.used) }

// nearest puts devices on chosen NUMA nodes first, in the order of the steps.
func nearest(a, b *hardware) int { return cmp.Or(cmp.Compare(a.step, b.step), leastUsed(a, b)) }

// chooseNUMA chooses NUMA nodes until need fresh devices are on them, starting with the
// nodes of must. Each step adds the set of nodes with the most devices per node, which is
// optimal if devices have one node each or all the same ones.
func (c *choice) chooseNUMA(need int) {
	var nodes []int
	fresh := 0
	for _, d := range c.devices {
		if d.mine > 0 {
			nodes = union(nodes, d.numa)
		}
		if d.fresh() {
			fresh++
		}
	}
	need = min(need, fresh)
	for step := 0; ; step++ {
		for _, d := range c.devices {
			if d.step == notChosen && len(missing(d.numa, nodes)) == 0 {
				d.step = step
				if d.fresh() {
					need--
				}
			}
		}
		if need <= 0 {
			return
		}
		nodes = union(nodes, c.nextNUMA(nodes, need))
	}
}

// nextNUMA returns the NUMA nodes to add: the set of a device that has the least cost.
func (c *choice) nextNUMA(nodes []int, need int) (best []int) {
	var least []float64
	var tried [][]int
	for _, d := range c.devices {
		if d.step != notChosen || !d.fresh() {
			continue
		}
		set := missing(d.numa, nodes)
		if slices.ContainsFunc(tried, func(t []int) bool {
			return slices.Equal(t, set)
		}) {
			continue
		}
		tried = append(tried, set)
		if cost := c.cost(nodes, set, need); best == nil || slices.Compare(cost, least) < 0 {
			best = set
			least = cost
		}
	}
	return best
}

// cost returns the cost of a set of NUMA nodes, most important first: nodes for each device
// that counts towards need, slots in use of these devices, and devices beyond need, so
// that large groups stay whole.
func (c *choice) cost(nodes, set []int, need int) []float64 {
	with := union(nodes, set)
	var used []int
	for _, d := range c.devices {
		if d.step == notChosen && d.fresh() && len(missing(d.numa, with)) == 0 {
			used = append(used, d.used)
		}
	}
	slices.Sort(used)
	devices := min(need, len(used))
	inUse := 0
	for _, n := range used[:devices] {
		inUse += n
	}
	return []float64{float64(len(set)) / float64(devices), float64(inUse), float64(len(used) - devices)}
}

// union returns the NUMA nodes of several sets, sorted and without duplicates. Negative
// ones, which stand for no node, are dropped. An empty union is nil.
func union(sets ...[]int) []int {
	var all []int
	for _, set := range sets {
		for _, n := range set {
			if n >= 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// missing returns the nodes of set that are not in nodes, both as returned by union.
func missing(set, nodes []int) []int {
	var out []int
	for _, n := range set {
		if _, ok := slices.BinarySearch(nodes, n); !ok {
			out = append(out, n)
		}
	}
	return out
}
