package importer

import (
	"reflect"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// The plugins decode their configurations with Go's JSON decoder or with viper, both of which
// ignore the case of keys and keys that they do not know. A misspelled key is therefore common
// in configurations that work.

// decode reads a mapping into a struct, as Go's JSON decoder does: the keys are
// the names of its exported fields in any case. Unknown keys and invalid values
// are reported. It returns false if there are any: a selector without one of its conditions would
// select too much.
func (v *value) decode(into any) bool {
	if v == nil {
		return true
	}
	before := v.c.losses
	if !v.mapping() {
		v.lost("want a mapping")
	}
	target := reflect.ValueOf(into).Elem()
	for _, f := range v.fields() {
		field, isKnown := target.Type().FieldByNameFunc(func(name string) bool {
			return unicode.IsUpper(rune(name[0])) && strings.EqualFold(name, f.key)
		})
		if !isKnown {
			v.lost("unknown key %q", f.key)
			continue
		}
		f.set(target.FieldByIndex(field.Index).Addr().Interface())
	}
	return v.c.losses == before
}

// set sets the target of a pointer: a string, []string, int, bool, []*value or value.
func (v *value) set(into any) {
	switch into := into.(type) {
	case **value:
		*into = v
	case *[]*value:
		*into = v.items()
		if !v.list() {
			v.lost("want a list")
		}
	case *[]string:
		*into = v.texts()
	case *string:
		*into = v.text()
	case *int:
		if !v.decodePlain(into) || *into < 0 {
			v.lost("want a number such as 10")
			*into = 0
		}
	case *bool:
		if !v.decodePlain(into) {
			v.lost("want true or false")
		}
	}
}

// texts returns the strings of a list.
func (v *value) texts() []string {
	if !v.list() {
		v.lost("want a list of strings")
	}
	var texts []string
	for _, item := range v.items() {
		texts = append(texts, item.text())
	}
	return texts
}

// decodePlain decodes a scalar as if it had no quotes.
func (v *value) decodePlain(into any) bool {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: v.Value}
	return v.scalar() && plain.Decode(into) == nil
}

// text returns a string, or any scalar as it is written, without space around it.
// Empty means not set, as in the other plugins.
func (v *value) text() string {
	if !v.scalar() {
		v.lost("want a string")
	}
	return strings.TrimSpace(v.string())
}
