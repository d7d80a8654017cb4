package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// value is a YAML node and its place in the input; nil is an absent one.
type value struct {
	*yaml.Node
	c *conversion
	// parent and key name it in messages: `device 2 ("fuse"): group 1: ` and `count`.
	parent, key string
}

// parse decodes the YAML documents of a text at a place of the input, after
// some lines of it.
func (c *conversion) parse(text, place string, linesBefore int) (documents []*value) {
	// JSON may be indented by tabs, which YAML does not accept.
	text = regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllStringFunc(text, func(indent string) string { return strings.ReplaceAll(indent, "\t", " ") })
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err == nil {
			err = prepare(&n, linesBefore)
		}
		if err == nil { // find anchors that contain themselves, and endless aliases
			err = n.Decode(new(any))
		}
		if err != nil && !errors.As(err, new(*yaml.TypeError)) {
			c.syntaxError(err, text, place, linesBefore)
			return nil
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			documents = append(documents, &value{Node: resolve(n.Content[0]), c: c})
		}
	}
}

// maxKeys limits a mapping, since the library compares each key with each.
const maxKeys = 1000

// prepare makes the line numbers of a node those of the input.
func prepare(n *yaml.Node, linesBefore int) error {
	if n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys {
		return fmt.Errorf("line %d: more than %d keys", n.Line, maxKeys)
	}
	n.Line += linesBefore
	for _, e := range n.Content {
		if err := prepare(e, linesBefore); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the target of an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// linePrefix is the position in messages of the library.
const linePrefix = `^line (\d+): `

func (c *conversion) syntaxError(err error, text, place string, linesBefore int) {
	v := &value{Node: &yaml.Node{Line: linesBefore + 1}, c: c, parent: place}
	if c.templateIn(text, linesBefore) {
		return
	}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(linePrefix).FindStringSubmatch(message); m != nil {
		line, _ := strconv.Atoi(m[1])
		v.Line, message = linesBefore+line, message[len(m[0]):]
	}
	if strings.Contains(text, "[[resource]]") {
		message += ": is it TOML already?"
	}
	v.report("invalid YAML: %s", message)
}

// documents decodes the YAML text in a scalar.
func (v *value) documents() []*value {
	before := v.Line - 1
	if v.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		before++ // the text starts on the next line
	}
	return v.c.parse(v.Value, v.place(), before)
}

// place is the start of messages about the value.
func (v *value) place() string {
	if v.key == "" {
		return v.parent
	}
	return v.parent + v.key + ": "
}

// child is a value below v.
func (v *value) child(n *yaml.Node, key string) *value {
	return &value{Node: resolve(n), c: v.c, parent: v.place(), key: key}
}

// report records an error.
func (v *value) report(format string, args ...any) {
	v.c.problem(v.Line, fmt.Sprintf("line %d: ", v.Line)+v.place()+fmt.Sprintf(format, args...))
}

// differs records a difference that concerns no single resource.
func (v *value) differs(format string, args ...any) {
	v.c.differs("%s", v.place()+fmt.Sprintf(format, args...))
}

// describe describes the value in messages.
func (v *value) describe() string {
	switch {
	case v.null():
		return "null"
	case v.mapping():
		return "a mapping"
	case v.list():
		return "a list"
	}
	return strconv.Quote(v.Value)
}

func (v *value) null() bool    { return v == nil || v.ShortTag() == "!!null" }
func (v *value) scalar() bool  { return !v.null() && v.Kind == yaml.ScalarNode }
func (v *value) mapping() bool { return v != nil && v.Kind == yaml.MappingNode }
func (v *value) list() bool    { return v != nil && v.Kind == yaml.SequenceNode }

// fields lists the values of a mapping in the order of the input, merged ones
// ("<<") included, null ones not.
func (v *value) fields() (fields []*value, err error) {
	if !v.mapping() {
		return nil, fmt.Errorf("%s: want a mapping", v.describe())
	}
	var nodes map[string]yaml.Node
	err = v.Decode(&nodes)
	if types := new(yaml.TypeError); errors.As(err, &types) {
		err = errors.New(regexp.MustCompile(linePrefix).ReplaceAllString(types.Errors[0], ""))
	}
	for key, n := range nodes {
		if f := v.child(&n, key); !f.null() {
			fields = append(fields, f)
		}
	}
	sort.Slice(fields, func(i, j int) bool {
		a, b := fields[i], fields[j]
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.key, b.key)) < 0
	})
	return fields, err
}

// get returns the value of a key in any case.
func (v *value) get(key string) *value {
	fields, _ := v.fields()
	for _, f := range fields {
		if strings.EqualFold(f.key, key) {
			return f
		}
	}
	return nil
}

// has reports whether the value is a mapping with a key.
func (v *value) has(key string) bool { return v.get(key) != nil }

// items lists the elements of a list: those of "devices" are "device 1 ("fuse")".
func (v *value) items() []*value {
	if !v.list() {
		return nil
	}
	element := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(v.key), "s"), "list")
	items := make([]*value, len(v.Content))
	for i, n := range v.Content {
		items[i] = (&value{Node: resolve(n), c: v.c, parent: v.parent}).named(cmp.Or(element, "item"), i+1)
	}
	return items
}

// named is the n-th of its kind, with its name if it has one.
func (v *value) named(kind string, n int) *value {
	copied := *v
	v = &copied
	v.key = fmt.Sprintf("%s %d", kind, n)
	for _, key := range []string{"name", "resourceName", "devicematch"} {
		if name := v.get(key); name.scalar() {
			v.key += fmt.Sprintf(" (%q)", strings.TrimSpace(name.Value))
		}
	}
	return v
}

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
		field, known := target.Type().FieldByNameFunc(func(name string) bool {
			return unicode.IsUpper(rune(name[0])) && strings.EqualFold(name, strings.ReplaceAll(f.key, "-", ""))
		})
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

// set sets the target of a pointer: a string, []string, int, bool, []*value or value.
func (v *value) set(into any) {
	switch into := into.(type) {
	case **value:
		*into = v
	case *[]*value:
		if *into = v.items(); !v.list() {
			v.report("%s: want a list", v.describe())
		}
	case *[]string:
		if !v.list() {
			v.report("%s: want a list of strings", v.describe())
		}
		for _, e := range v.items() {
			if *into = append(*into, e.text()); e.scalar() && strings.TrimSpace(e.Value) == "" {
				v.report("an empty string: want a value")
			}
		}
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

// decodePlain decodes a scalar as if it had no quotes.
func (v *value) decodePlain(into any) bool {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: v.Value}
	return v.scalar() && plain.Decode(into) == nil
}

// maxText limits a path, name or expression: half of the limit of a pattern,
// since escaping may double its length.
const maxText = 256

// text is a string, or any scalar as it is written, without space around it.
// Empty is not set, as in the other plugins.
func (v *value) text() string {
	text := strings.TrimSpace(v.Value)
	switch {
	case !v.scalar():
		v.report("%s: want a string", v.describe())
	case len(text) > maxText:
		v.report("%.20q... is too long: want at most %d bytes", text, maxText)
	case strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text):
		v.report("%q: want printable characters", v.Value)
	default:
		return text
	}
	return ""
}
