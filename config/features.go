package config

import (
	"fmt"
	"strings"
)

// features binds the values of devices that become features of the node.
func (t *table) features(r *Resource) {
	read := func(v value) []Attribute {
		return v.features(r.Name)
	}
	bind(t, "features", stringTable, &r.Features, read,
		"values of the healthy devices that become labels of the node, by the end of their names; needs --nfd-dir")
}

// features reads v as a table of values by the end of the name of their label. The order is the
// order of the names. resource is the name of the resource, which the label begins with: the
// feature "model" of "example.com/gpu" is the label "example.com/gpu.model".
func (v value) features(resource string) []Attribute {
	var all []Attribute
	_, name, _ := strings.Cut(resource, "/")
	for key, e := range v.userKeys("of strings", "the name of a feature") {
		if !isClaimName(key) {
			e.report(quote(key)+" is not a valid feature name: it "+claimNameRule, "")
		}
		// Kubernetes limits the part of a label's name after the domain. A variable in the name
		// counts as it is written.
		if label := name + "." + key; len(label) > maxNamePart {
			e.report(fmt.Sprintf("the label %q has more than %d characters after the domain", label, maxNamePart), "")
		}
		all = append(all, Attribute{Name: key, Value: e.text(attributeValue)})
	}
	return all
}
