// Package topology computes which free devices to prefer for a container, and their NUMA nodes. Its
// functions are pure.
package topology

import (
	"cmp"
	"fmt"
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
// contain it. Slots that are no longer listed are left out.
//
// A second slot of the same hardware is the last resort, because it is of no use to the container.
// Apart from that,
//
//   - numa chooses hardware on the NUMA nodes of must, and then group by group, where a group is the
//     hardware on the same nodes: first the group with the most devices that help, per node. Of equal
//     groups, it is the one with the fewest slots in use, then the smallest one, so that large groups stay
//     together for other containers. Within a group, it chooses the hardware with the fewest slots in use;
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
			c.sort(leastUsed)
		case Packed:
			c.sort(mostUsed)
		default:
			c.sort(c.nearest(need))
		}
		c.take(need)
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
	// cost is the cost of its NUMA nodes, see nearest.
	cost []float64
}

// isFresh reports whether the device has a free slot, and the container has none of its slots yet.
func (d *hardware) isFresh() bool {
	return d.mine == 0 && len(d.free) > 0
}

// isOn reports whether all NUMA nodes of the device are among these. Hardware without a node is near to all.
func (d *hardware) isOn(nodes []int) bool {
	for _, n := range d.numa {
		if !slices.Contains(nodes, n) {
			return false
		}
	}
	return true
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
	c := &choice{list: all}
	byName := make(map[string]*hardware)
	for i := range all {
		l := &all[i]
		d := byName[l.Device]
		if d == nil {
			d = &hardware{first: i}
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
	}
	return c
}

// sort sorts the devices, in the order of the list if compare returns 0.
func (c *choice) sort(compare func(a, b *hardware) int) {
	slices.SortFunc(c.devices, func(a, b *hardware) int {
		order := compare(a, b)
		return cmp.Or(order, cmp.Compare(a.first, b.first))
	})
}

// leastUsed orders devices with few slots in use first.
func leastUsed(a, b *hardware) int {
	return cmp.Compare(a.used, b.used)
}

// mostUsed orders devices with many slots in use first.
func mostUsed(a, b *hardware) int {
	return cmp.Compare(b.used, a.used)
}

// take chooses need slots in the order of the devices. It takes one slot of each device before a second
// slot of any device.
func (c *choice) take(need int) {
	for round := 0; need > 0; round++ {
		hasFree := false
		for _, d := range c.devices {
			isFull := len(d.free) == 0
			hasFree = hasFree || !isFull
			hasItsShare := d.mine > round
			if need == 0 || hasItsShare || isFull {
				continue
			}
			c.chosen = append(c.chosen, d.free[0])
			d.free = d.free[1:]
			d.mine++
			need--
		}
		if !hasFree {
			return
		}
	}
}

// nearest orders devices by the cost of their NUMA nodes. It computes the cost to choose need devices: the
// most important number comes first, and hardware that needs no other node costs nothing.
func (c *choice) nearest(need int) func(a, b *hardware) int {
	var mine []int
	for _, d := range c.devices {
		if d.mine > 0 {
			mine = union(mine, d.numa)
		}
	}
	groups := map[string][]*hardware{}
	for _, d := range c.devices {
		switch {
		case !d.isFresh():
		case d.isOn(mine):
			need--
		default:
			name := fmt.Sprint(d.numa)
			groups[name] = append(groups[name], d)
		}
	}
	for _, group := range groups {
		nodes := float64(len(group[0].numa))
		helping := float64(min(max(1, need), len(group)))
		used := 0
		for _, d := range group {
			used += d.used
		}
		cost := []float64{nodes / helping, -helping, float64(used), float64(len(group)), float64(group[0].first)}
		for _, d := range group {
			d.cost = cost
		}
	}
	return func(a, b *hardware) int {
		byNodes := slices.Compare(a.cost, b.cost)
		return cmp.Or(byNodes, leastUsed(a, b))
	}
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
