package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// variable is one that texts may have.
type variable struct {
	// device says that its value depends on the device, and single that no
	// two devices have the same.
	device, single bool
	// sample stands for its value where the form of a text is checked.
	sample string
}

// Variables that mean something to the checks of texts.
const (
	resourceVar      = "resource"
	containerPathVar = "container_path"
	virtualVar       = "virtual"
	attrPrefix       = "attr:"
	varPrefix        = "var:"
)

// nameVars are made of the name of the resource.
var nameVars = []string{resourceVar, "RESOURCE", "RESOURCE_KUBEVIRT"}

// variables is what is known, and the names in the order of suggestion.
type variables struct {
	names []string
	known map[string]variable
}

func knownVariables() variables {
	v := variables{known: make(map[string]variable)}
	add := func(name string, found variable) {
		v.names = append(v.names, name)
		v.known[name] = found
	}
	add("id", variable{device: true, single: true, sample: "x"})
	add(device.IndexVar, variable{sample: "0"})
	add(device.CountVar, variable{sample: "1"})
	add(resourceVar, variable{sample: "example.com/x"})
	add("RESOURCE", variable{sample: "X"})
	add("RESOURCE_KUBEVIRT", variable{sample: "X"})
	add("node_name", variable{sample: "x"})
	add("devnode", variable{device: true, single: true, sample: "/dev/x"})
	add("kernel", variable{device: true, single: true, sample: "x"})
	add(containerPathVar, variable{device: true, single: true, sample: "/dev/x"})
	add("numa", variable{device: true, sample: "0"})
	add(virtualVar, variable{device: true, single: true, sample: "x"})
	for _, t := range hardwareTables {
		for _, k := range slices.Sorted(slices.Values(t.names())) {
			add(t.name+"."+k, variable{device: true, sample: "x"})
		}
	}
	add("cdi.name", variable{device: true, single: true, sample: "example.com/x=x"})
	add("cdi.device", variable{device: true, single: true, sample: "x"})
	add("cdi.kind", variable{device: true, single: true, sample: "example.com/x"})
	return v
}

// listed is the names for a message, shortened.
func (v variables) listed() []string {
	var out []string
	for _, n := range v.names {
		if !strings.Contains(n, ".") {
			out = append(out, n)
		}
	}
	return append(out, "usb.KEY", "pci.KEY", "net.KEY", "mdev.KEY", "cdi.name", "cdi.device", "cdi.kind", attrPrefix+"NAME", varPrefix+"NAME", "1")
}

// get is the variable of a name; a number is a wildcard of the glob.
func (v variables) get(name string) (variable, bool) {
	if found, ok := v.known[name]; ok {
		return found, true
	}
	_, numbered := wildcardNumber(name)
	if numbered || strings.HasPrefix(name, attrPrefix) || strings.HasPrefix(name, varPrefix) {
		return variable{device: true, sample: "x"}, true
	}
	return variable{}, false
}

// check returns what the name of a variable breaks, as a sentence goes on
// behind it, or empty.
func (v variables) check(name string) (rule, hint string) {
	if attribute, ok := strings.CutPrefix(name, attrPrefix); ok {
		return wildAttribute.check(attribute)
	}
	if _, ok := v.get(name); ok {
		return "", ""
	}
	hint = "the variables are " + list(v.listed())
	if n := nearest(name, v.names); n != "" {
		hint = didYouMean("${" + n + "}")
	} else if keys := v.ending(name); len(keys) > 0 {
		hint = didYouMean(keys...)
	}
	return unknownVariable, hint
}

const unknownVariable = "is an unknown variable"

// ending lists the variables whose key behind a dot is name.
func (v variables) ending(name string) []string {
	var found []string
	for _, n := range v.names {
		if strings.HasSuffix(n, "."+name) {
			found = append(found, "${"+n+"}")
		}
	}
	return found
}

// wildcardNumber is n of the variable that is the n-th wildcard.
func wildcardNumber(name string) (n int, ok bool) {
	if digits(name) != len(name) || name == "" || name[0] == '0' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

// perDevice reports whether a text has a variable that depends on the device.
func (v variables) perDevice(text device.Text) bool {
	return slices.ContainsFunc(text.Vars(), func(name string) bool {
		found, ok := v.get(name)
		return ok && found.device
	})
}

// sample is a text with a sample for each variable.
func (v variables) sample(text device.Text) string {
	return text.Expand(func(name string) (string, bool) {
		found, ok := v.get(name)
		return found.sample, ok
	}).String()
}
