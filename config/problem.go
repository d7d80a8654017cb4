package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// File, Line and Column of the key that it is about, both from 1, the
	// column in characters. Empty and 0 where it is about no file or key.
	File         string
	Line, Column int
	// Place is resource and key: `resource 2 ("gpu"): count`; empty where it is
	// the top level of a file.
	Place string
	// Text is what was found and what is allowed.
	Text string
	// Hint is how to repair it; empty where that is not known.
	Hint string
}

// Position is where the key stands: "gpu.toml:3:12", or as much of it as is known.
func (p Problem) Position() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Message is what is wrong: place and text.
func (p Problem) Message() string {
	if p.Place == "" {
		return p.Text
	}
	return p.Place + ": " + p.Text
}

// String is the problem as it is printed: a line, and one more for the hint.
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

// Problems is what is wrong with a configuration, in the order of its files
// and their lines: at most 100 problems, then how many more there are.
type Problems []Problem

// Error has a line for each problem, and one more for each hint.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many problems are reported, and maxFound how many are kept
// to find the first of them.
const (
	maxProblems = 100
	maxFound    = 10_000
)

// report is a problem whose line is not known yet.
type report struct {
	Problem
	source *source
	at     int // offset in its text
	// hint makes the Hint of one that is reported, if that takes long.
	hint func() string
	// allowed says what of --allow makes it none; nil is nothing.
	allowed func(Allow) bool
}

// noPosition is the offset of what is about a file as a whole.
const noPosition = -1

// inOrder sorts reports by their place in the files, drops repeats and fills in
// files, lines and columns.
func inOrder(reports []report) []report {
	slices.SortStableFunc(reports, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.source.order, b.source.order), cmp.Compare(a.at, b.at))
	})
	reports = slices.CompactFunc(reports, func(a, b report) bool {
		return a.source == b.source && a.at == b.at && a.Problem == b.Problem
	})
	var before report
	line, column := 1, 1 // of before
	for i := range reports {
		r := &reports[i]
		r.File = r.source.name
		if r.at == noPosition {
			continue
		}
		if r.source != before.source {
			before, line, column = report{source: r.source}, 1, 1
		}
		between := r.source.text[before.at:r.at]
		if n := strings.LastIndexByte(between, '\n'); n >= 0 {
			line += strings.Count(between, "\n")
			column, between = 1, between[n+1:]
		}
		column += utf8.RuneCountInString(between)
		r.Line, r.Column, before.at = line, column, r.at
	}
	return reports
}

// problems is what was found wrong, as an error, or nil.
func (w *walk) problems() error {
	var first []Problem
	for _, r := range inOrder(w.reports) {
		if len(first) == maxProblems {
			break
		}
		if r.hint != nil {
			r.Hint = r.hint()
		}
		first = append(first, r.Problem)
	}
	return problems(first, w.found)
}

// problems is an error with the first of n problems, nil where there are none.
func problems(first []Problem, n int) error {
	if len(first) == 0 {
		return nil
	}
	if len(first) == maxProblems && n > maxProblems {
		first = append(first, Problem{Text: fmt.Sprintf("%d problems in all: the first %d are reported", n, maxProblems)})
	}
	return Problems(first)
}

// digits is the length of the run of digits that s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// longestQuote is how many bytes of a value a message repeats: a value may
// be as long as its file, and many messages may name it.
const longestQuote = 80

// quote writes s in quotes, shortened where it is long.
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

// list writes names in quotes with commas between them.
func list(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}
