package config

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/device"
)

// entryTable is the keys of a value of env or annotations that is more than a
// string.
var entryTable = table[device.Entry]{name: "value", keys: []key[device.Entry]{
	{name: "value", form: anyText, want: "what stands for one device", read: func(v value, e *device.Entry) { e.Value = v.variables(entryValue) }},
	{name: "prefix", form: anyText, read: func(v value, e *device.Entry) { e.Prefix, _ = v.literal("a string") }},
	{name: "suffix", form: anyText, read: func(v value, e *device.Entry) { e.Suffix, _ = v.literal("a string") }},
	{name: "separator", form: anyText, read: func(v value, e *device.Entry) { e.Separator = v.separator() }},
}}

// entryForm is env and annotations.
var entryForm = ownKeys(eitherOf(anyText, tableForm(entryTable.name)))

// separator is v as what stands between the values of several devices.
func (v value) separator() string {
	s, ok := v.literal(`a string such as ";"`)
	if ok && s == "" {
		v.report(`"" is empty: want what stands between the values of several devices`, `without separator it is ","`)
	}
	return s
}

// entries is the table v with keys of the user's own, sorted by them.
func (v value) entries(what string, keys role) []device.Entry {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped("a table of strings", "")
		return nil
	}
	var out []device.Entry
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if above, ok := v.enclosing(name); ok {
			v.key(name).report(quote(name)+" is a key of "+tableName(above)+": want the name of "+what, v.headerHint(above))
			continue
		}
		var entry device.Entry
		switch e := v.child(name); e.raw.(type) {
		case map[string]any:
			readTable(e, entryTable, &entry)
		default:
			if _, ok := e.text("a string"); !ok {
				continue
			}
			entry.Value = e.variables(entryValue)
		}
		entry.Key = v.key(name).variables(keys)
		entry.PerDevice = v.w.variables.perDevice(entry.Value)
		out = append(out, entry)
	}
	return out
}
