package config

import (
	"fmt"

	"github.com/generic-dp/generic-dp/internal/device"
)

// listAttributesKey is the key at the top level that permits attributes with several values. The
// fields of the API are alpha: an API server without them refuses attributes that have no others.
const listAttributesKey = "list_attributes"

// listsNeed is what a cluster needs for lists (DRAListTypeAttributes in pkg/features of Kubernetes).
const listsNeed = "the feature gate DRAListTypeAttributes in the API server and the scheduler"

// mayHaveLists reports whether attributes may be lists of values.
func (r *reader) mayHaveLists() bool { return r.listAttributes.value == "true" }

// listAttribute reads v as a list of strings, integers or booleans, all of one type.
func (v value) listAttribute() Attribute {
	var a Attribute
	if !v.checkList() {
		return a
	}
	for _, e := range v.items() {
		// The type belongs to the whole list.
		if e.keys() != nil {
			e.mistyped("a string, an integer or a boolean", `a list of versions is { version = ["1.2", "1.3"] }`)
			continue
		}
		one := e.singleAttribute()
		if len(a.List) == 0 {
			a.Type = one.Type
		}
		if one.Type != a.Type {
			e.mistyped("a value of the same type as the first one", "")
		}
		a.List = append(a.List, one.Value)
	}
	return a
}

// typedList reads v as a list of texts whose values are of a type.
func (v value) typedList(name device.AttributeType) []device.Text {
	if !v.checkList() {
		return nil
	}
	var list []device.Text
	for _, e := range v.items() {
		a := Attribute{Type: name, Value: e.text(attributeValue)}
		e.checkTyped(a)
		list = append(list, a.Value)
	}
	return list
}

// checkList reports a list that no device can have. It does not check the values.
func (v value) checkList() bool {
	n := len(v.items())
	switch {
	case !v.r.mayHaveLists():
		v.report(
			fmt.Sprintf("found a list: lists of values require %s = true at the top of the configuration", listAttributesKey),
			"they need Kubernetes 1.36 or later, and "+listsNeed,
		)
		return false
	case n == 0:
		v.report("the list is empty: want at least one value", "")
		return false
	case n > device.MaxAttributeValues:
		v.report(fmt.Sprintf("the list has %d values: all attributes of a device have at most %d", n, device.MaxAttributeValues), "")
		return false
	}
	return true
}

// hasList reports whether the resource has an attribute with several values.
func (r *Resource) hasList() bool {
	for i := range r.Attributes {
		if r.Attributes[i].List != nil {
			return true
		}
	}
	return false
}
