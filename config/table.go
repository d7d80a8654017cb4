package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// table is a table whose keys are bound to fields: one that is read, or, if describes
// is set, one that is described without a text.
type table struct {
	value
	names []string // of its keys in the language
	known int      // number of its known keys
}

// read binds the keys of the table v, and reports unknown keys. It is sound if nothing
// was reported.
func (v value) read(bind func(t *table)) (sound bool) {
	if v.describes != nil {
		bind(&table{value: v})
		return true
	}
	keys := v.keys()
	before := v.r.found
	t := &table{value: v, names: make([]string, 0, 32)}
	bind(t)
	if t.known == len(keys) {
		return v.r.found == before
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(t.names, name) {
			hint := ""
			if v.r.found < maxFound { // it takes time
				hint = v.unknownHint(name, t.names)
			}
			v.key(name).report("unknown key "+quote(name), hint)
		}
	}
	return false
}

// key binds a key to a function that reads it. form is the JSON Schema of its value,
// help its meaning.
func (t *table) key(name string, form func() form, read func(v value), help string) {
	t.names = append(t.names, name)
	if t.describes != nil {
		*t.describes.keys = append(*t.describes.keys, t.describes.dotted(name))
		t.describes.properties[name] = form()
		t.describes.properties[name]["description"] = help
	} else if raw, ok := t.keys()[name]; ok {
		t.known++
		read(value{
			r:     t.r,
			above: &t.value,
			name:  name,
			raw:   raw,
		})
	}
}

// require reports that the key is missing: want describes it, hint how to write it.
func (t *table) require(name, want, hint string) {
	if t.describes != nil {
		t.describes.required = append(t.describes.required, name)
	} else if t.lacks(name) {
		t.report("missing key "+quote(name)+": want "+want, hint)
	}
}

func (t *table) boolean(name string, into *bool, help string) {
	t.key(name, booleanForm, func(v value) {
		*into = v.boolean("true or false")
	}, help)
}

func (t *table) integer(name string, into *int, lo, hi int64, help string) {
	t.key(name, func() form {
		return integerForm(lo, hi)
	},
		func(v value) {
			*into = int(v.integer(lo, hi))
		}, help)
}

// words binds a key whose value is one of some words.
func words[T ~string](t *table, name string, into *T, words []T, help string) {
	t.key(name, func() form { return form{"enum": words} }, func(v value) {
		*into = word(v, words)
	}, help)
}

func (t *table) duration(name string, into *time.Duration, least time.Duration, examples, help string) {
	t.key(name, stringForm, func(v value) {
		*into = v.duration(least, examples)
	}, help)
}

// literal binds a key to a string without variables.
func (t *table) literal(name string, into *string, help string) {
	t.key(name, stringForm, func(v value) {
		*into, _ = v.literal("a string")
	}, help)
}

// text binds a key to a string with variables.
func (t *table) text(name string, into *device.Text, r role, help string) {
	t.key(name, stringForm, func(v value) {
		*into = v.text(r)
	}, help)
}

// values binds a key to a condition: a pattern or a list of patterns.
func (t *table) values(name string, into *pattern.Values, k kind, help string) {
	t.key(name, k.form, func(v value) {
		*into = v.values(k)
	}, help)
}

// table binds a key that contains a table, such as the example.
func (t *table) table(name string, read func(v value), example, help string) {
	t.key(name, func() form {
		return t.below(name, read)
	}, func(v value) {
		if v.isTable(example) {
			read(v)
		}
	}, help)
}

// tables binds a key that contains a table or a list of tables, such as the example.
func tables[T any](t *table, name string, into *[]T, read func(v value) T, example, help string) {
	t.key(name, func() form {
		return oneOrMore(t.below(name, func(v value) {
			read(v)
		}))
	}, func(v value) {
		for _, e := range v.tables(example) {
			*into = append(*into, read(e))
		}
	}, help)
}

// form is the form of a value, in JSON Schema (draft 4, the latest that common TOML
// editors support).
type form map[string]any

// schema describes a table of the language: its bindings without a text.
type schema struct {
	path       string // "resource.match"; empty at the top
	properties map[string]form
	required   []string
	// keys of all described tables, "resource.match.glob", and the forms of the tables
	// below the top by their paths.
	keys   *[]string
	tables map[string]form
}

// describe runs the bindings of the top level without a text.
func describe() *schema {
	s := &schema{keys: new([]string), tables: make(map[string]form)}
	s.run(new(top).bind)
	return s
}

func (s *schema) run(bind func(t *table)) {
	s.properties = make(map[string]form)
	bind(&table{value: value{r: new(reader), source: &source{keys: &node{}}, describes: s}})
}

// dotted is the path of a key of the table.
func (s *schema) dotted(name string) string { return strings.TrimPrefix(s.path+"."+name, ".") }

// below describes the table that a key contains, which read reads.
func (t *table) below(name string, read func(v value)) form {
	return t.describes.table(name, t.describes.keys, read)
}

// belowUserKeys describes the tables below arbitrary keys: their keys are never suggested.
func (t *table) belowUserKeys(name string, read func(v value)) form {
	return t.describes.table(name, new([]string), read)
}

func (s *schema) table(name string, keys *[]string, read func(v value)) form {
	sub := &schema{path: s.dotted(name), keys: keys, tables: s.tables}
	sub.run(func(t *table) {
		read(t.value)
	})
	s.tables[sub.path] = sub.form()
	return form{"$ref": "#/definitions/" + sub.path}
}

// form is the table as JSON Schema.
func (s *schema) form() form {
	f := form{"type": "object", "properties": s.properties, "additionalProperties": false}
	if len(s.required) > 0 {
		f["required"] = s.required
	}
	return f
}

func stringForm() form { return form{"type": "string"} }

func booleanForm() form { return form{"type": "boolean"} }

// stringsForm is a string or a list of strings.
func stringsForm() form { return oneOrMore(stringForm()) }

// stringTable is a table of strings with arbitrary keys.
func stringTable() form { return userKeysForm(stringForm()) }

func integerForm(lo, hi int64) form {
	return form{"type": "integer", "minimum": lo, "maximum": hi}
}

func oneOrMore(f form) form {
	return form{"anyOf": []form{f, {"type": "array", "items": f}}}
}

func userKeysForm(f form) form { return form{"type": "object", "additionalProperties": f} }

// Schema is the language as JSON Schema, for editors: its keys, the types of their
// values and their help. A text that it accepts may still violate a rule.
func Schema() ([]byte, error) {
	language := describe()
	root := language.form()
	root["definitions"] = language.tables
	root["$schema"] = "http://json-schema.org/draft-04/schema#"
	root["title"] = "generic-dp configuration"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}
