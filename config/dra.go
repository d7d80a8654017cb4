package config

import (
	"fmt"
	"slices"
	"time"
)

const (
	defaultEvictAfter = 5 * time.Minute
	never             = "never"
	// maxAttributes leaves room for those of the hardware: a device in a ResourceSlice has
	// at most 32.
	maxAttributes    = 20
	maxAttributeName = 32
)

var apis = []API{APIDevicePlugin, APIDRA}

// reservedAttributes are those that every device has.
var reservedAttributes = []string{"id", "resource"}

// claimAttributes reads v as a table of attributes, by name.
func (v value) claimAttributes() (all []Attribute) {
	for name, e := range v.own("of strings", "the name of an attribute") {
		switch {
		case slices.Contains(reservedAttributes, name):
			e.report(quote(name)+" is what every device has: want another name", "")
		case !consists(name, alnum+"_") || isDigit(name[0]) || len(name) > maxAttributeName:
			e.report(quote(name)+` is not the name of an attribute: want a letter, then letters, digits and "_", at most 32 in all`, "")
		case len(all) == maxAttributes:
			v.report(fmt.Sprintf("more than %d attributes: want fewer", maxAttributes), "")
			return all
		}
		all = append(all, Attribute{name, e.text(attributeValue)})
	}
	return all
}

// evictAfter reads v as a duration, or "never", which is negative.
func (v value) evictAfter() time.Duration {
	if v.raw == never {
		return -1
	}
	return v.duration(time.Second, `"30s", "5m" or "never"`)
}
