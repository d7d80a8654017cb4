package config

import (
	"maps"
	"slices"
)

// table is a kind of table: its keys as data. A new key is one line here and
// a function that reads it into T.
type table[T any] struct {
	// name of the kind, unique in the language.
	name string
	keys []key[T]
}

// key is a key of a table.
type key[T any] struct {
	name string
	read func(v value, into *T)
	// form is what the JSON Schema says of the value.
	form form
	// table is the kind of table that the key holds, or holds a list of; nil
	// where it holds values, or where its own keys are the user's.
	table interface{ schema() *schema }
	// entries is the kind of table that the keys of the user's own may hold.
	entries interface{ schema() *schema }
	// want is set where the key is required: what is missing without it, and
	// hint how to write it.
	want, hint string
}

func (t table[T]) names() []string {
	names := make([]string, len(t.keys))
	for i, k := range t.keys {
		names[i] = k.name
	}
	return names
}

// readTable reads the keys of the table v into its meaning, in the order of
// the kind's keys, and reports those that it does not have and those that are
// missing.
func readTable[T any](v value, t table[T], into *T) {
	m, ok := v.raw.(map[string]any)
	if !ok {
		hint := ""
		if slices.Contains(t.names(), "id") {
			hint = tableHint(v.raw, "id")
		}
		v.mistyped("a table", hint)
		return
	}
	for _, k := range t.keys {
		if _, ok := m[k.name]; ok {
			k.read(v.child(k.name), into)
		} else if k.want != "" && v.lacks(k.name) {
			v.report("no "+k.name+": want "+k.want, k.hint)
		}
	}
	names := t.names()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, name) {
			v.key(name).report("unknown key "+quote(name), v.unknownHint(name, names))
		}
	}
}

// schema is what is known of a kind of table without reading one: its keys,
// and the kinds of table below it. It says where a misplaced key belongs, and
// is written out as JSON Schema.
type schema struct {
	name     string
	keys     []string
	forms    map[string]form
	required []string
	sub      map[string]*schema
	entries  map[string]*schema
}

func (t table[T]) schema() *schema {
	s := &schema{name: t.name, keys: t.names(), forms: make(map[string]form), sub: make(map[string]*schema), entries: make(map[string]*schema)}
	for _, k := range t.keys {
		s.forms[k.name] = k.form
		if k.want != "" {
			s.required = append(s.required, k.name)
		}
		if k.table != nil {
			s.sub[k.name] = k.table.schema()
		}
		if k.entries != nil {
			s.entries[k.name] = k.entries.schema()
		}
	}
	return s
}
