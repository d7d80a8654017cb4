package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// form is the form of a value in JSON Schema: draft 4, the latest version that common TOML
// editors support.
type form map[string]any

// formOf returns the form of a value. It is a function, because only a description needs it.
type formOf func() form

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

// properties are the forms of the keys of a table. Other forms have none.
func (f form) properties() map[string]form {
	keys, _ := f["properties"].(map[string]form)
	return keys
}

// element is the form of one element, or of the value itself if it is no list. The tables that may stand
// in place of a literal do not count, so that their keys are never suggested for misspelled keys.
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

// ignoring returns read without its result, to describe what it reads.
func ignoring[T any](read func(v value) T) func(v value) {
	return func(v value) {
		read(v)
	}
}

// below is the form of a table that read reads.
func below(read func(v value)) formOf {
	return func() form {
		return describe(read)
	}
}

// orTable is the form of a literal, or of a table that read reads.
func orTable[T any](literal formOf, read func(v value) T) formOf {
	return anyOf(literal, below(ignoring(read)))
}

// typed is the form of a value of one of some types.
func typed(types ...string) formOf {
	return func() form {
		if len(types) == 1 {
			return form{"type": types[0]}
		}
		return form{"type": types}
	}
}

// enum is the form of one of some values.
func enum[T any](values ...T) formOf {
	return func() form {
		return form{"enum": values}
	}
}

// integerForm is the form of an integer from lo to hi.
func integerForm(lo, hi int64) formOf {
	return func() form {
		return form{
			"type":    "integer",
			"minimum": lo,
			"maximum": hi,
		}
	}
}

// listOf is the form of a list of values.
func listOf(f formOf) formOf {
	return func() form {
		return form{"type": "array", "items": f()}
	}
}

// anyOf is the form of a value of one of two forms.
func anyOf(a, b formOf) formOf {
	return func() form {
		return form{"anyOf": []form{a(), b()}}
	}
}

// oneOrMore is the form of a value or a list of such values.
func oneOrMore(f formOf) formOf {
	return func() form {
		one := f()
		list := form{"type": "array", "items": one}
		return form{"anyOf": []form{one, list}}
	}
}

// userKeysForm is the form of a table with arbitrary keys.
func userKeysForm(f formOf) formOf {
	return func() form {
		return form{"type": "object", "additionalProperties": f()}
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
	root := describeFile()
	root["$schema"] = "http://json-schema.org/draft-04/schema#"
	root["title"] = "generic-dp configuration"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}
