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
	expanded, err := expand(s)
	if err != nil {
		return pattern{}, err
	}
	// expand stops soon after the limit, so that this is not too late.
	if len(expanded) > maxAlternatives {
		return pattern{}, fmt.Errorf("has more than %d alternatives: use a list of patterns", maxAlternatives)
	}
	length := 0
	for _, written := range expanded {
		length += len(written)
		if length > maxExpanded {
			return pattern{}, fmt.Errorf("is longer than %d bytes with its alternatives spelled out: use a list of patterns", maxExpanded)
		}
		tokens, err := tokenize(kind, written)
		if err != nil {
			return pattern{}, err
		}
		p.alternatives = append(p.alternatives, Alternative{
			written: written,
			kind:    kind,
			tokens:  tokens,
		})
	}
	return p, nil
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

// unit returns the first unit of a pattern: an escape with the character after it, a class, or a character.
func unit(s string) (string, error) {
	_, n := char(s)
	if s[0] == '[' {
		for n < len(s) && s[n] != ']' {
			// An escaped "]" does not end the class.
			_, size := char(s[n:])
			n += size
		}
		n++ // the "]"
	}
	// The "]" would be beyond the end.
	if n > len(s) {
		return "", errSyntax
	}
	switch s[:n] {
	case `\`, "[]", "[!]", "[^]":
		return "", errSyntax
	}
	return s[:n], nil
}

// expand expands {a,b} to all alternatives. It stops soon after maxAlternatives.
func expand(s string) ([]string, error) {
	var branches []string
	depth := 0
	open := 0  // of the first "{"
	start := 0 // of a branch
	for i := 0; i < len(s); {
		u, err := unit(s[i:])
		if err != nil {
			return nil, err
		}
		switch u {
		case "{":
			if depth == 0 {
				open = i
				start = i + 1
			}
			depth++
		case "}":
			depth--
		}
		if depth < 0 {
			return nil, errSyntax
		}
		// A "," in a nested group belongs to that group.
		isSeparator := depth == 1 && u == ","
		isEnd := depth == 0 && u == "}"
		if isSeparator || isEnd {
			branches = append(branches, s[start:i])
			start = i + 1
		}
		if isEnd {
			return combine(s[:open], branches, s[start:])
		}
		i += len(u)
	}
	if depth > 0 {
		return nil, errSyntax
	}
	return []string{s}, nil
}

// combine returns all alternatives of a pattern with several branches.
func combine(before string, branches []string, after string) ([]string, error) {
	// The rest is expanded once for all branches.
	tails, err := expand(after)
	if err != nil || len(tails) > maxAlternatives {
		return tails, err
	}
	var all []string
	for _, b := range branches {
		middles, err := expand(b)
		if err != nil {
			return nil, err
		}
		for _, middle := range middles {
			for _, tail := range tails {
				all = append(all, before+middle+tail)
			}
			if len(all) > maxAlternatives {
				return all, nil
			}
		}
	}
	return all, nil
}

// tokenize converts an alternative, whose units are valid, to tokens.
func tokenize(kind Kind, s string) ([]token, error) {
	var tokens []token
	run := "" // literal text
	add := func(t token) {
		if run != "" {
			tokens = append(tokens, token{text: run})
		}
		tokens = append(tokens, t)
		run = ""
	}
	for s != "" {
		if n := deepLength(s); kind == Path && n > 0 {
			add(token{kind: deep})
			s = s[n:]
			continue
		}
		u, err := unit(s)
		if err != nil {
			return nil, err
		}
		s = s[len(u):]
		switch {
		case u == "?":
			// A negated class without any character matches every character.
			add(token{kind: single, not: true})
		case u == "*":
			add(token{kind: star})
			// Several stars match the same as one. Only whole elements of a path have "**".
			s = strings.TrimLeft(s, "*")
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

// deepLength is the length of a leading "/**/" or final "/**", for any repetition of "**", which matches
// the same as one.
func deepLength(s string) int {
	n := 0
	for strings.HasPrefix(s[n:], "/**") && strings.HasPrefix(s[n+3:]+"/", "/") {
		n += 3
	}
	if n > 0 && n < len(s) {
		n++ // the "/" after it
	}
	return n
}

// parseClass parses "[...]".
func parseClass(s string) (token, error) {
	t := token{kind: single}
	s = s[1 : len(s)-1]
	// The class is not empty.
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
