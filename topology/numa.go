// Package topology computes which free devices to prefer for a container, and their
// NUMA nodes. It is pure.
package topology

import "slices"

// union returns the NUMA nodes of several sets: sorted, without duplicates and negative
// ones, which stand for no node. It is nil if none is left.
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
