package config

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
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
		a, b := &reports[i], &reports[j]
		return cmp.Or(cmp.Compare(a.source.order, b.source.order), cmp.Compare(a.at, b.at)) < 0
	})
	reports = slices.CompactFunc(reports, func(a, b report) bool {
		return a.source == b.source && a.at == b.at && a.Problem == b.Problem
	})
	var before report
	line, column := 1, 1 // of the previous
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
func list(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}
