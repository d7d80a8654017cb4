package config

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxAttributes leaves room for the attributes of the hardware and the slots: a device in a
	// ResourceSlice has at most 32 attributes and capacities
	// (ResourceSliceMaxAttributesAndCapacitiesPerDevice in k8s.io/api/resource/v1).
	maxAttributes    = 20
	maxAttributeName = 32 // characters, without a domain
)

// reservedAttributes are published for every device, so that a claim can select a device by its ID
// or its resource. The attributes of the configuration need other names.
var reservedAttributes = []string{"id", "resource"}

// claimAttributes reads v as a table of attributes, by name.
// The order is the order of the names. Only the first maxAttributes are read.
func (v value) claimAttributes() []Attribute {
	var all []Attribute
	for name, e := range v.userKeys("of strings", "the name of an attribute") {
		switch {
		case slices.Contains(reservedAttributes, name):
			e.report(quote(name)+" is reserved: every device has this attribute", "")
		// A domain is not part of the name: the driver's own domain is the default.
		case !isClaimName(name):
			e.report(quote(name)+" is not a valid attribute name: it "+claimNameRule, "")
		case len(all) == maxAttributes:
			v.report(fmt.Sprintf("the table has more than %d attributes", maxAttributes), "")
			return all
		}
		// An invalid name is already reported. Reading the value reports its problems as well.
		a := e.claimAttribute()
		a.Name = name
		all = append(all, a)
	}
	return all
}

// claimNameRule is the rule for names of attributes and capacities.
const claimNameRule = `must consist of letters, digits and "_", not begin with a digit, and have at most 32 characters`

// isClaimName reports whether a name is valid for an attribute or a capacity (validateQualifiedName
// in pkg/apis/resource/validation of Kubernetes).
func isClaimName(name string) bool { return isIdentifier(name) && len(name) <= maxAttributeName }

// claimAttribute reads v as the value of an attribute: a string, an integer, a boolean, or a table
// that has the type as its key.
func (v value) claimAttribute() Attribute {
	switch raw := v.raw.(type) {
	case int64:
		// An integer and a boolean keep their type, because a selector in CEL compares only values
		// of one type.
		return Attribute{Type: device.IntType, Value: device.Literal(strconv.FormatInt(raw, 10))}
	case bool:
		return Attribute{Type: device.BoolType, Value: device.Literal(strconv.FormatBool(raw))}
	case map[string]*node:
		return v.readTyped()
	}
	// The type of a text is empty, which means a string. text reports values of other types.
	return Attribute{Value: v.text(attributeValue)}
}

// readTyped reads v as a table that has the type of an attribute as its key.
// The table is for versions and for texts with variables, whose types TOML cannot express.
func (v value) readTyped() Attribute {
	var a Attribute
	bind := func(t *table, name device.AttributeType, help string) {
		read := func(v value) {
			a.Type = name
			a.Value = v.text(attributeValue)
			// The last key wins. A table with two keys is reported below.
			v.checkTyped(a)
		}
		t.key(string(name), stringForm, read, help)
	}
	sound := v.read(func(t *table) {
		bind(t, device.IntType, "a number, decimal or hexadecimal with 0x")
		bind(t, device.BoolType, "yes or no, in a word of the kernel")
		bind(t, device.VersionType, "a version of one to three numbers")
	})
	// An unknown key was already reported, and would be counted here as well.
	if sound && len(v.table()) != 1 {
		v.report("want one of int, bool and version", `{ int = "${attr:speed}" } is a number, and "${attr:speed}" a string`)
	}
	return a
}

// checkTyped reports a text that never is a value of its type. A text with variables can have a
// valid result, so that its results are checked for each device.
func (v value) checkTyped(a Attribute) {
	// The text is invalid, which is already reported, or empty.
	if len(a.Value) == 0 {
		return
	}
	if len(a.Value.Vars()) == 0 {
		text := a.Value.String()
		if _, err := device.ParseTyped(a.Type, text); err != nil {
			v.report(quote(text)+" "+err.Error(), "")
		}
		return
	}
	if a.Type != device.IntType || a.Value[0].Var == "" {
		return
	}
	// A number that starts with a variable is decimal. The IDs of sysfs are hexadecimal without
	// "0x": "1234" would be published as another number, and "10de" would be no number.
	attribute, isAttribute := device.FindAttribute(a.Value[0].Var)
	if isAttribute && attribute.Kind.IsHexadecimal() {
		name := a.Value[0].Var
		v.report(fmt.Sprintf("${%s} is hexadecimal: want %q", name, "0x${"+name+"}"), "")
	}
}
