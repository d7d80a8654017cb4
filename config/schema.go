package config

import (
	"encoding/json"
	"fmt"
	"math"
)

// form is the form of a value in JSON Schema: draft 4, the latest version that common TOML
// editors support.
type form map[string]any

// formOf returns the form of the value of a key of a table. It is a function, because only a description
// needs it.
type formOf func(t *table, key string) form

// schema describes a table of the language. It is the result of running the bindings of the table
// without a text.
type schema struct {
	// path is the dotted key of the table, "resource.match". It is empty at the top.
	path       string
	properties map[string]form
	required   []string
	// keys are the dotted keys of all described tables, "resource.match.glob".
	keys *[]string
	// tables are the forms of the tables below the top, by their paths.
	tables map[string]form
}

// describe runs the bindings of the top level without a text.
func describe() *schema {
	s := &schema{
		keys:   new([]string),
		tables: make(map[string]form),
	}
	s.run(new(reader).bind)
	return s
}

// run runs bindings, which describe themselves in s.
func (s *schema) run(bind func(t *table)) {
	s.properties = make(map[string]form)
	t := &table{
		value: value{
			r:         new(reader),
			source:    new(source),
			node:      new(node),
			describes: s,
		},
	}
	bind(t)
}

// add describes a key of the table.
func (s *schema) add(name string, f form, help string) {
	*s.keys = append(*s.keys, s.dotted(name))
	f["description"] = help
	s.properties[name] = f
}

// dotted returns the path of a key of the table.
func (s *schema) dotted(name string) string { return dotted(s.path, name) }

// ignoring returns read without its result, to describe what it reads.
func ignoring[T any](read func(v value) T) func(v value) {
	return func(v value) {
		read(v)
	}
}

// below is the form of a table that read reads.
func below(read func(v value)) formOf {
	return func(t *table, key string) form {
		return t.describes.table(key, t.describes.keys, read)
	}
}

// orTable is the form of a literal, or of a table that read reads. The keys of the table are not recorded
// as keys of the language, so that they are never suggested for misspelled keys.
func orTable[T any](literal formOf, read func(v value) T) formOf {
	return func(t *table, key string) form {
		table := t.describes.table(key, new([]string), ignoring(read))
		return form{"anyOf": []form{literal(t, key), table}}
	}
}

// table describes the table that is the value of a key, and returns a reference to it.
func (s *schema) table(name string, keys *[]string, read func(v value)) form {
	sub := &schema{
		path:   s.dotted(name),
		keys:   keys,
		tables: s.tables,
	}
	sub.run(func(t *table) {
		read(t.value)
	})
	s.tables[sub.path] = sub.form()
	return form{"$ref": "#/definitions/" + sub.path}
}

// form returns the table as JSON Schema.
func (s *schema) form() form {
	f := form{
		"type":                 "object",
		"properties":           s.properties,
		"additionalProperties": false,
	}
	if len(s.required) > 0 {
		f["required"] = s.required
	}
	return f
}

// typed is the form of a value of one of some types.
func typed(types ...string) formOf {
	return func(*table, string) form {
		if len(types) == 1 {
			return form{"type": types[0]}
		}
		return form{"type": types}
	}
}

// enum is the form of one of some values.
func enum[T any](values ...T) formOf {
	return func(*table, string) form {
		return form{"enum": values}
	}
}

// integerForm is the form of an integer from lo to hi.
func integerForm(lo, hi int64) formOf {
	return func(*table, string) form {
		return form{
			"type":    "integer",
			"minimum": lo,
			"maximum": hi,
		}
	}
}

// listOf is the form of a list of values.
func listOf(f formOf) formOf {
	return func(t *table, key string) form {
		return form{"type": "array", "items": f(t, key)}
	}
}

// anyOf is the form of a value of one of two forms.
func anyOf(a, b formOf) formOf {
	return func(t *table, key string) form {
		return form{"anyOf": []form{a(t, key), b(t, key)}}
	}
}

// oneOrMore is the form of a value or a list of such values.
func oneOrMore(f formOf) formOf {
	return func(t *table, key string) form {
		one := f(t, key)
		list := form{"type": "array", "items": one}
		return form{"anyOf": []form{one, list}}
	}
}

// userKeysForm is the form of a table with arbitrary keys.
func userKeysForm(f formOf) formOf {
	return func(t *table, key string) form {
		return form{"type": "object", "additionalProperties": f(t, key)}
	}
}

// The forms of values that need no arguments.
var (
	stringForm   = typed("string")
	booleanForm  = typed("boolean")
	quantityForm = typed("string", "integer")
	stringsForm  = oneOrMore(stringForm)
	integersForm = oneOrMore(quantityForm)
	stringTable  = userKeysForm(stringForm)
	stringsTable = userKeysForm(stringsForm)
	numaForm     = anyOf(enum("auto", "none"), listOf(integerForm(0, math.MaxInt32)))
	cdiForm      = anyOf(booleanForm, enum(autoCDI))
	sharedForm   = enum[any](true, false, exclusive)
)

// Schema returns the language as JSON Schema, for editors: its keys, the types of their values and
// their help. A text that the schema accepts may still violate a rule.
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
