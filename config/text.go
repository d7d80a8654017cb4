package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// parseText splits a string with variables: ${name} is one, $${ is a literal
// "${", any other $ is itself.
func parseText(s string) (device.Text, error) {
	var (
		text    device.Text
		literal strings.Builder
	)
	flush := func() {
		text = append(text, device.Literal(literal.String())...)
		literal.Reset()
	}
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "$${"); ok {
			literal.WriteString("${")
			s = rest
			continue
		}
		if rest, ok := strings.CutPrefix(s, "${"); ok {
			name, rest, closed := strings.Cut(rest, "}")
			if !closed || strings.ContainsAny(name, "${") {
				return nil, errors.New(`has a variable that is not closed: want "${name}", or "$${" for a literal "${"`)
			}
			if name == "" {
				return nil, errors.New(`has a variable without a name: want "${name}", or "$${" for a literal "${"`)
			}
			flush()
			text = append(text, device.Part{Var: name})
			s = rest
			continue
		}
		literal.WriteByte(s[0])
		s = s[1:]
	}
	flush()
	return text, nil
}

// variable is one that texts may have.
type variable struct {
	// device says that its value depends on the device.
	device bool
	// sample stands for its value where the form of a text is checked.
	sample string
}

// Variables that mean something to the checks of texts.
const (
	resourceVar      = "resource"
	containerPathVar = "container_path"
)

// variables is what is known, and the names in the order of suggestion.
type variables struct {
	names []string
	known map[string]variable
}

func knownVariables() variables {
	v := variables{known: make(map[string]variable)}
	add := func(name string, device bool, sample string) {
		v.names = append(v.names, name)
		v.known[name] = variable{device, sample}
	}
	add("id", true, "x")
	add(device.IndexVar, false, "0")
	add(device.CountVar, false, "1")
	add(resourceVar, false, "example.com/x")
	add("RESOURCE", false, "X")
	add("RESOURCE_KUBEVIRT", false, "X")
	add("node_name", false, "x")
	add("devnode", true, "/dev/x")
	add("kernel", true, "x")
	add(containerPathVar, true, "/dev/x")
	add("numa", true, "0")
	for _, k := range USBKeys() {
		add("usb."+k, true, "x")
	}
	for _, k := range PCIKeys() {
		add("pci."+k, true, "x")
	}
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
	return append(out, "usb.KEY", "pci.KEY", "1")
}

// get is the variable of a name; a number is a wildcard of the glob.
func (v variables) get(name string) (variable, bool) {
	if _, ok := wildcardNumber(name); ok {
		return variable{device: true, sample: "x"}, true
	}
	found, ok := v.known[name]
	return found, ok
}

// wildcardNumber is n of the variable that is the n-th wildcard.
func wildcardNumber(name string) (n int, ok bool) {
	if digits(name) != len(name) || name[0] == '0' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

// perDevice reports whether a text has a variable that depends on the device.
func (v variables) perDevice(text device.Text) bool {
	for _, name := range text.Vars() {
		if found, ok := v.get(name); ok && found.device {
			return true
		}
	}
	return false
}

// sample is a text with a sample for each variable.
func (v variables) sample(text device.Text) string {
	return text.Expand(func(name string) (string, bool) {
		found, ok := v.get(name)
		return found.sample, ok
	}).String()
}
