// Package order sorts lists of structs.
//
// The functions of package slices sort by code that the compiler makes for each type of
// struct: some 20 kB of the binary for each, most of which stays resident on every node. All
// pointers share one such copy, and so do all strings. Lists of these use package slices.
package order

import "sort"

// Sort sorts a list like slices.SortFunc. The sort is not stable.
func Sort[E any](list []E, compare func(a, b E) int) {
	sort.Slice(list, func(i, j int) bool {
		return compare(list[i], list[j]) < 0
	})
}

// Stable sorts a list like slices.SortStableFunc.
func Stable[E any](list []E, compare func(a, b E) int) {
	sort.SliceStable(list, func(i, j int) bool {
		return compare(list[i], list[j]) < 0
	})
}
