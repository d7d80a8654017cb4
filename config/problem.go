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

// maxProblems is how many problems are reported.
const maxProblems = 100

// report is a problem whose line is not known yet.
type report struct {
	Problem
	source *source // nil where it is about no file
	at     int     // offset in its text
	// allowed says what of --allow makes it none; nil is nothing.
	allowed func(Allow) bool
}

// noPosition is the offset of what is about a file as a whole.
const noPosition = -1

func (r *report) order() int {
	if r.source == nil {
		return noPosition
	}
	return r.source.order
}

// inOrder sorts reports by their place in the files, drops repeats and fills in
// lines and columns.
func inOrder(reports []report) []report {
	slices.SortStableFunc(reports, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.at, b.at))
	})
	reports = slices.CompactFunc(reports, func(a, b report) bool { return a.at == b.at && a.Problem == b.Problem })
	var last report
	line, column := 1, 1 // of last
	for i := range reports {
		r := &reports[i]
		if r.source == nil || r.at == noPosition {
			continue
		}
		if r.source != last.source {
			last, line, column = report{source: r.source}, 1, 1
		}
		between := r.source.text[last.at:r.at]
		if n := strings.LastIndexByte(between, '\n'); n >= 0 {
			line += strings.Count(between, "\n")
			column, between = 1, between[n+1:]
		}
		column += utf8.RuneCountInString(between)
		r.Line, r.Column, last.at = line, column, r.at
	}
	return reports
}

// problems is an error with at most maxProblems of all, nil where there are none.
func problems(all []Problem) error {
	if len(all) == 0 {
		return nil
	}
	if n := len(all); n > maxProblems {
		all = append(all[:maxProblems:maxProblems], Problem{Text: fmt.Sprintf("%d problems in all: the first %d are reported", n, maxProblems)})
	}
	return Problems(all)
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
