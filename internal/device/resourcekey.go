package device

import "strings"

// draSuffix ends the key of a resource that is offered by dynamic resource allocation.
const draSuffix = " (dra)"

// ResourceKey identifies a resource together with its API: a resource that changes its API is another
// one to everything that asks who holds a device. It is the plain name for a device plugin.
func ResourceKey(name string, byDRA bool) string {
	if byDRA {
		return name + draSuffix
	}
	return name
}

// SplitResourceKey is the inverse of ResourceKey.
func SplitResourceKey(key string) (name string, byDRA bool) { return strings.CutSuffix(key, draSuffix) }
