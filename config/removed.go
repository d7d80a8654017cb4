package config

import "strings"

// removedKeys are keys that the language once had, by dotted key, and what to write instead. They
// help people who read old pages. exclude has the keys of match.
var removedKeys = map[string]string{
	"list_attributes": "an attribute has one value",
}

// replacement returns what to write instead of a key of the table v that the language no longer has.
// It is empty for any other key.
func (v value) replacement(name string) string {
	key := dotted(v.path(), name)
	return removedKeys[strings.Replace(key, "resource.exclude", "resource.match", 1)]
}
