// Package pattern is the pattern language of configurations: for serial numbers,
// IDs, paths of device nodes, and files of the host.
//
//   - any text        ?  any character     [a-z] [!a-z]  a class
//     {a,b}  alternatives    \  the next character as it is
//
// In a pattern of kind Path the wildcards stop at "/", and "**" as a whole
// element matches any number of elements: "/dev/**/video*" matches "/dev/video0"
// and "/dev/v4l/by-id/video1", and "/dev/snd/**" matches "/dev/snd" and everything
// below.
package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is how values are compared with a pattern.
type Kind byte

// The kinds. All except Path ignore space around patterns and values.
const (
	Text      Kind = iota
	Path           // wildcards stop at "/", except for "**"
	Hex            // a hexadecimal number in any case, with or without "0x"
	HexPrefix      // likewise; a pattern matches a prefix of the number
	Number         // a decimal number; "0,2-7" is a list of ranges
)

// Limits of one pattern. Alternatives are expanded when a pattern is parsed, so that matching never
// tries combinations of them.
const (
	maxLength       = 512
	maxAlternatives = 64
	// maxExpanded is the maximum length of all alternatives together.
	maxExpanded = 4096
)

// alternativeSize is what an alternative adds to Values.Size besides its length.
const alternativeSize = 16

// ErrEmpty is the error of Parse for an empty pattern.
var ErrEmpty = errors.New("is empty")

var (
	// The texts continue a sentence that begins with the quoted pattern.
	errSyntax    = errors.New(`is not a valid pattern: every [...] and {...} must be closed, and a character must follow every \`)
	errNotNumber = errors.New(`is not a number: want a number such as "2", or numbers and ranges such as "0,2-7"`)
)

// Values is a condition on a value: patterns of one kind, some of them with a leading "!". The zero
// Values is no condition. Values are immutable.
type Values struct {
	// kind is the kind of all patterns.
	kind     Kind
	patterns []pattern
}

// pattern is one pattern.
type pattern struct {
	// written is the pattern as written.
	written string
	// not is set if the pattern begins with "!".
	not bool
	// alternatives are the patterns to which it expands.
	alternatives []Alternative
}

// Alternative is one of the patterns that {a,b} expands to.
type Alternative struct {
	written string
	kind    Kind
	// tokens is empty if the alternative only matches the empty text, and for a range of numbers.
	tokens []token
	// span is a range of numbers. It is nil for all other alternatives.
	span *span
}

// span is a range of numbers. Both ends belong to it.
type span struct {
	first uint64
	last  uint64
}

// tokenKind is the kind of a token.
type tokenKind byte

const (
	literal tokenKind = iota // text
	single                   // ? or [...]
	star                     // *
	deep                     // "/**/" matches "/" or "/.../"; "/**" at the end, "" or "/..."
)

// token is a run of literal characters or a wildcard.
type token struct {
	kind tokenKind
	// not negates a class.
	not bool
	// text of a literal; of a class, the first and last character of each range.
	text string
}

// Parse parses a pattern. A leading "!" negates it. The text of the error continues a sentence that
// begins with the pattern: "is empty".
//
// It is called by package config while it reads a file, and for patterns that the program makes.
// The result has one pattern; Join makes a list.
func Parse(kind Kind, s string) (Values, error) {
	p, err := parse(kind, strings.TrimSpace(s))
	if err != nil {
		return Values{}, err
	}
	return Values{kind, []pattern{p}}, nil
}

// parse parses a pattern without space around it.
func parse(kind Kind, s string) (pattern, error) {
	p := pattern{written: s}
	if rest, isNegated := strings.CutPrefix(s, "!"); isNegated {
		s = strings.TrimSpace(rest)
		p.not = true
	}
	switch {
	case s == "":
		return pattern{}, ErrEmpty
	case len(s) > maxLength:
		return pattern{}, fmt.Errorf("is longer than %d bytes", maxLength)
	case !utf8.ValidString(s):
		return pattern{}, errSyntax
	// A number with wildcards is compared as text, digit by digit.
	case kind == Number && !strings.ContainsAny(s, meta):
		return p.spans(s)
	case kind == Hex || kind == HexPrefix:
		// Values are normalized in the same way when they are compared.
		s = without0x.Replace(strings.TrimPrefix(strings.ToLower(s), "0x"))
	}
	units, err := split(s)
	if err != nil {
		return pattern{}, err
	}
	expanded, err := expand(units)
	if err != nil {
		return pattern{}, err
	}
	// expand stops soon after the limit, so that this is not too late.
	if len(expanded) > maxAlternatives {
		return pattern{}, fmt.Errorf("has more than %d alternatives: use a list of patterns", maxAlternatives)
	}
	if lengthOf(expanded) > maxExpanded {
		return pattern{}, fmt.Errorf("is longer than %d bytes with its alternatives spelled out: use a list of patterns", maxExpanded)
	}
	for _, units := range expanded {
		tokens, err := tokenize(kind, units)
		if err != nil {
			return pattern{}, err
		}
		p.alternatives = append(p.alternatives, Alternative{
			written: strings.Join(units, ""),
			kind:    kind,
			tokens:  tokens,
		})
	}
	return p, nil
}

// lengthOf returns the length of all alternatives in bytes.
func lengthOf(alternatives [][]string) int {
	length := 0
	for _, units := range alternatives {
		for _, u := range units {
			length += len(u)
		}
	}
	return length
}

// spans parses comma-separated numbers and ranges: "0,2-7".
func (p pattern) spans(s string) (pattern, error) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err := parseNumber(first)
		if err != nil {
			return pattern{}, errNotNumber
		}
		hi, err := parseNumber(last)
		if err != nil || hi < lo {
			return pattern{}, errNotNumber
		}
		p.alternatives = append(p.alternatives, Alternative{
			written: part,
			kind:    Number,
			span:    &span{first: lo, last: hi},
		})
	}
	return p, nil
}

// parseNumber parses a number of the kernel, which are at most 31 bits long.
func parseNumber(s string) (uint64, error) {
	return strconv.ParseUint(strings.TrimSpace(s), 10, 31)
}

// meta are the special characters of patterns.
const meta = `*?[]{}\`

// Quote escapes s, so that it matches itself as a pattern or as a part of a pattern. The "," is
// only special within {...}, and the "!" only at the beginning or in a class.
func Quote(s string) string {
	var b strings.Builder
	// All special characters are ASCII, so that bytes can be compared.
	for i := range len(s) {
		if strings.IndexByte(meta+",!", s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// without0x drops "0x" at the beginning of numbers.
var without0x = strings.NewReplacer("{0x", "{", ",0x", ",", ":0x", ":")

// split splits a pattern into units: literal runs, escaped characters, classes,
// and special characters.
func split(s string) ([]string, error) {
	units := make([]string, 0, 8)
	for s != "" {
		// The "," and the "/" are units of their own for expand and deepLength.
		n := strings.IndexAny(s, meta+",/")
		if n < 0 {
			n = len(s)
		} else if n == 0 {
			// An escape and the character after it are one unit, so that the character is not
			// special later.
			_, n = char(s)
		}
		if s[0] == '[' {
			for n < len(s) && s[n] != ']' {
				// An escaped "]" does not end the class.
				_, size := char(s[n:])
				n += size
			}
			n++ // the "]"
		}
		// The "]" would be beyond the end.
		isUnclosed := n > len(s)
		if isUnclosed || isIncomplete(s[:n]) {
			return nil, errSyntax
		}
		units = append(units, s[:n])
		s = s[n:]
	}
	return units, nil
}

// isIncomplete reports whether a unit is an escape without a character or an empty class.
func isIncomplete(unit string) bool {
	switch unit {
	case `\`, "[]", "[!]", "[^]":
		return true
	}
	return false
}

// expand expands {a,b} in units to all alternatives. It stops soon after maxAlternatives.
func expand(units []string) ([][]string, error) {
	open := slices.IndexFunc(units, func(u string) bool {
		return u == "{" || u == "}"
	})
	if open < 0 {
		return [][]string{units}, nil
	}
	var branches [][]string
	depth := 0
	start := open + 1
	end := open
	// The loop ends after the "}" that belongs to the first "{".
	for ; end == open || depth > 0; end++ {
		// The group is not closed, or the first special unit is a "}".
		if end == len(units) || units[open] != "{" {
			return nil, errSyntax
		}
		switch units[end] {
		case "{":
			depth++
		case "}":
			depth--
		}
		isClosed := depth == 0
		// A "," in a nested group belongs to that group.
		isSeparator := depth == 1 && units[end] == ","
		if isClosed || isSeparator {
			branches = append(branches, units[start:end])
			start = end + 1
		}
	}
	// The rest of the units is expanded once for all branches.
	tails, err := expand(units[end:])
	if err != nil || len(tails) > maxAlternatives {
		return tails, err
	}
	var all [][]string
	for _, b := range branches {
		middles, err := expand(b)
		if err != nil {
			return nil, err
		}
		for _, middle := range middles {
			for _, tail := range tails {
				all = append(all, slices.Concat(units[:open], middle, tail))
			}
			if len(all) > maxAlternatives {
				return all, nil
			}
		}
	}
	return all, nil
}

// tokenize converts the units of an alternative to tokens.
func tokenize(kind Kind, units []string) ([]token, error) {
	var tokens []token
	run := "" // literal text
	add := func(t token) {
		if run != "" {
			tokens = append(tokens, token{text: run})
		}
		tokens = append(tokens, t)
		run = ""
	}
	for i := 0; i < len(units); i++ {
		switch u, n := units[i], deepLength(units[i:]); {
		case kind == Path && n > 0:
			add(token{kind: deep})
			i += n - 1
		case u == "?":
			// A negated class without any character matches every character.
			add(token{kind: single, not: true})
		case u == "*":
			add(token{kind: star})
			// Several stars match the same as one. Only whole elements of a path have "**".
			for i+1 < len(units) && units[i+1] == "*" {
				i++
			}
		case u[0] == '[':
			t, err := parseClass(u)
			if err != nil {
				return nil, err
			}
			// A negated class never matches "/", see shortest.
			if kind == Path && !t.not && t.matches('/') {
				return nil, errors.New(`has a class that contains "/": a class matches a character within one element of a path`)
			}
			add(t)
		default:
			text := strings.TrimPrefix(u, `\`)
			// It could never match a number.
			if kind == Number && strings.Trim(text, "0123456789") != "" {
				return nil, errNotNumber
			}
			run += text
		}
	}
	// A star at the end makes a prefix of the pattern.
	if kind == HexPrefix {
		add(token{kind: star})
	} else if run != "" {
		tokens = append(tokens, token{text: run})
	}
	return tokens, nil
}

// deepLength is the number of units of a leading "/**/" or final "/**", for any
// repetition of "**".
func deepLength(units []string) int {
	// Repetitions such as "/**/**/" match the same as one.
	n := 0
	for beginsDeep(units[n:]) {
		n += len(deepUnits)
	}
	if n > 0 && n < len(units) {
		n++ // the "/" after it
	}
	return n
}

// deepUnits are the units of "/**".
var deepUnits = []string{"/", "*", "*"}

// beginsDeep reports whether units begin with "/**" as a whole element.
func beginsDeep(units []string) bool {
	length := len(deepUnits)
	if len(units) < length || !slices.Equal(units[:length], deepUnits) {
		return false
	}
	return len(units) == length || units[length] == "/"
}

// parseClass parses "[...]".
func parseClass(s string) (token, error) {
	t := token{kind: single}
	s = s[1 : len(s)-1]
	// The class is not empty, see isIncomplete.
	t.not = s[0] == '!' || s[0] == '^'
	if t.not {
		s = s[1:]
	}
	for s != "" {
		lo, n := char(s)
		hi := lo
		s = s[n:]
		// A "-" at the end of a class is a literal character.
		isRange := len(s) > 1 && s[0] == '-'
		if isRange {
			hi, n = char(s[1:])
			s = s[1+n:]
		}
		if hi < lo {
			return t, fmt.Errorf("has the empty range %q: the lower end must come first", string([]rune{lo, '-', hi}))
		}
		t.text += string([]rune{lo, hi})
	}
	return t, nil
}

// char returns the first character of s, which may be escaped, and its length in bytes.
func char(s string) (rune, int) {
	escape := 0
	if s[0] == '\\' {
		escape = 1
	}
	r, n := utf8.DecodeRuneInString(s[escape:])
	return r, escape + n
}
