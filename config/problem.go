package config

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Problem is one problem of a configuration. The names of its JSON fields are an API.
type Problem struct {
	// File, Line and Column of the key, from 1, the column in characters. Empty and 0
	// for a problem without a file or key.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Place is resource and key: `resource 2 ("gpu"): count`; empty for the top level
	// of a file.
	Place string `json:"place"`
	// Text is the value and the rule.
	Text string `json:"text"`
	// Hint is how to fix it; empty if unknown.
	Hint string `json:"hint"`
}

// Position is the position of the key: "gpu.toml:3:12", as far as known.
func (p Problem) Position() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Message is place and text.
func (p Problem) Message() string {
	if p.Place == "" {
		return p.Text
	}
	return p.Place + ": " + p.Text
}

// String formats the problem: a line, and one more for the hint.
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

// Problems are the problems of a configuration, in order of files and lines: at most
// 100, and the number of the others.
type Problems []Problem

// Error has a line for each problem, and one more for each hint.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// report is a problem whose line is not yet known.
type report struct {
	Problem
	source *source
	at     int // offset in its text
	// allowed is the part of --allow that permits it; nil is none.
	allowed func(Allow) bool
}

// noPosition is the offset of a problem of a whole file.
const noPosition = -1

// inOrder sorts reports by position, drops duplicates and fills in files, lines and
// columns.
func inOrder(reports []report) []report {
	sort.SliceStable(reports, func(i, j int) bool {
		a := &reports[i]
		b := &reports[j]
		return cmp.Or(cmp.Compare(a.source.order, b.source.order), cmp.Compare(a.at, b.at)) < 0
	})
	reports = slices.CompactFunc(reports, func(a, b report) bool {
		return a.source == b.source && a.at == b.at && a.Problem == b.Problem
	})
	var before report
	line := 1
	column := 1 // of the previous
	for i := range reports {
		r := &reports[i]
		r.File = r.source.name
		if r.at == noPosition {
			continue
		}
		if r.source != before.source {
			before = report{source: r.source}
			line = 1
			column = 1
		}
		between := r.source.text[before.at:r.at]
		if n := strings.LastIndexByte(between, '\n'); n >= 0 {
			line += strings.Count(between, "\n")
			column = 1
			between = between[n+1:]
		}
		column += utf8.RuneCountInString(between)
		r.Line = line
		r.Column = column
		before.at = r.at
	}
	return reports
}

// problems is an error with the first of n problems, nil if there are none.
func problems(reports []report, n int) error {
	if n == 0 {
		return nil
	}
	var list Problems
	for _, r := range inOrder(reports) {
		if len(list) == maxProblems {
			return append(list, Problem{Text: fmt.Sprintf("%d problems in all: the first %d are reported", n, maxProblems)})
		}
		list = append(list, r.Problem)
	}
	return list
}

// longestQuote is how many bytes of a value a message repeats: a value may be as long
// as its file, and many messages may contain it.
const longestQuote = 80

// quote quotes s, shortened if it is long.
func quote(s string) string {
	if len(s) <= longestQuote {
		return fmt.Sprintf("%q", s)
	}
	cut := longestQuote
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q...", s[:cut])
}

// list quotes names, separated by commas.
func list(names []string) string { return joined(names, ", ") }

func didYouMean(names ...string) string { return "did you mean " + joined(names, " or ") + "?" }

// joined quotes names and joins them.
func joined(names []string, separator string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, separator)
}

// unknownHint suggests a key for one that the table v does not have: known are its
// keys.
func (v value) unknownHint(name string, known []string) string {
	if lower := strings.ToLower(name); lower != name && slices.Contains(known, lower) {
		return didYouMean(lower) + " keys are written in lower case"
	}
	if n := keyElsewhere(name); slices.Contains(known, n) {
		return didYouMean(n)
	}
	similar := nearest(name, known)
	tables := v.tablesWith(name)
	if similar != "" && (len(tables) == 0 || pattern.Distance(name, similar) == 1) {
		return didYouMean(similar)
	} else if len(tables) == 0 {
		return v.r.once("the keys of this table are " + list(known))
	}
	hint := fmt.Sprintf("%q is a key of %s", name, strings.Join(tables, ", "))
	if above, ok := v.enclosing(name); ok {
		hint += ": " + v.headerHint(above)
	}
	return hint
}

// tablesWith lists the tables with a key: the nearest around v, or all.
func (v value) tablesWith(name string) (tables []string) {
	if above, ok := v.enclosing(name); ok {
		return []string{tableName(above.path())}
	}
	for _, key := range v.r.language() {
		// The keys of exclude are those of match.
		if path, ok := strings.CutSuffix(key, "."+name); ok && path != "resource.exclude" && !strings.HasPrefix(path, "resource.exclude.") {
			tables = append(tables, tableName(path))
		}
	}
	return tables
}

// keyElsewhere is the key that means what a name means in sysfs, in Kubernetes or in other
// device plugins; empty for none.
func keyElsewhere(name string) string {
	switch strings.ToLower(name) {
	case "path", "paths", "devicematch":
		return "glob"
	case "pid", "idproduct":
		return "product"
	case "vid", "idvendor":
		return "vendor"
	case "replicas", "maxdevices", "nummaxdevices":
		return "count"
	case "resourcename", "resource":
		return "name"
	case "source", "src":
		return "host_path"
	case "mountpath", "target", "destination", "dst":
		return "container_path"
	}
	return ""
}

// enclosing is the nearest table around v that may have a key.
func (v value) enclosing(name string) (above value, ok bool) {
	for !ok && v.above != nil {
		v = *v.above
		ok = slices.Contains(v.r.language(), strings.TrimPrefix(v.path()+"."+name, "."))
	}
	return v, ok
}

// headerHint explains the pitfall of TOML's headers, after which a key of the table
// above belongs to the table v.
func (v value) headerHint(above value) string {
	if above.above == nil {
		return "write it above the first [[resource]]"
	}
	table := tableName(v.path())
	return fmt.Sprintf("after a [%s] header every key belongs to %s; write dotted keys (%s.KEY = ...) instead of headers",
		v.path(), table[strings.LastIndexByte(table, '.')+1:], table)
}

// tableName names a table in messages.
func tableName(path string) string {
	if path == "" {
		return "the top level"
	}
	return strings.TrimPrefix(path, "resource.")
}

// nearest is the name for which a misspelled one may stand, or empty: at most one edit
// for each three letters.
func nearest(name string, names []string) string {
	best := ""
	edits := max(1, min(len(name)/3, 3))
	for _, n := range names {
		if rest, cut := strings.CutPrefix(n, name); cut && len(name) > 2 && !strings.Contains(rest, ".") {
			best = n
			edits = 1
			continue
		}
		if d := len(n) - len(name); d > edits || -d > edits {
			continue
		}
		if e := pattern.Distance(name, n); e <= edits && (best == "" || e < edits) {
			best = n
			edits = e
		}
	}
	return best
}
