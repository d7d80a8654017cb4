//go:build !unix

package pattern

// onlyDirectory has no flag here. Patterns are only searched on Linux: other systems read
// configurations.
const onlyDirectory = 0
