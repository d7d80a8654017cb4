package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
			e.report(quote(name) + " is reserved: every device has this attribute")
		// A domain is not part of the name: the driver's own domain is the default.
		case !isClaimName(name):
			e.report(quote(name) + " is not a valid attribute name: it " + claimNameRule)
		case len(all) == maxAttributes:
			v.report(fmt.Sprintf("the table has more than %d attributes", maxAttributes))
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
		t.key(string(name), read, help)
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
			v.report(quote(text) + " " + err.Error())
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
		v.report(fmt.Sprintf("${%s} is hexadecimal: want %q", name, "0x${"+name+"}"))
	}
}

// slotsName is the capacity that count creates in a ResourceSlice. Package dra publishes it, so
// that the configuration must not define it.
const slotsName = "slots"

// capacityValue is the role of the value of a capacity. The variables are replaced when the device
// is listed, because the value is published in a ResourceSlice.
var capacityValue = role{want: `a quantity such as "10G"`, at: atListing}

// capacities reads v as a table of capacities, by name. The order is the order of the names.
// Capacities with an invalid name are included: the problem makes Parse fail anyway.
func (v value) capacities() []Capacity {
	var all []Capacity
	for name, e := range v.userKeys("of quantities", "the name of a capacity") {
		if name == slotsName {
			e.report(quote(name) + " is reserved: count is the number of slots")
		} else if !isClaimName(name) {
			e.report(quote(name) + " is not a valid capacity name: it " + claimNameRule)
		}
		var c Capacity
		if e.table() != nil {
			c = e.readCapacity()
		} else {
			c.Value = e.quantityText()
		}
		c.Name = name
		all = append(all, c)
	}
	return all
}

// readCapacity reads v as a capacity with a default.
func (v value) readCapacity() Capacity {
	var c Capacity
	sound := v.read(func(t *table) {
		bind(t, "value", &c.Value, value.quantityText, "the amount that the device has")
		t.require("value", `a quantity such as "10G"`)
		// The default has no variables: the API server compares it with requests.
		bind(t, "default", &c.Default, value.quantity, "what a claim gets that requests no amount")
	})
	// Without a text there is nothing to check, and after a problem the amounts may be missing. If the
	// value has variables, the default is compared with the value of each device later.
	isKnown := v.describes == nil && sound && len(c.Value.Vars()) == 0
	if isKnown {
		// The default may be more than the value.
		_, field, err := device.NewCapacity(c.Value.String(), c.Default)
		if err != nil {
			v.child(field).report(err.Error())
		}
	}
	return c
}

// quantityText reads v as the value of a capacity, which may have variables.
func (v value) quantityText() device.Text {
	text := v.decimal().text(capacityValue)
	// The result of a variable is checked for each device, in package matchers.
	if len(text.Vars()) == 0 && len(text) > 0 {
		v.checkQuantity(text.String())
	}
	return text
}

// quantity reads v as a quantity without variables.
func (v value) quantity() string {
	text, ok := v.decimal().literal(capacityValue.want)
	if ok {
		v.checkQuantity(text)
	}
	return text
}

// checkQuantity reports a text that is not a quantity of Kubernetes, such as "10G" or "512Mi".
func (v value) checkQuantity(text string) {
	if _, _, err := device.NewCapacity(text, ""); err != nil {
		v.report(err.Error())
	}
}

// checkCapacity reports capacities that no device can have.
func (v value) checkCapacity(r *Resource) {
	// A device has one limit for both, and only the table of attributes has a limit of its own.
	if n := len(r.Attributes) + len(r.Capacity); len(r.Capacity) > 0 && n > maxAttributes {
		v.child("capacity").report(fmt.Sprintf("with attributes, these are %d entries: want at most %d", n, maxAttributes))
	}
	// A device without allowMultipleAllocations must not have a default (RequestPolicy of
	// DeviceCapacity in k8s.io/api/resource/v1).
	isShared := r.isShared()
	for _, c := range r.Capacity {
		if c.Default != "" && !isShared {
			v.child("capacity").child(c.Name).report(
				"has amounts for several claims, but count is 1, so that one claim gets the whole device",
				"count is how many claims may share the device",
			)
		}
	}
}

// isShared reports whether several containers may have one device.
func (r *Resource) isShared() bool {
	return r.find(func(m *Match) bool {
		return m.Count > 1
	}) >= 0
}

// NeedsVersion returns the keys for which the resource needs a version of Kubernetes, and what older
// versions do. The version is the first one that has, by default, what the keys publish for claims.
// It returns empty strings if every version with dynamic resource allocation has it
// (DRAConsumableCapacity and DRAPartitionableDevices in pkg/features).
func (r *Resource) NeedsVersion() (what, version, otherwise string) {
	if r.API != APIDRA {
		return "", "", ""
	}
	var keys []string
	var reasons []string
	if len(r.Capacity) > 0 && r.isShared() {
		keys = append(keys, "capacity with count")
		reasons = append(reasons, "older versions give a device to one claim, with all of its capacity")
	}
	if r.Exclusive {
		keys = append(keys, `shared = "exclusive" with DRA`)
		reasons = append(reasons, "older versions allocate devices that exclude each other to two claims, and the second pod starts only when the first one has ended")
	}
	if len(keys) == 0 {
		return "", "", ""
	}
	return strings.Join(keys, " and "), "1.36", strings.Join(reasons, "; ")
}

// readFeatures reads v as a table of values by the end of the name of their label. The order is the
// order of the names. The label begins with the name of the resource: the feature "model" of
// "example.com/gpu" is the label "example.com/gpu.model".
func (r *Resource) readFeatures(v value) {
	_, name, _ := strings.Cut(r.Name, "/")
	for key, e := range v.userKeys("of strings", "the name of a feature") {
		if !isClaimName(key) {
			e.report(quote(key) + " is not a valid feature name: it " + claimNameRule)
		}
		// Kubernetes limits the part of a label's name after the domain. A variable in the name
		// counts as it is written.
		if label := name + "." + key; len(label) > maxNamePart {
			e.report(fmt.Sprintf("the label %q has more than %d characters after the domain", label, maxNamePart))
		}
		r.Features = append(r.Features, Attribute{Name: key, Value: e.text(attributeValue)})
	}
}
