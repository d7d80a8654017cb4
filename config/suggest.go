package config

import (
	"fmt"
	"slices"
	"strings"
)

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
	path := v.path()
	if above, ok := v.enclosing(name); ok {
		return fmt.Sprintf("%q is a key of %s: %s", name, tableName(above), v.headerHint(above))
	}
	if below := v.w.language().at(path).below(name); len(below) > 0 {
		if len(path) == 0 {
			return quote(name) + " belongs in a resource: write it below a line [[resource]]"
		}
		return didYouMean(below...)
	}
	if n != "" {
		return didYouMean(n)
	}
	if all := v.w.language().find(name); len(all) > 0 {
		return quote(name) + " is a key of " + tableName(all[0])
	}
	return v.w.once("the keys here are " + list(known))
}

// enclosing is the nearest table around v that has a key.
func (v value) enclosing(name string) (path []string, ok bool) {
	path = v.path()
	for n := len(path) - 1; n >= 0; n-- {
		if slices.Contains(v.w.language().at(path[:n]).names, name) {
			return path[:n], true
		}
	}
	return nil, false
}

// misplaced reports whether name, a key of the user's own in the table v, is a key
// of a table around it. want is what it has to be.
func (v value) misplaced(name, want string) bool {
	above, ok := v.enclosing(name)
	if ok {
		v.key(name).report(quote(name)+" is a key of "+tableName(above)+": want "+want, v.headerHint(above))
	}
	return ok
}

// around is the table n keys below the top that v is in.
func (v value) around(n int) value {
	for len(v.path()) > n {
		v = *v.above
	}
	return v
}

// headerHint explains the trap of TOML's headers, after which a key of the
// table above goes to the table v.
func (v value) headerHint(above []string) string {
	if len(above) == 0 {
		return "write it above the first [[resource]]"
	}
	path := v.path()
	return fmt.Sprintf("after a [%s] header every key belongs to %s; write dotted keys (%s.KEY = ...) instead of headers",
		strings.Join(path, "."), path[len(path)-1], strings.Join(path[1:], "."))
}

// at describes the table at the end of a path, with no keys where there is none.
func (s *schema) at(path []string) *schema {
	for _, k := range path {
		if s = s.tables[k]; s == nil {
			return &schema{}
		}
	}
	return s
}

// find lists the tables at and below s that have a key, as paths from s, in
// the order of the language.
func (s *schema) find(name string) (paths [][]string) {
	if slices.Contains(s.names, name) {
		paths = append(paths, nil)
	}
	for _, k := range s.names {
		if sub := s.tables[k]; sub != nil {
			for _, path := range sub.find(name) {
				paths = append(paths, append([]string{k}, path...))
			}
		}
	}
	return paths
}

// below lists the dotted keys from s that end in name: of those that do, the
// ones with the fewest parts.
func (s *schema) below(name string) (dotted []string) {
	parts := 0
	for _, path := range s.find(name) {
		// What an exclude has a match has too.
		if len(path) == 0 || path[0] == "exclude" || parts > 0 && len(path) > parts {
			continue
		}
		if len(path) < parts {
			dotted = nil
		}
		parts = len(path)
		dotted = append(dotted, strings.Join(append(path, name), "."))
	}
	return dotted
}

// tableName is how messages call a table.
func tableName(path []string) string {
	switch len(path) {
	case 0:
		return "the top level"
	case 1:
		return path[0]
	default:
		return strings.Join(path[1:], ".")
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
