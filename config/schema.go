package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// form is the form of a value in JSON Schema: draft 4, the latest version that common TOML
// editors support. Values of several types have no type.
type form map[string]any

// describe returns the form of a table that read reads. It runs the bindings of the table without a
// text.
func describe(read func(v value)) form {
	f := form{
		"type":                 "object",
		"properties":           make(map[string]form),
		"additionalProperties": false,
	}
	read(value{
		r:         new(reader),
		source:    new(source),
		node:      new(node),
		describes: f,
	})
	return f
}

// describeFile returns the form of a file.
func describeFile() form {
	return describe(func(v value) {
		v.read(v.r.bind)
	})
}

// listOf is the form of a list.
func listOf(f form) form {
	return form{"type": "array", "items": f}
}

// oneOrMore is the form of a value or a list of such values.
func oneOrMore(f form) form {
	return form{"anyOf": []form{f, listOf(f)}}
}

// properties are the forms of the keys of a table. Other forms have none.
func (f form) properties() map[string]form {
	keys, _ := f["properties"].(map[string]form)
	return keys
}

// element is the form of one element of a list, or of a value that is no list.
func (f form) element() form {
	if items, isList := f["items"].(form); isList {
		return items
	}
	if either, isEither := f["anyOf"].([]form); isEither {
		return either[0]
	}
	return f
}

// language returns the dotted keys of all tables, except tables below arbitrary keys:
// "resource.match.usb.id".
func (r *reader) language() []string {
	if r.keys == nil {
		r.keys = describeFile().keys("")
	}
	return r.keys
}

// keys returns the dotted keys of a table and of the tables below it.
func (f form) keys(path string) []string {
	var all []string
	properties := f.properties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		key := dotted(path, name)
		all = append(all, key)
		all = append(all, properties[name].element().keys(key)...)
	}
	return all
}

// Schema returns the language as JSON Schema, for editors: its keys and their help. A text that the
// schema accepts may still violate a rule.
func Schema() ([]byte, error) {
	root := describeFile()
	root["$schema"] = "http://json-schema.org/draft-04/schema#"
	root["title"] = "generic-dp configuration"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}
