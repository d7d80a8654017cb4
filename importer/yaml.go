package importer

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// value is a node of a YAML document, and where it is.
type value struct {
	im   *importing
	node *yaml.Node
	// before is how many lines of the file are before the text that the node
	// is part of.
	before int
	// place is how messages speak of it: `device 2 ("fuse"): group 1`.
	place string
}

// maxDepth bounds how deep aliases, merges and texts in texts are followed.
const maxDepth = 8

// documents parses a text of one or more YAML documents.
func (im *importing) documents(text string, before int, place string) []value {
	var out []value
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			if place != "" {
				place += ": "
			}
			im.problems = append(im.problems, fmt.Sprintf("%s: %s%s", im.file, place, syntaxError(err, before)))
			return nil
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			out = append(out, value{im: im, node: n.Content[0], before: before, place: place}.resolved())
		}
	}
}

// syntaxError is an error of the YAML library with the line of the file.
func syntaxError(err error, before int) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ":"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				return fmt.Sprintf("line %d: not YAML:%s", n+before, what)
			}
		}
	}
	return "not YAML: " + text
}

// embedded parses the text that a scalar is.
func (v value) embedded(place string) []value {
	before := v.before + v.node.Line - 1
	if v.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		before++ // the text begins in the next line
	}
	return v.im.documents(v.node.Value, before, place)
}

// resolved is what an alias stands for.
func (v value) resolved() value {
	for depth := 0; v.node.Kind == yaml.AliasNode && depth < maxDepth; depth++ {
		v.node = v.node.Alias
	}
	return v
}

// at is v under another place.
func (v value) at(place string) value {
	if v.place != "" && place != "" {
		place = v.place + ": " + place
	}
	v.place = place
	return v
}

// report records what is wrong with v.
func (v value) report(rule string) {
	line := fmt.Sprintf("%s: line %d: ", v.im.file, v.before+v.node.Line)
	if v.place != "" {
		line += v.place + ": "
	}
	v.im.problems = append(v.im.problems, line+rule)
}

// what names a value in a message.
func (v value) what() string {
	switch {
	case v.node.Kind == yaml.MappingNode:
		return "a mapping"
	case v.node.Kind == yaml.SequenceNode:
		return "a list"
	case v.null():
		return "nothing"
	}
	return strconv.Quote(v.node.Value)
}

func (v value) null() bool {
	return v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null"
}

func (v value) scalar() bool  { return v.node.Kind == yaml.ScalarNode && !v.null() }
func (v value) mapping() bool { return v.node.Kind == yaml.MappingNode }
func (v value) list() bool    { return v.node.Kind == yaml.SequenceNode }

// field is a key of a mapping with its value.
type field struct {
	key   string
	value value
}

// fields lists the keys of a mapping in order; keys that are merged in with
// "<<" come where the mapping has none of its own.
func (v value) fields() []field { return v.mergedFields(maxDepth) }

func (v value) mergedFields(depth int) []field {
	var own, merged []field
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, val := v.node.Content[i], v
		val.node = v.node.Content[i+1]
		val = val.resolved()
		if key.Value != "<<" || key.ShortTag() != "!!merge" {
			own = append(own, field{key.Value, val})
			continue
		}
		from := []value{val}
		if val.list() {
			from = val.items()
		}
		for _, m := range from {
			if m.mapping() && depth > 0 {
				merged = append(merged, m.mergedFields(depth-1)...)
			}
		}
	}
	for _, m := range merged {
		if !hasField(own, m.key) {
			own = append(own, m)
		}
	}
	return own
}

func hasField(fields []field, key string) bool {
	for _, f := range fields {
		if f.key == key {
			return true
		}
	}
	return false
}

// items lists the elements of a list.
func (v value) items() []value {
	if !v.list() {
		return nil
	}
	out := make([]value, 0, len(v.node.Content))
	for _, n := range v.node.Content {
		e := v
		e.node = n
		out = append(out, e.resolved())
	}
	return out
}

// get is the value of a key, compared as fold says: decoders of Go take keys
// whatever their case.
func (v value) get(key string, fold bool) (value, bool) {
	if !v.mapping() {
		return value{}, false
	}
	for _, f := range v.fields() {
		if (f.key == key || fold && strings.EqualFold(f.key, key)) && !f.value.null() {
			return f.value, true
		}
	}
	return value{}, false
}

// reader gives the meaning of a key; where it is nil the key is known and
// means nothing here.
type reader = func(value)

// readKeys calls the reader of each key of the mapping v. Keys that have none
// are given to unknown.
func (v value) readKeys(fold bool, readers map[string]reader, unknown func(field)) {
	if !v.mapping() {
		v.report(v.what() + ": want a mapping")
		return
	}
	seen := make(map[string]bool)
	for _, f := range v.fields() {
		name, read, known := f.key, readers[f.key], false
		if read != nil {
			known = true
		} else if fold {
			for n, r := range readers {
				if strings.EqualFold(n, f.key) {
					name, read, known = n, r, true
				}
			}
		}
		switch {
		case !known:
			unknown(f)
		case seen[name]:
			f.value.at(name).report("is there twice: want it once")
		default:
			seen[name] = true
			if !f.value.null() {
				read(f.value.at(name))
			}
		}
	}
}

// maxText is how long a path, a name or an expression may be: half of what the
// language takes for a pattern, in which each character may need a second one.
const maxText = 256

// text is v as text, as it is written there but for spaces around it. It is
// empty where v is, which the other programs take for not set.
func (v value) text(want string) string {
	text := strings.TrimSpace(v.node.Value)
	switch {
	case !v.scalar():
		v.report(v.what() + ": want " + want)
		return ""
	case len(text) > maxText:
		v.report(fmt.Sprintf("%.20q... is too long: want at most %d bytes", text, maxText))
		return ""
	case text == "" && v.node.Value != "" || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text):
		v.report(fmt.Sprintf("%q: want %s", v.node.Value, want))
		return ""
	}
	return text
}

// number is v as an integer of at least 0.
func (v value) number() int {
	if v.scalar() {
		if n, err := strconv.ParseUint(v.node.Value, 10, 31); err == nil {
			return int(n)
		}
	}
	v.report(v.what() + ": want a number such as 10")
	return 0
}

// boolean is v as true or false.
func (v value) boolean() bool {
	if v.scalar() {
		switch strings.ToLower(v.node.Value) {
		case "true", "yes", "on":
			return true
		case "false", "no", "off":
			return false
		}
	}
	v.report(v.what() + ": want true or false")
	return false
}

// texts is v as a list of texts.
func (v value) texts(want string) []string {
	if !v.list() {
		v.report(v.what() + ": want a list of " + want)
		return nil
	}
	var out []string
	for _, e := range v.items() {
		switch s := e.text(want); {
		case s != "":
			out = append(out, s)
		case e.scalar() && e.node.Value == "":
			e.place = v.place
			e.report("an empty string: want " + want)
		}
	}
	return out
}
