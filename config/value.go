package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is one TOML value and its position.
type value struct {
	r *reader
	// node has the value. Its position is the position of the nearest value above if the text does not
	// have the key.
	*node
	source *source
	// above is the table or list that contains the value. It is nil at the top of a file.
	above *value
	// name is the key of the value in a table.
	name string
	// path is the dotted key of the value in the language: resource.match.pci.
	path string
	// place is the value in messages: `resource 2 ("gpu"): container.path`. separator is what comes between
	// the place and the name of a key.
	place     string
	separator string
	// describes is set if there is no text: see schema.
	describes form
}

// fullPlace returns the place of v with its file, for messages that are not about the text: what a
// match selects on a host.
func (v value) fullPlace() string {
	return v.source.name + ": " + v.place
}

// dotted returns the dotted key of a name below a path, which is empty at the top.
func dotted(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// inside returns a value inside of the table or list v, with its place.
func (v value) inside(n *node) value {
	return value{
		r:      v.r,
		node:   n,
		source: v.source,
		above:  &v,
		path:   v.path,
		place:  v.place,
	}
}

// child returns the value of a key of the table v.
// A missing key is a value without raw, so that a problem of it can be reported.
func (v value) child(name string) value {
	n := v.table()[name]
	if n == nil {
		n = &node{at: v.at}
	}
	child := v.inside(n)
	child.name = name
	child.path = dotted(v.path, name)
	child.place += v.separator + tomlKey(name)
	child.separator = "."
	return child
}

// key returns the name of a key of the table v, as a value of its own. Its position is the position of
// the key, and its place the place of v, because messages quote it.
func (v value) key(name string) value {
	return v.inside(&node{at: v.child(name).at, raw: name})
}

// item returns element i of the list v, from 0.
func (v value) item(i int, n *node) value {
	item := v.inside(n)
	item.place += " " + strconv.Itoa(i+1)
	// "match 2: glob" and not "match 2.glob".
	item.separator = ": "
	return item
}

// has reports whether the table v has a key.
// Only the exact spelling counts.
func (v value) has(name string) bool {
	_, ok := v.table()[name]
	return ok
}

// userKeys iterates over the arbitrary keys of the table v, sorted by name. want describes a valid
// table, and what its keys, for messages. A key of the language that probably belongs to a table
// around v is reported instead, unless what is empty. If v is not a table, it reports that and has
// no keys.
func (v value) userKeys(want, what string) iter.Seq2[string, value] {
	if v.table() == nil {
		v.mistyped("a table " + want)
	}
	return func(yield func(string, value) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.table())) {
			// After a header such as [resource.container.env], the author may have gone on with
			// keys of the resource. They would silently become environment variables.
			above, isMisplaced := v.misplaced(name)
			if what != "" && isMisplaced {
				text := fmt.Sprintf("%s is a key of %s, not %s", quote(name), tableName(above.path), what)
				v.key(name).report(text, strings.TrimPrefix(v.headerHint(above), ": "))
				continue
			}
			if !yield(name, v.child(name)) {
				return
			}
		}
	}
}

// misplaced returns the table around v to which a key probably belongs: the table has such a key
// in the language, and the text has none there or has a table here.
func (v value) misplaced(name string) (above value, ok bool) {
	above, ok = v.enclosing(name)
	// Dotted keys and inline tables say to which table each key belongs. Any key is right there.
	if !ok || !v.hasHeader {
		return above, false
	}
	// A user's own key may have the name of a key of the language. It is not misplaced if the table
	// above has that key as well, unless its value here is a table.
	isTable := v.child(name).table() != nil
	return above, isTable || !above.has(name)
}

// isEmpty reports whether v is a table without keys, or a list without elements.
func (v value) isEmpty() bool {
	if keys := v.table(); keys != nil {
		return len(keys) == 0
	}
	items, isList := v.list()
	return isList && len(items) == 0
}

// rule is a rule that a text violates. It continues a sentence that begins with the text.
type rule struct{ text, hint string }

func (r *rule) Error() string { return r.text }

// broken returns a rule that a text violates, maybe with a hint.
func broken(text string, hint ...string) error {
	return &rule{text, strings.Join(hint, "")}
}

// report records a problem of v, maybe with a hint.
func (v value) report(text string, hint ...string) {
	v.r.report(v.problem(text, hint...))
}

// violates reports the rule that a text of v violates, if there is one.
func (v value) violates(text string, violated error) bool {
	if violated == nil {
		return false
	}
	v.reportRule(quote(text)+" ", violated)
	return true
}

// reportRule reports a rule that continues a text.
func (v value) reportRule(text string, violated error) {
	hint := ""
	var r *rule
	if errors.As(violated, &r) {
		hint = r.hint
	}
	v.report(text+violated.Error(), hint)
}

// problem returns a problem of v.
func (v value) problem(text string, hint ...string) Problem {
	p := v.source.problem(v.at, text, strings.Join(hint, ""))
	p.Place = v.place
	return p
}

// mistyped reports that v has the wrong type. want describes the valid values.
func (v value) mistyped(want string, hint ...string) {
	v.report(typeName(v.raw)+": want "+want, hint...)
}

// typeName describes a TOML value by its type, and short values by the value as well.
func typeName(raw any) string {
	switch x := raw.(type) {
	case string:
		return quote(x) + " is a string"
	case int64:
		return fmt.Sprintf("%d is an integer", x)
	case float64:
		return fmt.Sprintf("%g is a float", x)
	case bool:
		return fmt.Sprintf("%t is a boolean", x)
	case time.Time:
		return "found a date or time"
	case map[string]*node:
		return "found a table"
	default:
		return "found a list"
	}
}

// decimal returns an integer as a string, so that one parser accepts both notations, and any other value
// as it is. It is for values that are decimal by nature, unlike hexadecimal IDs.
func (v value) decimal() value {
	if n, isInt := v.raw.(int64); isInt {
		v.node = &node{at: v.at, raw: strconv.FormatInt(n, 10)}
	}
	return v
}

// items returns the elements of v. A value that is not a list counts as a list of one.
// This is how a key accepts both "a" and ["a", "b"].
func (v value) items() []value {
	items, isList := v.list()
	if !isList {
		return []value{v}
	}
	out := make([]value, len(items))
	for i, n := range items {
		out[i] = v.item(i, n)
	}
	return out
}

// tables reads v as a list of tables. A table counts as a list of one. example is a valid table.
func (v value) tables(example string) []value {
	if v.table() != nil {
		return []value{v.item(0, v.node)}
	}
	var all []value
	for _, e := range v.items() {
		if e.isTable(example) {
			all = append(all, e)
		}
	}
	return all
}

// isTable reports whether v is a table, or describes one. If not, it records a problem.
func (v value) isTable(example string) bool {
	if v.table() == nil && v.describes == nil {
		v.mistyped("a table such as " + example)
		return false
	}
	return true
}

// checked reads v as a string. check returns the rule that the string violates. The result is empty if v is
// invalid. A NUL is never valid: neither environments nor paths can contain one (execve(2), open(2)).
func (v value) checked(want string, check func(s string) error) string {
	s, isString := v.raw.(string)
	if !isString {
		v.mistyped(want)
		return ""
	}
	if strings.Contains(s, "\x00") {
		v.report(quote(s) + " has a NUL character, which is not allowed")
		return ""
	}
	if v.violates(s, check(s)) {
		return ""
	}
	return s
}

// integer reads v as an integer from lo to hi. It returns lo if v is invalid.
func (v value) integer(lo, hi int64) int64 {
	want := fmt.Sprintf("an integer from %d to %d", lo, hi)
	// A float such as 1.0 is not an integer in TOML.
	n, ok := v.raw.(int64)
	if !ok {
		v.mistyped(want)
		return lo
	}
	if n < lo || n > hi {
		v.report(fmt.Sprintf("%d is out of range: want %s", n, want))
		return lo
	}
	return n
}

// boolean reads v as a boolean. want describes the valid values. It returns false if v is invalid.
func (v value) boolean(want string) bool {
	b, ok := v.raw.(bool)
	if !ok {
		v.mistyped(want)
	}
	return b
}

// word reads v as one of some words. It returns an empty string if v is invalid.
func word[T ~string](v value, words []T) T {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	want := "one of " + list(names)
	if len(names) == 1 {
		want = quote(names[0])
	}
	return T(v.checked(want, func(s string) error {
		if slices.Contains(names, s) {
			return nil
		}
		return broken("is not "+want, suggestion(s, names))
	}))
}

// duration reads v as a duration of at least least, such as the examples. It returns least if v is
// invalid.
// Units are the units of package time.
func (v value) duration(least time.Duration, examples string) time.Duration {
	// time.Duration formats a minute as "1m0s", and people write "1m".
	shortest := quote(strings.TrimSuffix(least.String(), "0s"))
	want := fmt.Sprintf("of at least %s, such as %s", shortest, examples)
	duration := least
	v.checked("a duration "+want, func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return broken("is not a duration: want a duration "+want, `the units are "s", "m" and "h"`)
		}
		if d < least {
			return broken("is too short: want at least " + shortest)
		}
		duration = d
		return nil
	})
	return duration
}

// literal reads v as a string without variables.
// ok is false if v is invalid.
func (v value) literal(want string) (text string, ok bool) {
	v.checked(want, func(s string) error {
		parsed, err := parseText(s)
		if err != nil {
			return err
		}
		if len(parsed.Vars()) > 0 {
			return broken("has a variable, which is not allowed here", `write "$${" for a literal "${"`)
		}
		text = parsed.String()
		ok = true
		return nil
	})
	return text, ok
}

// literals reads v as a string without variables or a list of such strings.
func (v value) literals(want string) []string {
	var all []string
	for _, e := range v.items() {
		if s, ok := e.literal(want); ok {
			all = append(all, s)
		}
	}
	return all
}

// tomlKey formats a key as TOML writes it: in quotes if necessary.
func tomlKey(name string) string {
	// A long key is shortened like a value, which only quotes can show.
	isBare := consists(name, alnum+"_-")
	if isBare && len(name) <= longestQuote {
		return name
	}
	return quote(name)
}
