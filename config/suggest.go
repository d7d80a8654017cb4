package config

import (
	"fmt"
	"slices"
	"strings"
)

// find lists the tables at and below s that have a key, as ways from s, in
// the order of the language.
func (s *schema) find(name string) [][]string {
	var found [][]string
	if slices.Contains(s.keys, name) {
		found = append(found, nil)
	}
	for _, k := range s.keys {
		if sub := s.sub[k]; sub != nil {
			for _, way := range sub.find(name) {
				found = append(found, append([]string{k}, way...))
			}
		}
	}
	return found
}

// unknownHint says what may have been meant by a key that the table v does
// not have: known are the keys that it has.
func (v value) unknownHint(name string, known []string) string {
	if lower := strings.ToLower(name); lower != name && slices.Contains(known, lower) {
		return didYouMean(lower) + " keys are written in lower case"
	}
	n := nearest(name, known)
	if n != "" && distance(name, n) == 1 {
		return didYouMean(n)
	}
	if above, ok := v.enclosing(name); ok {
		return fmt.Sprintf("%q is a key of %s: %s", name, tableName(above), v.headerHint(above))
	}
	if below := v.below(name); len(below) > 0 {
		if len(v.keys()) == 0 {
			return quote(name) + " belongs into a resource: write it below a line [[resource]]"
		}
		return didYouMean(below...)
	}
	if n != "" {
		return didYouMean(n)
	}
	if all := v.w.language.find(name); len(all) > 0 {
		return quote(name) + " is a key of " + tableName(all[0])
	}
	if where := strings.Join(v.keys(), "."); !slices.Contains(v.w.listed, where) {
		v.w.listed = append(v.w.listed, where)
		return "the keys here are " + list(known)
	}
	return ""
}

// enclosing is the nearest table around v that has a key.
func (v value) enclosing(name string) (way []string, ok bool) {
	keys := v.keys()
	for n := len(keys) - 1; n >= 0; n-- {
		if s := v.w.language.at(keys[:n]); s != nil && slices.Contains(s.keys, name) {
			return keys[:n], true
		}
	}
	return nil, false
}

// around is the table n keys below the top that v is in.
func (v value) around(n int) value {
	for len(v.keys()) > n {
		v = *v.above
	}
	return v
}

// below lists the dotted keys from v that end in name: of those that do, the
// ones with the fewest parts.
func (v value) below(name string) []string {
	s := v.w.language.at(v.keys())
	if s == nil {
		return nil
	}
	var dotted []string
	parts := 0
	for _, way := range s.find(name) {
		// What an exclude takes a match takes too.
		if len(way) == 0 || way[0] == "exclude" || parts > 0 && len(way) > parts {
			continue
		}
		if len(way) < parts {
			dotted = nil
		}
		parts = len(way)
		dotted = append(dotted, strings.Join(append(way, name), "."))
	}
	return dotted
}

// headerHint explains the trap of TOML's headers, after which a key of the
// table above goes to the table v.
func (v value) headerHint(above []string) string {
	if len(above) == 0 {
		return "write it above the first [[resource]]"
	}
	keys := v.keys()
	return fmt.Sprintf("after a [%s] header every key belongs to %s; write dotted keys (%s.KEY = ...) instead of headers",
		strings.Join(keys, "."), keys[len(keys)-1], strings.Join(keys[1:], "."))
}

// at is the kind of table at the end of a way, nil where there is none.
func (s *schema) at(way []string) *schema {
	for _, k := range way {
		if s == nil {
			return nil
		}
		s = s.sub[k]
	}
	return s
}

// tableName is how messages call a table.
func tableName(way []string) string {
	switch len(way) {
	case 0:
		return "the top level"
	case 1:
		return way[0]
	default:
		return strings.Join(way[1:], ".")
	}
}

func didYouMean(names ...string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return "did you mean " + strings.Join(quoted, " or ") + "?"
}

// nearest is the name that a misspelt one may stand for, or empty: an edit
// for each three letters of it may lie between them.
func nearest(name string, names []string) string {
	best, edits := "", max(1, min(len(name)/3, 3))
	for _, n := range names {
		if d := len(n) - len(name); d > edits || -d > edits {
			continue
		}
		if e := distance(name, n); e <= edits && (best == "" || e < edits) {
			best, edits = n, e
		}
	}
	return best
}

// distance is how many letters have to be added, dropped, replaced or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
