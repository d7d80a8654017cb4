package config

import (
	"maps"
	"slices"
)

// virtualTable is the keys of an element of virtual that is more than a name.
var virtualTable = table[Virtual]{name: "virtual", keys: []key[Virtual]{
	{name: "name", form: anyText, want: `one such as "lic-0"`, read: func(v value, d *Virtual) { d.Name = v.virtualName() }},
	{name: "vars", form: ownKeys(anyText), read: func(v value, d *Virtual) { d.Vars = v.virtualVars() }},
}}

// virtual is v as devices without hardware: names, tables, or a list of them.
func (v value) virtual() []Virtual {
	var out []Virtual
	items := v.items()
	if len(items) == 0 {
		v.report(`an empty list: want at least one device such as "lic-0"`, "")
	}
	for _, e := range items {
		var d Virtual
		switch e.raw.(type) {
		case string:
			d.Name = e.virtualName()
		case map[string]any:
			e.element = true
			readTable(e, virtualTable, &d)
		default:
			e.mistyped(`a name such as "lic-0", or a table such as { name = "cam-0", vars = { host = "10.0.0.5" } }`, "")
		}
		if d.Name != "" {
			out = append(out, d)
		}
	}
	return out
}

// virtualName is v as the name of a virtual device, empty where it is none.
func (v value) virtualName() string {
	s, ok := v.text(`a name such as "lic-0"`)
	if !ok {
		return ""
	}
	if !nameInPart.MatchString(s) || len(s) > maxNamePart {
		v.report(quote(s)+` is not the name of a device: want letters, digits, "-", "_" and ".", beginning and ending with a letter or digit, at most 63`, "")
		return ""
	}
	return s
}

// virtualVars is the table v of what ${var:NAME} stands for.
func (v value) virtualVars() map[string]string {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped(`a table of strings such as { host = "10.0.0.5" }`, "")
		return nil
	}
	vars := make(map[string]string, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		e := v.child(name)
		if !nameInPart.MatchString(name) {
			v.key(name).report(quote(name)+` is not the name of a variable: want letters, digits, "-", "_" and "."`, "")
			continue
		}
		if s, ok := e.literal("a string"); ok {
			vars[name] = s
		}
	}
	return vars
}
