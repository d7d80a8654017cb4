package config

import (
	"github.com/generic-dp/generic-dp/internal/device"
)

// entries binds a key to a table of environment variables or annotations, whose keys are
// arbitrary. what names an entry in messages.
func (t *table) entries(name string, into *[]device.Entry, what string, keys role, help string) {
	read := func(v value) []device.Entry {
		return v.entries(what, keys)
	}
	bind(t, name, userKeysForm(orTable(stringForm, readEntry)), into, read, help)
}

// entries reads v as a table of environment variables or annotations.
// The order is the order of the names, so that the response to Allocate does not change between two
// reads of one text.
func (v value) entries(what string, keys role) []device.Entry {
	var all []device.Entry
	for name, e := range v.userKeys("of strings", "the name of "+what) {
		entry, ok := e.entry()
		if !ok {
			continue
		}
		key := v.key(name)
		// The name of the entry may have variables of its own, such as "DEVICE_${index}".
		entry.Key = key.text(keys)
		// Only a value that differs between devices is joined with the separator. Any other value
		// appears once per container.
		entry.PerDevice = perDevice(entry.Value)
		// Annotations that a program interprets are refused in any case: see annotationName. The samples
		// are valid values, so that digits count here. CheckEnv checks the real names.
		program := interpretedBy(environment, sample(entry.Key), false)
		if v.name == "env" && program != "" {
			key.needs("environment variable "+quote(name)+", which "+program+" reads,", allowEnv)
		}
		all = append(all, entry)
	}
	return all
}

// entry reads v as the value of an environment variable or an annotation: a string or a table.
func (v value) entry() (e device.Entry, ok bool) {
	if v.table() != nil {
		return readEntry(v), true
	}
	e.Value = v.text(entryValue)
	// An empty text is nil as well, but it is a valid value of a variable.
	isEmptyString := v.raw == ""
	return e, e.Value != nil || isEmptyString
}

// readEntry reads a value of env or annotations that is a table. An empty Separator means the
// default, a comma, so that an explicit empty separator must be refused.
func readEntry(v value) device.Entry {
	var e device.Entry
	v.read(func(t *table) {
		t.text("value", &e.Value, entryValue, "the value for one device")
		t.require("value", "the value for one device", "")
		t.literal("separator", &e.Separator, "text between the values of several devices")
		t.literal("prefix", &e.Prefix, "text before all values")
		t.literal("suffix", &e.Suffix, "text after all values")
	})
	separator := v.child("separator")
	if separator.raw == "" {
		separator.report(`"" is empty: want the text between the values of several devices`, `the default is ","`)
	}
	return e
}
