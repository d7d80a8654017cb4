package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// How long a pattern may be in bytes, how many alternatives it may stand for,
// and all patterns of a configuration together. Alternatives are written out
// when a pattern is read, so that matching never tries their combinations.
const (
	maxPattern         = 512
	maxAlternatives    = 64
	maxAllAlternatives = 100_000
)

// tokenKind is what one token of a pattern stands for.
type tokenKind byte

const (
	literalToken tokenKind = iota // one character
	anyToken                      // ?
	starToken                     // *
	deepToken                     // ** as a whole element of a path
	classToken                    // [...]
)

// token is one token of a pattern whose alternatives are written out.
type token struct {
	kind tokenKind
	char rune // of a literal
	// not and ranges of a class: pairs of first and last character.
	not    bool
	ranges []rune
}

// alternative is one of the patterns that a pattern with {a,b} stands for.
type alternative struct {
	written string
	tokens  []token
}

// parsePattern reads a pattern and writes out its alternatives. The rule is
// empty, or what the pattern breaks.
func parsePattern(s string, path bool) (alternatives []alternative, rule string) {
	if len(s) > maxPattern {
		return nil, fmt.Sprintf("is too long: want at most %d bytes", maxPattern)
	}
	if !utf8.ValidString(s) || !doublestar.ValidatePattern(s) {
		return nil, `is not a pattern: want every [...] and {...} closed, and a character after every \`
	}
	expanded := expand(s)
	if len(expanded) > maxAlternatives {
		return nil, fmt.Sprintf("stands for too many alternatives: want at most %d, or a list of patterns", maxAlternatives)
	}
	for _, e := range expanded {
		tokens, rule := tokenize(e, path)
		if rule != "" {
			return nil, rule
		}
		alternatives = append(alternatives, alternative{e, tokens})
	}
	return alternatives, ""
}

// expand writes out the alternatives of a valid pattern. It stops soon after
// maxAlternatives.
func expand(s string) []string {
	open := special(s, 0, "{")
	if open < 0 {
		return []string{s}
	}
	var branches []string
	depth, start, end := 1, open+1, open+1
	for ; depth > 0; end++ {
		end = special(s, end, "{,}")
		switch {
		case s[end] == '{':
			depth++
		case s[end] == ',' && depth == 1:
			branches = append(branches, s[start:end])
			start = end + 1
		case s[end] == '}':
			depth--
		}
	}
	branches = append(branches, s[start:end-1])

	tails := expand(s[end:])
	if len(tails) > maxAlternatives {
		return tails
	}
	var out []string
	for _, b := range branches {
		for _, middle := range expand(b) {
			for _, tail := range tails {
				out = append(out, s[:open]+middle+tail)
			}
			if len(out) > maxAlternatives {
				return out
			}
		}
	}
	return out
}

// special is the offset at or after i of the first of the characters that is
// neither escaped nor in a class, -1 where there is none.
func special(s string, i int, characters string) int {
	for ; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.IndexByte(characters, s[i]) >= 0:
			return i
		case s[i] == '[':
			for i++; s[i] != ']'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
	}
	return -1
}

// tokenize splits one alternative of a valid pattern.
func tokenize(s string, path bool) (tokens []token, rule string) {
	tokens = make([]token, 0, len(s))
	for i := 0; i < len(s); {
		switch s[i] {
		case '?':
			tokens = append(tokens, token{kind: anyToken})
			i++
		case '*':
			start := i
			for i < len(s) && s[i] == '*' {
				i++
			}
			kind := starToken
			if path && i-start == 2 && (start == 0 || s[start-1] == '/') && (i == len(s) || s[i] == '/') {
				kind = deepToken
			}
			tokens = append(tokens, token{kind: kind})
		case '[':
			t, end, rule := parseClass(s, i, path)
			if rule != "" {
				return nil, rule
			}
			tokens = append(tokens, t)
			i = end
		default:
			r, n := runeAt(s, i)
			tokens = append(tokens, token{char: r})
			i += n
		}
	}
	return tokens, ""
}

// parseClass reads the class that begins at i and returns the offset behind.
func parseClass(s string, i int, path bool) (t token, end int, rule string) {
	t.kind = classToken
	if i++; s[i] == '!' || s[i] == '^' {
		t.not = true
		i++
	}
	for s[i] != ']' {
		lo, n := runeAt(s, i)
		i += n
		hi := lo
		if s[i] == '-' && s[i+1] != ']' {
			hi, n = runeAt(s, i+1)
			i += 1 + n
		}
		if hi < lo {
			return t, 0, fmt.Sprintf("has the empty range %q: want the lower end first", string([]rune{lo, '-', hi}))
		}
		t.ranges = append(t.ranges, lo, hi)
	}
	if path && !t.not && inRanges(t.ranges, '/') {
		return t, 0, `has a class that holds "/": want one for a single element of a path`
	}
	return t, i + 1, ""
}

// runeAt is the character at i, escaped or not, and how many bytes it takes.
func runeAt(s string, i int) (rune, int) {
	if s[i] == '\\' {
		r, n := utf8.DecodeRuneInString(s[i+1:])
		return r, n + 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

func inRanges(ranges []rune, r rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= r && r <= ranges[i+1] {
			return true
		}
	}
	return false
}
