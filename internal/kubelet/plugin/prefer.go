package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The values of the key prefer.
const (
	preferNUMA   = "numa"
	preferSpread = "spread"
	preferPacked = "packed"
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
//     hardware on the same nodes: first the group with the most devices that help, and of equal groups the one
//     with the fewest slots in use and the smallest one, so that large groups stay together for other
//     containers. Within a group, it chooses the hardware with the fewest slots in use;
//   - spread chooses the hardware with the fewest slots in use;
//   - packed chooses the hardware with the most slots in use, so that whole devices stay free.
//
// The order of all breaks ties. An unknown value means numa.
func Prefer(prefer string, all []device.Listed, available, must []string, size int) []string {
	devices, chosen := hardwareOf(all, available, must)
	need := size - len(chosen)
	if prefer != preferSpread && prefer != preferPacked {
		rank(devices, need)
	}
	slices.SortStableFunc(devices, func(a, b *hardware) int {
		byUse := cmp.Compare(a.used, b.used)
		if prefer == preferPacked {
			byUse = -byUse
		}
		return cmp.Or(slices.Compare(a.cost, b.cost), byUse)
	})
	chosen = append(chosen, take(devices, need)...)
	slices.Sort(chosen)
	ids := make([]string, len(chosen))
	for n, i := range chosen {
		ids[n] = all[i].ID
	}
	return ids
}

// hardware has the slots of one device.
type hardware struct {
	free []int // indexes of its free slots in the list
	used int   // number of slots that other containers use
	mine int   // number of slots of this container
	numa []int // NUMA nodes
	// cost is the cost of its NUMA nodes, see rank. The most important number comes first.
	cost []int
}

// hardwareOf groups the slots of a request by hardware, in the order of the list. mine are the indexes of the
// slots of must.
func hardwareOf(all []device.Listed, available, must []string) (devices []*hardware, mine []int) {
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
	byName := make(map[string]*hardware)
	for i := range all {
		l := &all[i]
		d := byName[l.Device]
		if d == nil {
			d = &hardware{numa: l.NUMA}
			byName[l.Device] = d
			devices = append(devices, d)
		}
		switch state[l.ID] {
		case isFree:
			d.free = append(d.free, i)
		case isMine:
			d.mine++
			mine = append(mine, i)
		default:
			d.used++
		}
	}
	return devices, mine
}

// take chooses need slots in the order of the devices. It takes one slot of each device before a second
// slot of any device.
func take(devices []*hardware, need int) (chosen []int) {
	for round := 0; len(chosen) < need; round++ {
		hasFree := false
		for _, d := range devices {
			isFull := len(d.free) == 0
			hasFree = hasFree || !isFull
			hasItsShare := d.mine > round
			if len(chosen) >= need || hasItsShare || isFull {
				continue
			}
			chosen = append(chosen, d.free[0])
			d.free = d.free[1:]
			d.mine++
		}
		if !hasFree {
			break
		}
	}
	return chosen
}

// rank sets the cost of devices to choose need of them by their NUMA nodes. Hardware that needs no other node
// than the ones of must costs nothing, and neither does hardware without a node.
func rank(devices []*hardware, need int) {
	var mine []int
	for _, d := range devices {
		if d.mine > 0 {
			mine = append(mine, d.numa...)
		}
	}
	groups := map[string][]*hardware{}
	for _, d := range devices {
		isElsewhere := slices.ContainsFunc(d.numa, func(n int) bool {
			return !slices.Contains(mine, n)
		})
		isUseful := d.mine == 0 && len(d.free) > 0
		switch {
		case !isUseful:
		case isElsewhere:
			name := fmt.Sprint(d.numa)
			groups[name] = append(groups[name], d)
		default:
			need--
		}
	}
	for _, group := range groups {
		first := group[0].free[0]
		helping := min(max(1, need), len(group))
		used := 0
		for _, d := range group {
			used += d.used
		}
		for _, d := range group {
			d.cost = []int{len(d.numa), -helping, used, len(group), first}
		}
	}
}
