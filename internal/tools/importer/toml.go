package importer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

// The result is written by hand: no library writes comments, the order of keys, and dotted keys
// as the examples have them.

// toml writes the result. Its domain is the domain of the first resource.
func (c *conversion) toml() []byte {
	var b strings.Builder
	domain, _, _ := strings.Cut(c.resources[0].Name, "/")
	writeComments(&b, c.comments)
	// Comments without a resource are about parts of the input that became none.
	writeComments(&b, c.pending)
	fmt.Fprintf(&b, "\ndomain = %s\n", catalog.Quote(domain))
	for _, r := range c.resources {
		r.Name = strings.TrimPrefix(r.Name, domain+"/")
		b.WriteString("\n")
		writeComments(&b, r.comments)
		b.WriteString(r.toml())
	}
	return []byte(b.String())
}

// writeComments writes a line for each comment. Texts quote the input, which may be anything.
func writeComments(b *strings.Builder, comments []string) {
	for _, text := range comments {
		b.WriteString("# " + catalog.OneLine(text) + "\n")
	}
}

// toml is the table of a resource.
func (r *resource) toml() string { return "[[resource]]\n" + lines("", reflect.ValueOf(*r)) }

// key of a table with its value.
type key struct {
	name  string
	value reflect.Value
}

// keysOf lists the keys of a map, or the fields of a struct that are set.
func keysOf(table reflect.Value) (keys []key) {
	if table.Kind() == reflect.Map {
		m := table.Interface().(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			value := reflect.ValueOf(m[name])
			if !fullMatch(`[A-Za-z0-9_-]+`, name) {
				name = catalog.Quote(name)
			}
			keys = append(keys, key{name, value})
		}
		return keys
	}
	for i := range table.NumField() {
		name := table.Type().Field(i).Tag.Get("toml")
		if name != "" && !table.Field(i).IsZero() {
			keys = append(keys, key{name, table.Field(i)})
		}
	}
	return keys
}

// lines writes one key per line, and tables as dotted keys. Tables in lists are inline,
// since the TOML library loses dotted keys below a key that an earlier [[resource]] has
// as a list, and those behind pointers.
func lines(prefix string, table reflect.Value) string {
	var b strings.Builder
	for _, k := range keysOf(table) {
		b.WriteString(keyLines(prefix+k.name, k.value))
	}
	return b.String()
}

// keyLines writes a key with its value.
func keyLines(name string, v reflect.Value) string {
	line := name + " = " + inline(v) + "\n"
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return lines(name+".", v)
	case reflect.Slice:
		isTables := v.Index(0).Kind() == reflect.Struct
		isOneKey := isTables && v.Len() == 1 && len(keysOf(v.Index(0))) == 1
		if isOneKey {
			return lines(name+".", v.Index(0))
		}
		if v.Len() > 1 && isTables {
			return name + " = [\n  " + strings.Join(elements(v), ",\n  ") + ",\n]\n"
		}
	}
	return line
}

// elements of a list, inline.
func elements(list reflect.Value) (all []string) {
	for i := range list.Len() {
		all = append(all, inline(list.Index(i)))
	}
	return all
}

// inline writes a value on one line; a list of one element is the element.
func inline(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return catalog.Quote(v.String())
	case reflect.Pointer:
		return inline(v.Elem())
	case reflect.Slice:
		all := elements(v)
		if len(all) == 1 {
			return all[0]
		}
		return "[" + strings.Join(all, ", ") + "]"
	case reflect.Struct, reflect.Map:
		var keys []string
		for _, k := range keysOf(v) {
			keys = append(keys, k.name+" = "+inline(k.value))
		}
		return "{ " + strings.Join(keys, ", ") + " }"
	}
	return fmt.Sprint(v)
}
