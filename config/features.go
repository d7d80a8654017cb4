package config

import (
	"fmt"
	"strings"
)

// readFeatures reads v as a table of values by the end of the name of their label. The order is the
// order of the names. The label begins with the name of the resource: the feature "model" of
// "example.com/gpu" is the label "example.com/gpu.model".
func (r *Resource) readFeatures(v value) {
	_, name, _ := strings.Cut(r.Name, "/")
	for key, e := range v.userKeys("of strings", "the name of a feature") {
		if !isClaimName(key) {
			e.report(quote(key)+" is not a valid feature name: it "+claimNameRule, "")
		}
		// Kubernetes limits the part of a label's name after the domain. A variable in the name
		// counts as it is written.
		if label := name + "." + key; len(label) > maxNamePart {
			e.report(fmt.Sprintf("the label %q has more than %d characters after the domain", label, maxNamePart), "")
		}
		r.Features = append(r.Features, Attribute{Name: key, Value: e.text(attributeValue)})
	}
}
