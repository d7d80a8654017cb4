package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Problem is one problem of a configuration, or a note about it. The names of its JSON fields are
// an API.
type Problem struct {
	// File, Line and Column are the position of the key, from 1. The column counts
	// characters. They are empty and 0 for a problem without a file or key.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Place is the resource and the key: `resource 2 ("gpu"): count`. It is empty at the top
	// level of a file.
	Place string `json:"place"`
	// Text is the value and the rule that it violates.
	Text string `json:"text"`
	// Hint is how to fix the problem. It is empty if that is unknown.
	Hint string `json:"hint"`
}

// Position returns the position of the key as far as it is known: "gpu.toml:3:12".
func (p Problem) Position() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Message returns the place and the text.
func (p Problem) Message() string {
	if p.Place == "" {
		return p.Text
	}
	return p.Place + ": " + p.Text
}

// String formats the problem as one line, and a second line with the hint.
func (p Problem) String() string {
	s := p.Message()
	if at := p.Position(); at != "" {
		s = at + ": " + s
	}
	if p.Hint != "" {
		s += "\n  hint: " + p.Hint
	}
	return s
}

// Locate returns a problem that matching has found with the position of its resource. A problem of no
// resource stays as it is.
func (c *Config) Locate(p Problem) Problem {
	for _, start := range c.starts {
		place, isInFile := strings.CutPrefix(p.Place, start.File+": ")
		isOfResource := place == start.Place || strings.HasPrefix(place, start.Place+": ")
		if isInFile && isOfResource {
			start.Place = place
			start.Text = p.Text
			start.Hint = p.Hint
			return start
		}
	}
	return p
}

// Problems are the problems of a configuration in the order of files and lines: the first 100, and
// the total number if there are more.
type Problems []Problem

// Error returns a line for each problem and each hint.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// problems returns an error with the first of n problems in order, or nil if there are none. It sorts the
// list. Files have one directory, so that their paths have the order of their names.
func problems(list []Problem, n int) error {
	// n also counts problems that were dropped, so that it decides whether there is an error.
	if n == 0 {
		return nil
	}
	order.Stable(list, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	// Two checks may report the same problem.
	list = slices.Compact(list)
	if len(list) > maxProblems {
		// The last element has no file. It tells people and programs that the list is incomplete.
		rest := fmt.Sprintf("%d problems in total: only the first %d are reported", n, maxProblems)
		list = append(list[:maxProblems], Problem{Text: rest})
	}
	return Problems(list)
}

// longestQuote is the number of bytes of a value that a message repeats. A value may be as long as
// its file, and many messages may contain it.
const longestQuote = 80

// quote returns s in quotes, shortened if it is long.
func quote(s string) string {
	if len(s) <= longestQuote {
		return fmt.Sprintf("%q", s)
	}
	cut := longestQuote
	// A cut within a character would appear as an escape.
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q...", s[:cut])
}

// list returns names in quotes, separated by commas.
func list(names []string) string { return joined(names, ", ") }

// didYouMean returns a hint that suggests names.
func didYouMean(names ...string) string { return "did you mean " + joined(names, " or ") + "?" }

// joined quotes names and joins them.
func joined(names []string, separator string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, separator)
}

// unknownHint returns a hint for a key that the table v does not have in the language. known are
// the keys that it has.
func (v value) unknownHint(name string, known []string) string {
	if same := keysElsewhere[strings.ToLower(name)]; slices.Contains(known, same) {
		return didYouMean(same)
	}
	similar, edits := nearest(strings.ToLower(name), known)
	tables := v.r.tablesWith(name)
	// A key of another table and a typing error may both be meant. One wrong letter is more likely
	// than a wrong table, but two or three are not.
	isTypingError := edits <= 1 || len(tables) == 0
	if similar != "" && isTypingError {
		return didYouMean(similar)
	}
	if len(tables) == 0 {
		return "the keys of this table are " + list(known)
	}
	above, isAround := v.enclosing(name)
	if isAround {
		return fmt.Sprintf("%q is a key of %s", name, tableName(above.path)) + v.headerHint(above)
	}
	return fmt.Sprintf("%q is a key of %s", name, strings.Join(tables, ", "))
}

// tablesWith returns the tables of the language that have a key.
func (r *reader) tablesWith(name string) []string {
	var tables []string
	for _, key := range r.language() {
		path, hasKey := strings.CutSuffix("."+key, "."+name)
		path = strings.TrimPrefix(path, ".")
		// exclude has the same keys as match.
		isExclude := strings.HasPrefix(path+".", "resource.exclude.")
		if hasKey && !isExclude {
			tables = append(tables, tableName(path))
		}
	}
	return tables
}

// keysElsewhere are names of sysfs, of Kubernetes and of other device plugins in lower case, with the keys
// of the same meaning.
var keysElsewhere = map[string]string{
	"path":          "glob",
	"paths":         "glob",
	"devicematch":   "glob",
	"vid":           "id",
	"pid":           "id",
	"vendor":        "id",
	"product":       "id",
	"idvendor":      "id",
	"idproduct":     "id",
	"replicas":      "count",
	"maxdevices":    "count",
	"nummaxdevices": "count",
	"resourcename":  "name",
	"resource":      "name",
	"source":        "path",
	"src":           "path",
	"mountpath":     "container_path",
	"target":        "container_path",
	"destination":   "container_path",
	"dst":           "container_path",
}

// enclosing returns the nearest table around v that has a key in the language.
func (v value) enclosing(name string) (above value, ok bool) {
	for !ok && v.above != nil {
		// v is a copy, so that the caller keeps its value.
		v = *v.above
		ok = slices.Contains(v.r.language(), dotted(v.path, name))
	}
	return v, ok
}

// headerHint continues a hint about a key of the table above that is in v: after a TOML header, every
// following key belongs to its table.
func (v value) headerHint(above value) string {
	if above.path == "" {
		return ": write it above the first [[resource]]"
	}
	if !v.hasHeader {
		return ""
	}
	table := tableName(v.path)
	return fmt.Sprintf(": after a [%s] header every key belongs to %s; write dotted keys (%s.KEY = ...) instead of headers",
		v.path, table, table)
}

// tableName names a table in messages.
func tableName(path string) string {
	if path == "" {
		return "the top level"
	}
	return strings.TrimPrefix(path, "resource.")
}

// nearest returns the name that a misspelled name probably means, and how many letters differ. It accepts
// one edit for every three letters, at most three edits, and abbreviations. The name is empty if there is
// none.
func nearest(name string, names []string) (best string, edits int) {
	edits = max(1, min(len(name)/3, 3))
	for _, n := range names {
		rest, isPrefix := strings.CutPrefix(n, name)
		isAbbreviation := isPrefix && len(name) > 2 && !strings.Contains(rest, ".")
		if isAbbreviation {
			return n, len(rest)
		}
		// The difference in length is the least distance.
		longer := len(n) - len(name)
		if longer > edits || -longer > edits {
			continue // cheaper than the distance
		}
		distance := pattern.Distance(name, n)
		isNearer := best == "" || distance < edits
		if distance <= edits && isNearer {
			best = n
			edits = distance
		}
	}
	return best, edits
}

// suggestion returns a hint with the name that a misspelled name probably means, or an empty string.
func suggestion(name string, names []string) string {
	similar, _ := nearest(strings.ToLower(name), names)
	if similar == "" {
		return ""
	}
	return didYouMean(similar)
}
