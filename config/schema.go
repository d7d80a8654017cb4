package config

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// Reference is a configuration that has every key of the language, with its
// default and its meaning as comments.
//
//go:embed reference.toml
var Reference string

// form is what a value looks like, in the words of JSON Schema (draft 4, the
// highest that the usual TOML editors know).
type form map[string]any

// schema describes a table of the language: what its bindings say without a text.
type schema struct {
	// path of the table, "resource.match.", and keys of it and of all tables that
	// are described with it: "resource.match.glob".
	path       string
	keys       *[]string
	properties map[string]form
	required   []string
}

// describe runs the bindings of a table without a text.
func describe(bind func(t *table)) *schema {
	s := &schema{keys: new([]string), properties: make(map[string]form)}
	s.describe(bind)
	return s
}

func (s *schema) describe(bind func(t *table)) {
	bind(&table{value: value{w: new(walk), source: &source{keys: &node{}}, describes: s}})
}

// below describes the table that a key holds, which read reads.
func (t *table) below(name string, read func(v value)) form {
	s := &schema{path: t.describes.path + name + ".", keys: t.describes.keys, properties: make(map[string]form)}
	s.describe(func(t *table) { read(t.value) })
	return s.form()
}

// formOf describes a table that is in one with keys of the user's own.
func formOf(read func(v value)) form { return describe(func(t *table) { read(t.value) }).form() }

// form is the schema of a table as JSON Schema.
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

// stringTable is a table of strings with keys of the user's own.
func stringTable() form { return ownKeys(stringForm()) }

func integerForm(lo, hi int64) form {
	return form{"type": "integer", "minimum": lo, "maximum": hi}
}

func oneOrMore(f form) form {
	return form{"anyOf": []form{f, {"type": "array", "items": f}}}
}

func ownKeys(f form) form { return form{"type": "object", "additionalProperties": f} }

// Schema is the language as JSON Schema, for editors: its keys, the types of
// their values and what they mean. What it accepts may still break a rule.
func Schema() ([]byte, error) {
	root := describe(new(top).bind).form()
	root["$schema"] = "http://json-schema.org/draft-04/schema#"
	root["title"] = "generic-dp configuration"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}
