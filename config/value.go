package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is one TOML value and its position. Places are formatted for problems only:
// most values are valid.
type value struct {
	r *reader
	// above is the table or list that contains it; nil at the top of a file, which
	// source is then.
	above  *value
	source *source
	// name is its key there, and index its number from 1 in a list.
	name  string
	index int
	// unnamed is set if its place is that of its container: the name of a key itself,
	// or one of several patterns.
	unnamed bool
	// place is set if it does not follow from above.
	place string
	raw   any
	// describes is set without a text: see schema.
	describes *schema
}

// where is the place of v in messages.
func (v value) where() string {
	if v.place != "" || v.above == nil {
		return v.place
	}
	above := v.above.where()
	switch {
	case v.unnamed:
		return above
	case v.index > 0:
		return fmt.Sprintf("%s %d", above, v.index)
	case above == "":
		return tomlKey(v.name)
	case v.above.index > 0:
		return above + ": " + tomlKey(v.name)
	default:
		return above + "." + tomlKey(v.name)
	}
}

// find returns the file of v and its position, or that of the nearest value above.
func (v value) find() (*source, *node) {
	if v.above == nil {
		return v.source, v.source.keys
	}
	src, n := v.above.find()
	i := v.index - 1
	switch {
	case i < 0 && n.keys[v.name] != nil:
		return src, n.keys[v.name]
	case i >= 0 && i < len(n.items) && n.items[i] != nil:
		return src, n.items[i]
	case i >= 0 && i < len(n.elements):
		return src, &node{at: int(n.elements[i])}
	}
	return src, n
}

// fullPlace is the place of v with its file, for messages about its meaning on a host.
func (v value) fullPlace() string {
	src, _ := v.find()
	return src.name + ": " + v.where()
}

// path is the dotted key of v from the top: resource.match.pci.
func (v value) path() string {
	if v.above == nil {
		return ""
	} else if v.index > 0 {
		return v.above.path()
	}
	return strings.TrimPrefix(v.above.path()+"."+v.name, ".")
}

// child is the value of a key of the table v.
func (v value) child(name string) value {
	return value{
		r:     v.r,
		above: &v,
		name:  name,
		raw:   v.keys()[name],
	}
}

// keys of the table v, nil if it is no table.
func (v value) keys() map[string]any {
	keys, _ := v.raw.(map[string]any)
	return keys
}

// key is the name of a key of the table v.
func (v value) key(name string) value {
	return value{
		r:       v.r,
		above:   &v,
		name:    name,
		unnamed: true,
		raw:     name,
	}
}

// item is element i of the list v, from 0.
func (v value) item(i int, raw any) value {
	return value{
		r:     v.r,
		above: &v,
		index: i + 1,
		raw:   raw,
	}
}

// has reports whether the table v has a key.
func (v value) has(name string) bool {
	_, ok := v.keys()[name]
	return ok
}

// lacks reports whether the table v lacks a key in any letter case: a wrong one is
// reported elsewhere.
func (v value) lacks(name string) bool {
	for k := range v.keys() {
		if strings.EqualFold(k, name) {
			return false
		}
	}
	return true
}

// userKeys iterates over the arbitrary keys of the table v, in order. what describes them: a
// key of a table around v is reported instead, unless that has it too or what is empty.
func (v value) userKeys(want, what string) iter.Seq2[string, value] {
	if v.keys() == nil {
		v.mistyped("a table "+want, "")
	}
	return func(yield func(string, value) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.keys())) {
			above, misplaced := v.enclosing(name)
			if what != "" && misplaced && (!above.has(name) || v.child(name).keys() != nil) {
				v.key(name).report(quote(name)+" is a key of "+tableName(above.path())+", not "+what, v.headerHint(above))
			} else if !yield(name, v.child(name)) {
				return
			}
		}
	}
}

// isEmpty reports whether v is a table without keys, or a list without elements.
func (v value) isEmpty() bool {
	items, isList := elements(v.raw)
	return v.keys() != nil && len(v.keys()) == 0 || isList && len(items) == 0
}

// report records a problem of v; hint may be empty.
func (v value) report(text, hint string) { v.r.report(v.problem(text, hint)) }

// note records what is better written otherwise.
func (v value) note(text, hint string) { v.r.notes = append(v.r.notes, v.problem(text, hint)) }

func (v value) problem(text, hint string) report {
	src, n := v.find()
	at := n.at
	if n == src.keys {
		at = noPosition
	}
	return report{source: src, at: at, Problem: Problem{Place: v.where(), Text: text, Hint: hint}}
}

// mistyped reports that v is of the wrong type.
func (v value) mistyped(want, hint string) { v.report(typeName(v.raw)+": want "+want, hint) }

// typeName names the type of a TOML value.
func typeName(raw any) string {
	switch x := raw.(type) {
	case string:
		return quote(x) + " is a string"
	case int64:
		return strconv.FormatInt(x, 10) + " is an integer"
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64) + " is a float"
	case bool:
		return strconv.FormatBool(x) + " is a boolean"
	case time.Time:
		return "found a date or time"
	case map[string]any:
		return "found a table"
	default:
		return "found a list"
	}
}

// elements of a list in any TOML notation.
func elements(raw any) (items []any, ok bool) {
	switch x := raw.(type) {
	case []any:
		return x, true
	case []map[string]any:
		for _, m := range x {
			items = append(items, m)
		}
		return items, true
	}
	return nil, false
}

// items are the elements of v, where any other value is a list of one.
func (v value) items() []value {
	raw, ok := elements(v.raw)
	if !ok {
		return []value{v}
	}
	out := make([]value, len(raw))
	for i := range raw {
		out[i] = v.item(i, raw[i])
	}
	return out
}

// tables reads v as a list of tables, where one table is a list of one. example is a
// table in TOML.
func (v value) tables(example string) (all []value) {
	if v.keys() != nil {
		return []value{v.item(0, v.raw)}
	}
	for _, e := range v.items() {
		if e.isTable(example) {
			all = append(all, e)
		}
	}
	return all
}

// isTable reports whether v is a table; it is a problem if it is not.
func (v value) isTable(example string) bool {
	if v.keys() == nil {
		v.mistyped("a table", "write "+exampleWith(example, v.raw))
		return false
	}
	return true
}

// exampleWith is an example of a table with its paths replaced by the only one of a
// string, or by both of HOST:CONTAINER as for docker.
func exampleWith(example string, raw any) string {
	s, _ := raw.(string)
	if !strings.HasPrefix(s, "/") {
		return example
	}
	paths := strings.Split(s, ":")
	parts := strings.Split(example, `"`)
	for i, n := 1, 0; i < len(parts); i += 2 {
		if strings.HasPrefix(parts[i], "/") {
			parts[i] = paths[min(n, len(paths)-1)]
			n++
		}
	}
	return strings.Join(parts, `"`)
}

// string reads v as a string. It reports other types and strings with a NUL, which no
// environment, path and file of sysfs can contain, and returns false. valid says of a
// number or boolean whether it may be meant as a string.
func (v value) string(want string, valid func(s string) bool) (string, bool) {
	s, ok := v.raw.(string)
	if !ok {
		hint := ""
		switch v.raw.(type) {
		case int64, float64, bool:
			hint = "a string is written in quotes"
			if s := fmt.Sprint(v.raw); valid(s) {
				hint = "write it in quotes: " + quote(s)
			}
		}
		v.mistyped(want, hint)
	} else if strings.Contains(s, "\x00") {
		v.report(quote(s)+" has a NUL character, which is not allowed", "")
		ok = false
	}
	return s, ok
}

// checked reads v as a valid string, otherwise empty.
func (v value) checked(want string, check func(s string) (rule, hint string)) string {
	s, ok := v.string(want, func(s string) bool {
		rule, _ := check(s)
		return rule == ""
	})
	if !ok {
		return ""
	}
	if rule, hint := check(s); rule != "" {
		v.report(quote(s)+" "+rule, hint)
		return ""
	}
	return s
}

// integer reads v as an integer from lo to hi, otherwise lo.
func (v value) integer(lo, hi int64) int64 {
	want := fmt.Sprintf("an integer from %d to %d", lo, hi)
	n, ok := v.raw.(int64)
	if !ok {
		v.mistyped(want, v.unquotedHint("an integer"))
		return lo
	}
	if n < lo || n > hi {
		v.report(fmt.Sprintf("%d is out of range: want %s", n, want), "")
		return lo
	}
	return n
}

// boolean reads v as a boolean, otherwise false; want describes the valid values.
func (v value) boolean(want string) bool {
	b, ok := v.raw.(bool)
	if !ok {
		v.mistyped(want, v.unquotedHint("a boolean"))
	}
	return b
}

func (v value) unquotedHint(what string) string {
	if _, isString := v.raw.(string); isString {
		return what + " is written without quotes"
	}
	return ""
}

// word reads v as one of some words, otherwise empty.
func word[T ~string](v value, words []T) T {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	want := "one of " + list(names)
	if len(names) == 1 {
		want = quote(names[0])
	}
	return T(v.checked(want, func(s string) (rule, hint string) {
		if slices.Contains(names, s) {
			return "", ""
		}
		if n := nearest(strings.ToLower(s), names); n != "" {
			hint = didYouMean(n)
		}
		return "is not " + want, hint
	}))
}

// duration reads v as a duration of at least least, such as the examples; otherwise
// least.
func (v value) duration(least time.Duration, examples string) time.Duration {
	shortest := quote(strings.TrimSuffix(least.String(), "0s"))
	want := fmt.Sprintf("of at least %s, such as %s", shortest, examples)
	duration := least
	v.checked("a duration "+want, func(s string) (rule, hint string) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return "is not a duration: want a duration " + want, `the units are "s", "m" and "h"`
		} else if d < least {
			return "is too short: want at least " + shortest, ""
		}
		duration = d
		return "", ""
	})
	return duration
}

// literal reads v as a string without variables.
func (v value) literal(want string) (text string, ok bool) {
	v.checked(want, func(s string) (rule, hint string) {
		parsed, err := parseText(s)
		if err != nil {
			return err.Error(), ""
		} else if len(parsed.Vars()) > 0 {
			return "has a variable, which is not allowed here", `write "$${" for a literal "${"`
		}
		text = parsed.String()
		ok = true
		return "", ""
	})
	return text, ok
}

// literals reads v as a list of strings without variables, or one.
func (v value) literals(want string) (all []string) {
	for _, e := range v.items() {
		if s, ok := e.literal(want); ok {
			all = append(all, s)
		}
	}
	return all
}

// tomlKey formats a key like TOML, quoted if necessary.
func tomlKey(name string) string {
	if len(name) > longestQuote || !consists(name, alnum+"_-") {
		return quote(name)
	}
	return name
}
