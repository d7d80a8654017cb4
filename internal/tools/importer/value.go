package importer

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// value is a YAML node and its place in the input; nil is an absent value.
type value struct {
	*yaml.Node
	c *conversion
	// parent and key name the value in messages: `device 2 ("fuse"): group 1: ` and
	// `count`.
	parent string
	key    string
}

// documents decodes the YAML text in a scalar.
func (v *value) documents() ([]*value, error) {
	nodes, err := manifest.Documents(v.Value, manifest.FirstLine(v.Node)-1)
	var documents []*value
	for _, n := range nodes {
		document := *v
		document.Node = n
		documents = append(documents, &document)
	}
	return documents, err
}

// place is the start of messages about the value.
func (v *value) place() string {
	if v.key == "" {
		return v.parent
	}
	return v.parent + v.key + ": "
}

// lost records that a part of the input is not imported.
func (v *value) lost(format string, args ...any) {
	v.c.losses++
	v.note(v.place() + "not imported: " + fmt.Sprintf(format, args...))
}

// differs records a difference of the result.
func (v *value) differs(format string, args ...any) {
	v.note(v.place() + "differs: " + fmt.Sprintf(format, args...))
}

// note records a warning, which is a comment in front of the next resource as well.
func (v *value) note(text string) {
	warning := fmt.Sprintf("%s: line %d: %s", v.c.file, v.Line, text)
	v.c.warnings = addOnce(v.c.warnings, warning)
	v.c.pending = addOnce(v.c.pending, text)
}

// scalar reports whether the value is a text, a number or a boolean.
func (v *value) scalar() bool {
	return v != nil && v.Kind == yaml.ScalarNode && v.ShortTag() != "!!null"
}

// string returns the text of a scalar, otherwise an empty string.
func (v *value) string() string {
	if v.scalar() {
		return v.Value
	}
	return ""
}

// mapping reports whether the value is a mapping.
func (v *value) mapping() bool { return v != nil && v.Kind == yaml.MappingNode }

// list reports whether the value is a list.
func (v *value) list() bool { return v != nil && v.Kind == yaml.SequenceNode }

// fields lists the values of a mapping in the order of the input, without null.
func (v *value) fields() []*value {
	if !v.mapping() {
		return nil
	}
	listed, err := manifest.Fields(v.Node)
	if err != nil {
		v.lost("%v", err)
	}
	var fields []*value
	for _, f := range listed {
		fields = append(fields, &value{
			Node:   f.Node,
			c:      v.c,
			parent: v.place(),
			key:    f.Key,
		})
	}
	return fields
}

// get returns the value of a key, which plugins accept in any case.
func (v *value) get(key string) *value {
	for _, f := range v.fields() {
		if strings.EqualFold(f.key, key) {
			return f
		}
	}
	return nil
}

// has reports whether the value is a mapping with a key.
func (v *value) has(key string) bool { return v.get(key) != nil }

// items lists the elements of a list. The elements of "devices" are named `device 1 ("fuse")`.
func (v *value) items() []*value {
	if !v.list() {
		return nil
	}
	kind := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(v.key), "s"), "list")
	var items []*value
	for i, n := range v.Content {
		item := &value{
			Node:   manifest.Resolve(n),
			c:      v.c,
			parent: v.parent,
		}
		items = append(items, item.named(fmt.Sprintf("%s %d", cmp.Or(kind, "item"), i+1)))
	}
	return items
}

// named returns the value with a name in messages, and its own name if it has one.
func (v *value) named(key string) *value {
	copied := *v
	copied.key = key
	for _, nameKey := range []string{"name", "resourceName", "devicematch"} {
		if name := v.get(nameKey).string(); name != "" {
			copied.key += fmt.Sprintf(" (%q)", name)
		}
	}
	return &copied
}
