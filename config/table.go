package config

import (
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// table is a table whose keys are bound to what they fill: one that is read, or,
// where describes is set, one that is described without a text.
type table struct {
	value
	names []string // of its keys in the language
	known int      // how many of the keys that it has are among them
}

// read binds the keys of the table v, and reports keys that it does not have.
func (v value) read(bind func(t *table)) {
	if v.describes != nil {
		bind(&table{value: v})
		return
	}
	keys := v.keys()
	if keys == nil {
		v.mistyped("a table", "")
		return
	}
	t := &table{value: v, names: make([]string, 0, 32)}
	bind(t)
	if t.known == len(keys) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(t.names, name) {
			r := v.key(name).problem("unknown key "+quote(name), "")
			r.hint = func() string { return v.unknownHint(name, t.names) }
			v.w.report(r)
		}
	}
}

// key binds a key to a function that reads it. form is what the JSON Schema says of
// its value, help what it means.
func (t *table) key(name string, form func() form, read func(v value), help string) {
	t.names = append(t.names, name)
	if t.describes != nil {
		*t.describes.keys = append(*t.describes.keys, t.describes.path+name)
		t.describes.properties[name] = form()
		t.describes.properties[name]["description"] = help
	} else if raw, ok := t.keys()[name]; ok {
		t.known++
		read(value{w: t.w, above: &t.value, name: name, raw: raw})
	}
}

// require reports that the key is missing: want says what, hint how to write it.
func (t *table) require(name, want, hint string) {
	if t.describes != nil {
		t.describes.required = append(t.describes.required, name)
	} else if t.lacks(name) {
		t.report("no "+name+": want "+want, hint)
	}
}

func (t *table) boolean(name string, into *bool, help string) {
	t.key(name, booleanForm, func(v value) { *into = v.boolean() }, help)
}

func (t *table) integer(name string, into *int, lo, hi int64, help string) {
	t.key(name, func() form { return integerForm(lo, hi) },
		func(v value) { *into = int(v.integer(lo, hi)) }, help)
}

// words binds a key whose value is one of a few words.
func words[T ~string](t *table, name string, into *T, help string, words ...T) {
	t.key(name, func() form { return form{"enum": words} }, func(v value) { *into = word(v, words) }, help)
}

func (t *table) duration(name string, into *time.Duration, least time.Duration, examples, help string) {
	t.key(name, stringForm, func(v value) { *into = v.duration(least, examples) }, help)
}

// literal binds a key to a string without variables.
func (t *table) literal(name string, into *string, help string) {
	t.key(name, stringForm, func(v value) { *into, _ = v.literal("a string") }, help)
}

// text binds a key to a string with variables.
func (t *table) text(name string, into *device.Text, r role, help string) {
	t.key(name, stringForm, func(v value) { *into = v.text(r) }, help)
}

// values binds a key to a condition: a pattern or a list of patterns.
func (t *table) values(name string, into *pattern.Values, k kind, help string) {
	t.key(name, k.form, func(v value) { *into = v.values(k) }, help)
}

// table binds a key that holds a table.
func (t *table) table(name string, read func(v value), help string) {
	t.key(name, func() form { return t.below(name, read) }, read, help)
}

// tables binds a key that holds a table or a list of tables. main is the key
// that a lone string may be meant for, or empty.
func tables[T any](t *table, name string, into *[]T, read func(v value) T, main, help string) {
	t.key(name, func() form {
		return oneOrMore(t.below(name, func(v value) { read(v) }))
	}, func(v value) {
		for _, e := range v.tables(main) {
			*into = append(*into, read(e))
		}
	}, help)
}
