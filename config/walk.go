package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// walk is the state of one validation: what was found wrong so far, and what
// keys have to be compared with that stand elsewhere.
type walk struct {
	problems []Problem
	language *schema
	domain   string
	// undecided says that a missing domain is not worth a message: it may be
	// in what could not be read, or was said to be missing.
	undecided bool
	variables variables
	// alternatives is how many patterns there are so far.
	alternatives int
	// texts with variables of the resource that is being read.
	texts []textUse
}

func newWalk() *walk {
	return &walk{language: topTable.schema(), variables: knownVariables()}
}

// value is one TOML value and where it stands.
type value struct {
	w *walk
	// place as messages give it.
	place string
	// keys is the way from the top to here without indexes: resource, match,
	// pci.
	keys []string
	// element says that this is a file or an element of a list, whose keys
	// follow its place after ": " and not after ".".
	element bool
	raw     any
}

// child is the value of a key of the table v.
func (v value) child(name string) value {
	sep := "."
	if v.element {
		sep = ": "
	}
	m, _ := v.raw.(map[string]any)
	return value{w: v.w, place: v.place + sep + tomlKey(name), keys: append(slices.Clip(v.keys), name), raw: m[name]}
}

// item is element i of the list v, the first being 0.
func (v value) item(i int, raw any) value {
	v.place = fmt.Sprintf("%s %d", v.place, i+1)
	v.element, v.raw = true, raw
	return v
}

// at is v under another place.
func (v value) at(place string) value {
	v.place = place
	return v
}

// of is another value at the same place.
func (v value) of(raw any) value {
	v.raw = raw
	return v
}

// report notes a problem with v; hint may be empty.
func (v value) report(text, hint string) {
	v.w.problems = append(v.w.problems, Problem{Place: v.place, Text: text, Hint: hint})
}

// mistyped reports that v is of the wrong type.
func (v value) mistyped(want, hint string) { v.report(found(v.raw)+": want "+want, hint) }

// found says what a TOML value is.
func found(raw any) string {
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

// elements of a list, whichever way TOML wrote it.
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

// tables is v as a list of tables, where one table is a list of one. main is
// the key that a lone string may be meant for, or empty.
func (v value) tables(main string) []value {
	items, ok := elements(v.raw)
	if _, single := v.raw.(map[string]any); single {
		items, ok = []any{v.raw}, true
	}
	if !ok {
		v.mistyped("a table or a list of tables", tableHint(v.raw, main))
		return nil
	}
	return v.onlyTables(items, main)
}

func tableHint(raw any, main string) string {
	if s, ok := raw.(string); ok && main != "" {
		return fmt.Sprintf("write { %s = %s }", main, quote(s))
	}
	return ""
}

func (v value) onlyTables(items []any, main string) []value {
	var out []value
	for i, raw := range items {
		e := v.item(i, raw)
		if _, ok := raw.(map[string]any); !ok {
			e.mistyped("a table", tableHint(raw, main))
			continue
		}
		out = append(out, e)
	}
	return out
}

// text is v as a string. Without one it reports so and returns false.
func (v value) text(want string) (string, bool) {
	s, ok := v.raw.(string)
	if !ok {
		hint := ""
		switch x := v.raw.(type) {
		case int64:
			hint = fmt.Sprintf("write it in quotes: \"%d\"", x)
		case bool:
			hint = fmt.Sprintf("write it in quotes: \"%t\"", x)
		}
		v.mistyped(want, hint)
	}
	return s, ok
}

// integer is v as an integer from lo to hi, else lo.
func (v value) integer(lo, hi int) int {
	want := fmt.Sprintf("an integer from %d to %d", lo, hi)
	if hi == math.MaxInt32 {
		want = fmt.Sprintf("an integer of at least %d", lo)
	}
	n, ok := v.raw.(int64)
	if !ok {
		hint := ""
		if s, ok := v.raw.(string); ok && s != "" && digits(s) == len(s) {
			hint = "write it without quotes: " + strings.TrimLeft(s[:len(s)-1], "0") + s[len(s)-1:]
		}
		v.mistyped(want, hint)
		return lo
	}
	if n < int64(lo) || n > int64(hi) {
		v.report(fmt.Sprintf("%d is out of range: want %s", n, want), "")
		return lo
	}
	return int(n)
}

// boolean is v as a boolean, else false.
func (v value) boolean() bool {
	b, ok := v.raw.(bool)
	if !ok {
		hint := ""
		if s, _ := v.raw.(string); s == "true" || s == "false" {
			hint = "write it without quotes: " + s
		}
		v.mistyped("true or false", hint)
	}
	return b
}

// oneOf is v as one of the allowed strings, else empty.
func oneOf[T ~string](v value, allowed ...T) T {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	s, ok := v.text("one of " + list(names))
	if !ok {
		return ""
	}
	if !slices.Contains(names, s) {
		hint := ""
		if n := nearest(s, names); n != "" {
			hint = didYouMean(n)
		}
		v.report(quote(s)+" is not one of "+list(names), hint)
		return ""
	}
	return T(s)
}

// table is a kind of table: its keys as data. A new key is one line here and
// a function that reads it into T.
type table[T any] struct{ keys []key[T] }

// key is a key of a table.
type key[T any] struct {
	name string
	read func(v value, into *T)
	// table is the kind of table that the key holds, or holds a list of; nil
	// where it holds values, or where its own keys are the user's.
	table interface{ schema() *schema }
}

func (t table[T]) names() []string {
	names := make([]string, len(t.keys))
	for i, k := range t.keys {
		names[i] = k.name
	}
	return names
}

// readTable reads the keys of the table v into its meaning, in the order of
// the kind's keys, and reports those that it does not have.
func readTable[T any](v value, t table[T], into *T) {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped("a table", "")
		return
	}
	for _, k := range t.keys {
		if _, ok := m[k.name]; ok {
			k.read(v.child(k.name), into)
		}
	}
	names := t.names()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, name) {
			v.report("unknown key "+quote(name), v.unknownHint(name, names))
		}
	}
}

// lacks reports whether the table v has a key in no letter case: a wrong one
// is reported by itself.
func (v value) lacks(name string) bool {
	m, _ := v.raw.(map[string]any)
	for k := range m {
		if strings.EqualFold(k, name) {
			return false
		}
	}
	return true
}

// has reports whether the table v has a key.
func (v value) has(name string) bool {
	m, _ := v.raw.(map[string]any)
	_, ok := m[name]
	return ok
}

// tomlKey writes a key as TOML does: in quotes where it has to be.
func tomlKey(name string) string {
	if len(name) > longestQuote {
		return quote(name)
	}
	for _, r := range name {
		if !(r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return quote(name)
		}
	}
	return cmp.Or(name, `""`)
}
