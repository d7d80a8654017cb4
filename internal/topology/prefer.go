// Package topology computes which free devices to prefer for a container, and their NUMA nodes. Its
// functions are pure.
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

// Prefer implements GetPreferredAllocation: it returns the slots that a container should get, in the
// order of all. all is the list of the resource; the other arguments are from the request. Prefer
// never fails, because the kubelet would fail the pod.
//
// The result contains the slots of must and slots of available, size in all. It is shorter only if
// there are too few. The kubelet counts the slots that it has already chosen in size, names them in
// must, and removes them from the response (devicesToAllocate in
// k8s.io/kubernetes/pkg/kubelet/cm/devicemanager): must is returned even if available does not
// contain it.
//
// A second slot of the same hardware is the last resort, because it is of no use to the container.
// Apart from that,
//
//   - numa spans as few NUMA nodes as possible, beginning with the nodes of must, and then
//     chooses the hardware with the fewest slots in use;
//   - spread chooses the hardware with the fewest slots in use;
//   - packed chooses the hardware with the most slots in use, so that whole devices stay free.
//
// The order of all breaks ties. An unknown value means numa.
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
	free  []int // indexes of its free slots
	used  int   // number of slots that other containers use
	mine  int   // number of slots of this container
	numa  []int // NUMA nodes
	// step is the step of chooseNUMA that chose the last of its NUMA nodes: 0 for the nodes of
	// must, and notChosen if they are not all chosen.
	step int
}

const notChosen = math.MaxInt

// fresh reports whether the device has a free slot, and the container has none of its slots yet.
func (d *hardware) fresh() bool {
	return d.mine == 0 && len(d.free) > 0
}

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
			d = &hardware{
				first: i,
				step:  notChosen,
			}
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
	// The request may contain slots that were removed since the kubelet received the list.
	for _, id := range slices.SortedFunc(maps.Keys(state), device.CompareNatural) {
		base, _ := device.SplitSlot(id)
		slot := device.Listed{
			ID:     id,
			Device: base,
		}
		c.list = append(c.list, slot)
		add(len(c.list) - 1)
	}
	return c
}

// take chooses need slots of devices in the order of compare. It takes one slot of each device before
// a second slot of any device.
func (c *choice) take(need int, compare func(a, b *hardware) int) {
	free := slices.DeleteFunc(slices.Clone(c.devices), isFull)
	slices.SortFunc(free, func(a, b *hardware) int {
		order := compare(a, b)
		return cmp.Or(order, cmp.Compare(a.first, b.first))
	})
	for round := 0; need > 0 && len(free) > 0; round++ {
		for _, d := range free {
			hasItsShare := d.mine > round
			if need == 0 || hasItsShare || isFull(d) {
				continue
			}
			c.chosen = append(c.chosen, d.free[0])
			d.free = d.free[1:]
			d.mine++
			need--
		}
		free = slices.DeleteFunc(free, isFull)
	}
}

// isFull reports whether a device has no free slot.
func isFull(d *hardware) bool {
	return len(d.free) == 0
}

// leastUsed orders devices with few slots in use first.
func leastUsed(a, b *hardware) int {
	return cmp.Compare(a.used, b.used)
}

// mostUsed orders devices with many slots in use first.
func mostUsed(a, b *hardware) int {
	return cmp.Compare(b.used, a.used)
}

// nearest orders devices by the step in which their NUMA nodes were chosen, and then like leastUsed.
func nearest(a, b *hardware) int {
	byStep := cmp.Compare(a.step, b.step)
	return cmp.Or(byStep, leastUsed(a, b))
}

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
			if d.step != notChosen || len(missing(d.numa, nodes)) > 0 {
				continue
			}
			d.step = step
			if d.fresh() {
				need--
			}
		}
		if need <= 0 {
			return
		}
		nodes = union(nodes, c.nextNUMA(nodes, need))
	}
}

// nextNUMA returns the NUMA nodes to add: the missing nodes of the device with the least cost.
func (c *choice) nextNUMA(nodes []int, need int) (best []int) {
	var least []float64
	var tried [][]int
	for _, d := range c.devices {
		if d.step != notChosen || !d.fresh() {
			continue
		}
		set := missing(d.numa, nodes)
		isSame := func(other []int) bool {
			return slices.Equal(other, set)
		}
		if slices.ContainsFunc(tried, isSame) {
			continue
		}
		tried = append(tried, set)
		cost := c.cost(nodes, set, need)
		if best == nil || slices.Compare(cost, least) < 0 {
			best = set
			least = cost
		}
	}
	return best
}

// cost returns the cost of adding a set of NUMA nodes. The most important number comes first: nodes per
// device that counts towards need, slots in use of these devices, and devices beyond need, so that
// large groups stay together for other containers.
func (c *choice) cost(nodes, set []int, need int) []float64 {
	with := union(nodes, set)
	var used []int
	for _, d := range c.devices {
		mayCount := d.step == notChosen && d.fresh()
		if mayCount && len(missing(d.numa, with)) == 0 {
			used = append(used, d.used)
		}
	}
	slices.Sort(used)
	devices := min(need, len(used))
	inUse := 0
	for _, n := range used[:devices] {
		inUse += n
	}
	nodesPerDevice := float64(len(set)) / float64(devices)
	beyond := len(used) - devices
	return []float64{nodesPerDevice, float64(inUse), float64(beyond)}
}

// union returns the NUMA nodes of several sets, sorted and without duplicates. It drops negative
// numbers, which mean no node (NUMA_NO_NODE in include/linux/numa.h). An empty union is nil.
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

// missing returns the nodes of set that are not in nodes. Both are results of union.
func missing(set, nodes []int) []int {
	var out []int
	for _, n := range set {
		_, isIn := slices.BinarySearch(nodes, n)
		if !isIn {
			out = append(out, n)
		}
	}
	return out
}
