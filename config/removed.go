package config

import "strings"

// removedKeys are keys that the language once had, by dotted key, and what to write instead. They
// help people who read old pages. exclude has the keys of match, and NAME is any name.
var removedKeys = map[string]string{
	"list_attributes":                "an attribute has one value",
	"resource.capacity.NAME.min":     onlyDefault,
	"resource.capacity.NAME.max":     onlyDefault,
	"resource.capacity.NAME.step":    onlyDefault,
	"resource.capacity.NAME.values":  onlyDefault,
	"resource.forget_after":          "an absent device that no container holds stays listed for ten minutes",
	"resource.container.follow":      "containers always follow a device that moves to another node",
	"resource.container.health_hold": "the file healthy stays absent for 40 seconds after a loss",
	"resource.container.reset":       "an init container can reset the device; VFIO resets a function itself",
}

// onlyDefault replaces the keys of a capacity that limited the amounts of claims.
const onlyDefault = `a capacity is an amount, or { value = "10G", default = "1G" }`

// replacement returns what to write instead of a key of the table v that the language no longer has.
// It is empty for any other key.
func (v value) replacement(name string) string {
	path := v.path()
	isOfCapacity := v.above != nil && v.above.path() == "resource.capacity"
	if isOfCapacity {
		path = "resource.capacity.NAME"
	}
	key := dotted(path, name)
	return removedKeys[strings.Replace(key, "resource.exclude", "resource.match", 1)]
}
