// Package order sorts lists of structs, and finds the earliest time.
//
// The functions of package slices sort by code that the compiler makes for each type of
// struct: some 20 kB of the binary for each, most of which stays resident on every node. All
// pointers share one such copy, and so do all strings. Lists of these use package slices.
package order

import (
	"sort"
	"time"
)

// Sort sorts a list like slices.SortFunc. The sort is not stable.
func Sort[E any](
	list []E,
	compare func(a, b E) int,
) {
	less := lessOf(list, compare)
	sort.Slice(list, less)
}

// Stable sorts a list like slices.SortStableFunc.
func Stable[E any](
	list []E,
	compare func(a, b E) int,
) {
	less := lessOf(list, compare)
	sort.SliceStable(list, less)
}

// lessOf returns the comparison of two indexes that package sort needs.
func lessOf[E any](
	list []E,
	compare func(a, b E) int,
) func(i, j int) bool {
	return func(i, j int) bool {
		a := list[i]
		b := list[j]
		return compare(a, b) < 0
	}
}

// Earliest returns the earliest of some times. A zero time counts as never.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
