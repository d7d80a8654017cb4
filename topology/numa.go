// Package topology works out which free devices to suggest to the kubelet and
// which NUMA nodes they are on. It is pure: all that it knows is in its
// arguments.
package topology

import "slices"

// union returns the NUMA nodes of several sets: sorted, each once, and none
// negative, which is how the kernel says that a device is near to no node
// more than to others. It is nil where nothing is left.
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

// missing returns the nodes of set that are not in nodes, both as Union
// returns them.
func missing(set, nodes []int) []int {
	var out []int
	for _, n := range set {
		if _, ok := slices.BinarySearch(nodes, n); !ok {
			out = append(out, n)
		}
	}
	return out
}
