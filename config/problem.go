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
	// Place is file, resource and key: `gpu.toml: resource 2 ("gpu"): count`,
	// or file, line and column for what is not TOML: "gpu.toml:3:12".
	Place string
	// Text is what was found and what is allowed.
	Text string
	// Hint is how to repair it; empty where that is not known.
	Hint string
}

// String is the problem as it is printed: a line, and one more for the hint.
func (p Problem) String() string {
	s := p.Place + ": " + p.Text
	if p.Hint != "" {
		s += "\n  hint: " + p.Hint
	}
	return s
}

// Problems is everything that is wrong with a configuration, sorted by place.
type Problems []Problem

// Error has a line for each problem, and one more for each hint.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by place, with "resource 2" before "resource 10",
// and drops repeats.
func sorted(problems []Problem) Problems {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(natural(a.Place, b.Place), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Hint, b.Hint))
	})
	return slices.Compact(problems)
}

// natural compares strings with numbers in them by the value of the numbers.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
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
