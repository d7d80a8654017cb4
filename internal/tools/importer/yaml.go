package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/order"
)

// Nodes of YAML are used instead of decoded values: they have the line of each value for
// messages, and the text of each scalar as it is written.

// value is a YAML node and its place in the input; nil is an absent value.
type value struct {
	*yaml.Node
	c *conversion
	// parent and key name the value in messages: `device 2 ("fuse"): group 1: ` and
	// `count`.
	parent string
	key    string
}

// parse decodes the YAML documents of a text at a place of the input, after
// some lines of it.
func (c *conversion) parse(text, place string, linesBefore int) (documents []*value) {
	decoder := yaml.NewDecoder(strings.NewReader(untab(text)))
	for {
		var n yaml.Node
		err := decodeNode(decoder, &n, linesBefore)
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err != nil {
			c.syntaxError(err, text, place, linesBefore)
			return nil
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			documents = append(documents, &value{Node: resolve(n.Content[0]), c: c})
		}
	}
}

// untab replaces the tabs of indentation, which JSON may have and YAML does not accept.
func untab(text string) string {
	indentation := regexp.MustCompile(`(?m)^[ \t]+`)
	return indentation.ReplaceAllStringFunc(text, func(indent string) string {
		return strings.ReplaceAll(indent, "\t", " ")
	})
}

// decodeNode decodes one document.
func decodeNode(decoder *yaml.Decoder, n *yaml.Node, linesBefore int) error {
	if err := decoder.Decode(n); err != nil {
		return err
	}
	if err := prepare(n, linesBefore); err != nil {
		return err
	}
	// Decoding finds anchors that contain themselves and aliases without end. Errors of
	// types do not matter: a mapping may have a list as a key.
	err := n.Decode(new(any))
	if errors.As(err, new(*yaml.TypeError)) {
		return nil
	}
	return err
}

// maxKeys limits a mapping, since the library compares each key with each other key.
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

// linePrefix matches the position in messages of the library.
const linePrefix = `^line (\d+): `

// syntaxError reports a text that is not YAML, at the line of the input. Templates get a
// message of their own: their syntax errors are meaningless.
func (c *conversion) syntaxError(err error, text, place string, linesBefore int) {
	if c.templateIn(text, linesBefore) {
		return
	}
	v := &value{
		Node:   &yaml.Node{Line: linesBefore + 1},
		c:      c,
		parent: place,
	}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(linePrefix).FindStringSubmatch(message); m != nil {
		line, _ := strconv.Atoi(m[1])
		v.Line = linesBefore + line
		message = message[len(m[0]):]
	}
	if strings.Contains(text, "[[resource]]") {
		message += ": is it TOML already?"
	}
	v.report("invalid YAML: %s", message)
}

// documents decodes the YAML text in a scalar.
func (v *value) documents() []*value {
	return v.c.parse(v.Value, v.place(), v.firstLine()-1)
}

// firstLine is the line of the input with the first line of a scalar's text: a block scalar
// starts on the line after its "|".
func (v *value) firstLine() int {
	if v.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return v.Line + 1
	}
	return v.Line
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
	return &value{
		Node:   resolve(n),
		c:      v.c,
		parent: v.place(),
		key:    key,
	}
}

// report records an error.
func (v *value) report(format string, args ...any) {
	line := fmt.Sprintf("line %d: ", v.Line)
	v.c.problem(v.Line, line+v.place()+fmt.Sprintf(format, args...))
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

// null reports whether the value is absent or null, which other plugins treat alike.
func (v *value) null() bool { return v == nil || v.ShortTag() == "!!null" }

// scalar reports whether the value is a text, a number or a boolean.
func (v *value) scalar() bool { return !v.null() && v.Kind == yaml.ScalarNode }

// mapping reports whether the value is a mapping.
func (v *value) mapping() bool { return v != nil && v.Kind == yaml.MappingNode }

// list reports whether the value is a list.
func (v *value) list() bool { return v != nil && v.Kind == yaml.SequenceNode }

// fields lists the values of a mapping in the order of the input, including merged values
// ("<<") and without null.
func (v *value) fields() (fields []*value, err error) {
	if !v.mapping() {
		return nil, fmt.Errorf("%s: want a mapping", v.describe())
	}
	var nodes map[string]yaml.Node
	err = v.Decode(&nodes)
	if types := new(yaml.TypeError); errors.As(err, &types) {
		message := regexp.MustCompile(linePrefix).ReplaceAllString(types.Errors[0], "")
		err = errors.New(message)
	}
	for key, n := range nodes {
		if f := v.child(&n, key); !f.null() {
			fields = append(fields, f)
		}
	}
	order.Sort(fields, compareFields)
	return fields, err
}

// compareFields orders fields by their place. Merged fields have the place of their anchor, and
// one place may have several, so that the key decides at last.
func compareFields(a, b *value) int {
	byLine := cmp.Compare(a.Line, b.Line)
	byColumn := cmp.Compare(a.Column, b.Column)
	return cmp.Or(byLine, byColumn, cmp.Compare(a.key, b.key))
}

// get returns the value of a key in any case, with or without "-", as decode finds it.
func (v *value) get(key string) *value {
	fields, _ := v.fields()
	for _, f := range fields {
		plain := strings.ReplaceAll(f.key, "-", "")
		if strings.EqualFold(f.key, key) || strings.EqualFold(plain, key) {
			return f
		}
	}
	return nil
}

// has reports whether the value is a mapping with a key.
func (v *value) has(key string) bool { return v.get(key) != nil }

// elementNames are the names of the elements of lists in messages, by the lists' key in
// lower case, where it is not the key without "s".
var elementNames = map[string]string{
	"":                "item",
	"resourcelist":    "resource",
	"configlist":      "resource",
	"entries":         "entry",
	"pcihostdevices":  "PCI device",
	"mediateddevices": "mediated device",
	"usbhostdevices":  "USB device",
	"volumemounts":    "volume mount",
}

// items lists the elements of a list: the elements of "devices" are named
// `device 1 ("fuse")`.
func (v *value) items() []*value {
	if !v.list() {
		return nil
	}
	name, ok := elementNames[strings.ToLower(v.key)]
	if !ok {
		name = strings.TrimSuffix(strings.ToLower(v.key), "s")
	}
	items := make([]*value, len(v.Content))
	for i, n := range v.Content {
		item := &value{
			Node:   resolve(n),
			c:      v.c,
			parent: v.parent,
		}
		items[i] = item.named(name, i+1)
	}
	return items
}

// named is the n-th value of its kind, with its name if it has one.
func (v *value) named(kind string, n int) *value {
	copied := *v
	copied.key = fmt.Sprintf("%s %d", kind, n)
	for _, key := range []string{"name", "resourceName", "devicematch"} {
		if name := v.get(key); name.scalar() {
			copied.key += fmt.Sprintf(" (%q)", strings.TrimSpace(name.Value))
		}
	}
	return &copied
}
