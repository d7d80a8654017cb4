package importer

import (
	"cmp"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The plugins decode their configurations with Go's JSON decoder or with viper, both of which
// ignore the case of keys and keys that they do not know. A misspelled key is therefore common
// in configurations that work.

// decode reads a mapping into a struct, as Go's JSON decoder does: the keys are
// the names of its exported fields in any case, here without "-". Unknown keys
// are a difference.
func (v *value) decode(into any) (ok bool) {
	fields, err := v.fields()
	if err != nil {
		v.report("%s", err)
		return false
	}
	target := reflect.ValueOf(into).Elem()
	seen := make(map[string]bool)
	for _, f := range fields {
		field, known := fieldOf(target.Type(), f.key)
		if !known {
			v.differs("not imported: unknown key %q", f.key)
			continue
		}
		if seen[field.Name] {
			f.report("is set twice")
		}
		seen[field.Name] = true
		f.set(target.FieldByIndex(field.Index).Addr().Interface())
	}
	return true
}

// fieldOf is the exported field of a struct for a key.
func fieldOf(structure reflect.Type, key string) (field reflect.StructField, known bool) {
	name := strings.ReplaceAll(key, "-", "")
	return structure.FieldByNameFunc(func(field string) bool {
		return unicode.IsUpper(rune(field[0])) && strings.EqualFold(field, name)
	})
}

// set sets the target of a pointer: a string, []string, int, bool, []*value or value.
func (v *value) set(into any) {
	switch into := into.(type) {
	case **value:
		*into = v
	case *[]*value:
		*into = v.items()
		if !v.list() {
			v.report("%s: want a list", v.describe())
		}
	case *[]string:
		*into = append(*into, v.texts()...)
	case *string:
		*into = cmp.Or(v.text(), *into)
	case *int:
		if !v.decodePlain(into) || *into < 0 {
			v.report("%s: want a number such as 10", v.describe())
		}
	case *bool:
		if !v.decodePlain(into) {
			v.report("%s: want true or false", v.describe())
		}
	}
}

// texts are the strings of a list.
func (v *value) texts() (texts []string) {
	if !v.list() {
		v.report("%s: want a list of strings", v.describe())
	}
	for _, e := range v.items() {
		texts = append(texts, e.text())
		if e.scalar() && strings.TrimSpace(e.Value) == "" {
			v.report("an empty string is not allowed")
		}
	}
	return texts
}

// decodePlain decodes a scalar as if it had no quotes.
func (v *value) decodePlain(into any) bool {
	plain := yaml.Node{
		Kind:  yaml.ScalarNode,
		Value: v.Value,
	}
	return v.scalar() && plain.Decode(into) == nil
}

// maxText limits a path, name or expression: half of the limit of a pattern,
// since escaping may double its length.
const maxText = 256

// text is a string, or any scalar as it is written, without space around it.
// Empty means not set, as in the other plugins.
func (v *value) text() string {
	text := strings.TrimSpace(v.Value)
	switch {
	case !v.scalar():
		v.report("%s: want a string", v.describe())
	case len(text) > maxText:
		v.report("%.20q... is too long: the limit is %d bytes", text, maxText)
	case !isPrintable(text):
		v.report("%q: only printable characters are allowed", v.Value)
	default:
		return text
	}
	return ""
}

// isPrintable reports whether a text has no control characters, which configurations refuse.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
