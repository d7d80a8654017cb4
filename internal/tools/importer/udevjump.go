package importer

import (
	"path"
	"slices"
	"strings"
)

// GOTO in a rule of udev skips the rules up to a LABEL, for devices for which the conditions of the
// rule hold. Most files begin with one that skips all rules for other subsystems:
//
//	SUBSYSTEM!="usb", GOTO="end"
//
// The opposite of a single condition is a further condition of the skipped rules. Rules that are
// skipped in any other way are left out, because they would select too much.

// udevJump is a GOTO whose LABEL has not been reached.
type udevJump struct {
	line  int
	label string
	// opposite is the condition for devices that are not skipped, nil if it is not a single one.
	opposite *udevFilter
}

// udevJumps are the GOTOs that may skip a rule.
type udevJumps []udevJump

// add adds the GOTO of a rule, and reports whether there is one.
func (jumps *udevJumps) add(line int, filters []udevFilter) bool {
	i := slices.IndexFunc(filters, func(f udevFilter) bool { return f.key == "GOTO" })
	if i < 0 {
		return false
	}
	var conditions []udevFilter
	for _, f := range filters {
		switch {
		case !f.isMatch():
		case f.key != "ACTION":
			conditions = append(conditions, f)
		case f.holdsFor("add") == f.negated():
			return true // it skips rules for other events only
		}
	}
	jump := udevJump{
		line:  line,
		label: filters[i].value,
	}
	// The conditions on devices above need not hold for the same device as in the rules.
	ownKeys := []string{"SUBSYSTEM", "KERNEL", "ATTR", "ENV", "DRIVER"}
	if len(conditions) == 1 && slices.Contains(ownKeys, conditions[0].key) {
		opposite := conditions[0].opposite()
		jump.opposite = &opposite
	}
	*jumps = append(*jumps, jump)
	return true
}

// land removes the GOTOs to the LABEL of a rule.
func (jumps *udevJumps) land(filters []udevFilter) {
	for _, f := range filters {
		if f.key == "LABEL" {
			*jumps = slices.DeleteFunc(*jumps, func(j udevJump) bool { return j.label == f.value })
		}
	}
}

// unclear returns a GOTO that skips the next rule for devices that no condition describes, or nil.
func (jumps *udevJumps) unclear() *udevJump {
	i := slices.IndexFunc(*jumps, func(j udevJump) bool { return j.opposite == nil })
	if i < 0 {
		return nil
	}
	return &(*jumps)[i]
}

// narrow adds the conditions for devices that are not skipped to the elements of a rule.
func (jumps *udevJumps) narrow(filters []udevFilter) []udevFilter {
	all := slices.Clone(filters)
	for _, j := range *jumps {
		isRepeated := slices.ContainsFunc(all, func(f udevFilter) bool {
			return f.full() == j.opposite.full() && f.op == j.opposite.op && f.value == j.opposite.value
		})
		if !isRepeated {
			all = append(all, *j.opposite)
		}
	}
	return all
}

// secondValue returns a condition that requires a second value for a key, or "". Our lists hold if
// one of their values holds.
func secondValue(filters []udevFilter) string {
	seen := make(map[string]bool)
	for _, f := range filters {
		if f.op != "==" {
			continue
		}
		if seen[f.full()] {
			return f.text
		}
		seen[f.full()] = true
	}
	return ""
}

// holdsFor reports whether a text matches the pattern of a condition.
func (f udevFilter) holdsFor(text string) bool {
	return slices.ContainsFunc(strings.Split(f.value, "|"), func(pattern string) bool {
		matches, err := path.Match(pattern, text)
		return matches && err == nil
	})
}

// opposite is the condition that holds where f does not.
func (f udevFilter) opposite() udevFilter {
	operator := "!="
	if f.negated() {
		operator = "=="
	}
	f.text = strings.Replace(f.text, f.op, operator, 1)
	f.op = operator
	return f
}
