package device

import "strings"

// Text is a string with variables: literal parts and names in turn. The
// configuration parses it once; matching fills in what is known of a device;
// what depends on the container (Index, Count) stays open until Allocate.
type Text []Part

// Part is a literal, or a variable where Var is not empty.
type Part struct {
	Literal string
	Var     string // "id", "usb.serial", "attr:NAME", "1"
}

// The variables that only an Allocate call can answer.
const (
	IndexVar = "index"
	CountVar = "count"
)

// Literal is a Text without variables.
func Literal(s string) Text {
	if s == "" {
		return nil
	}
	return Text{{Literal: s}}
}

// Expand replaces each variable that value knows and leaves the others open.
// The result has no two literals in a row. An open variable that value
// should have known is found with Vars.
func (t Text) Expand(value func(name string) (string, bool)) Text {
	if len(t) == 1 && t[0].Var == "" && t[0].Literal != "" {
		return t[:1:1]
	}
	var out Text
	for _, p := range t {
		if p.Var != "" {
			v, ok := value(p.Var)
			if !ok {
				out = append(out, p)
				continue
			}
			p = Part{Literal: v}
		}
		if p.Literal == "" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Var == "" {
			out[n-1].Literal += p.Literal
			continue
		}
		out = append(out, p)
	}
	return out
}

// Vars lists the names of the variables in t, in order, with repeats.
func (t Text) Vars() []string {
	var names []string
	for _, p := range t {
		if p.Var != "" {
			names = append(names, p.Var)
		}
	}
	return names
}

// Has reports whether t has the variable name.
func (t Text) Has(name string) bool {
	for _, p := range t {
		if p.Var == name {
			return true
		}
	}
	return false
}

// String writes t as the configuration would: variables as ${name}.
func (t Text) String() string {
	if len(t) == 1 && t[0].Var == "" {
		return t[0].Literal
	}
	var b strings.Builder
	for _, p := range t {
		if p.Var != "" {
			b.WriteString("${" + p.Var + "}")
		} else {
			b.WriteString(p.Literal)
		}
	}
	return b.String()
}
