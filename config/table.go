package config

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// table is a table whose keys are bound to fields: one that is read, or, if describes
// is set, one that is described without a text.
type table struct {
	value
	// names of the keys that the language has in this table.
	names []string
	// known is the number of keys in the text that the language has.
	known int
}

// read binds the keys of the table v, and reports unknown keys. It is sound if nothing was
// reported. To describe the language, it only calls bind, and is sound.
func (v value) read(bind func(t *table)) (sound bool) {
	if v.describes != nil {
		bind(&table{value: v})
		return true
	}
	keys := v.table()
	// found also counts dropped problems, so that a table with problems is never sound.
	before := v.r.found
	t := &table{value: v, names: make([]string, 0, 32)}
	bind(t)
	// Most tables have no unknown keys, so that they are not sorted.
	if t.known == len(keys) {
		return v.r.found == before
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if slices.Contains(t.names, name) {
			continue
		}
		if instead := v.replacement(name); instead != "" {
			v.key(name).report("the key "+quote(name)+" was removed", instead)
			continue
		}
		hint := ""
		if v.r.found < maxFound {
			// Computed only for problems that may be reported, because it takes time.
			hint = v.unknownHint(name, t.names)
		}
		v.key(name).report("unknown key "+quote(name), hint)
	}
	return false
}

// key binds a key to a function that reads it. help is its meaning. read is not called if the text does
// not have the key: the field keeps its default.
func (t *table) key(name string, read func(v value), help string) {
	t.keyOf(name, form{}, read, help)
}

// keyOf is key with the form of the value in JSON Schema.
func (t *table) keyOf(name string, f form, read func(v value), help string) {
	t.names = append(t.names, name)
	if t.describes != nil {
		f["description"] = help
		t.describes.properties()[name] = f
		return
	}
	// The letter case must be exact, unlike in the structs of the library.
	if !t.has(name) {
		return
	}
	t.known++
	read(t.child(name))
}

// formOf returns the form of a table that read reads, which is only known to a description.
func (t *table) formOf(read func(v value)) form {
	if t.describes == nil {
		return nil
	}
	return describe(read)
}

// require reports that the key is missing: want describes it, hint how to write it.
func (t *table) require(name, want string, hint ...string) {
	if t.describes != nil {
		required, _ := t.describes["required"].([]string)
		t.describes["required"] = append(required, name)
	} else if !t.has(name) {
		t.report("missing key "+quote(name)+": want "+want, hint...)
	}
}

// bind binds a key to a field that read reads. It is a function, because methods cannot have type
// parameters.
func bind[T any](t *table, name string, into *T, read func(v value) T, help string) {
	assign := func(v value) {
		*into = read(v)
	}
	t.key(name, assign, help)
}

// boolean binds a key to a boolean.
func (t *table) boolean(name string, into *bool, help string) {
	read := func(v value) {
		*into = v.boolean("true or false")
	}
	t.keyOf(name, form{"type": "boolean"}, read, help)
}

// count binds a key to an integer from 1 to most. If the value is invalid, the field becomes 1.
func (t *table) count(name string, into *int, most int64, help string) {
	read := func(v value) {
		*into = int(v.integer(1, most))
	}
	t.keyOf(name, form{"type": "integer"}, read, help)
}

// words binds a key whose value is one of some words. If the value is invalid, the field becomes
// empty.
func words[T ~string](t *table, name string, into *T, words []T, help string) {
	read := func(v value) {
		*into = word(v, words)
	}
	t.keyOf(name, form{"enum": words}, read, help)
}

// literal binds a key to a string without variables. The escape $${ is resolved.
func (t *table) literal(name string, into *string, help string) {
	read := func(v value) {
		*into, _ = v.literal("a string")
	}
	t.key(name, read, help)
}

// text binds a key to a string with variables. The field is nil if the string is invalid or empty.
func (t *table) text(name string, into *device.Text, r role, help string) {
	read := func(v value) {
		*into = v.text(r)
	}
	t.key(name, read, help)
}

// values binds a key to a condition: a pattern or a list of patterns.
func (t *table) values(name string, into *pattern.Values, k kind, help string) {
	read := func(v value) {
		*into = v.values(k)
	}
	t.key(name, read, help)
}

// tableOf binds a key that contains a table, such as the example. A value of another type is reported
// once, and the field keeps its default.
func tableOf[T any](t *table, name string, into *T, read func(v value) T, example, help string) {
	readTable := func(v value) {
		if v.isTable(example) {
			*into = read(v)
		}
	}
	t.keyOf(name, t.formOf(readTable), readTable, help)
}

// tables binds a key that contains a table or a list of tables, such as the example.
func tables[T any](t *table, name string, into *[]T, read func(v value) T, example, help string) {
	readAll := func(v value) {
		for _, e := range v.tables(example) {
			*into = append(*into, read(e))
		}
	}
	readOne := func(v value) {
		read(v)
	}
	t.keyOf(name, oneOrMore(t.formOf(readOne)), readAll, help)
}
