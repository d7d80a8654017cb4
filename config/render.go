package config

import (
	"fmt"
	"regexp"
	"strings"
)

// shape is tokens with "*" for every wildcard, to see the elements of a path.
func shape(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.kind == literalToken {
			b.WriteRune(t.char)
		} else {
			b.WriteByte('*')
		}
	}
	return b.String()
}

// slash stands for "/" where a pattern is matched that is no path, so that *
// matches it: no attribute holds a NUL.
const slash = '\x00'

// globOf writes tokens as doublestar takes them. There a negated class
// matches "/" too, so that a path's classes are given it.
func globOf(tokens []token, path bool) string {
	var b strings.Builder
	char := func(r rune, meta string) {
		if r == '/' && !path {
			r = slash
		}
		if strings.ContainsRune(meta, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	for _, t := range tokens {
		switch t.kind {
		case anyToken:
			b.WriteByte('?')
		case starToken:
			b.WriteByte('*')
		case deepToken:
			b.WriteString("**")
		case classToken:
			b.WriteByte('[')
			if t.not {
				b.WriteByte('!')
			}
			for i := 0; i < len(t.ranges); i += 2 {
				char(t.ranges[i], `\]-!^`)
				if t.ranges[i] < t.ranges[i+1] {
					b.WriteByte('-')
					char(t.ranges[i+1], `\]-!^`)
				}
			}
			if t.not && path {
				b.WriteByte('/')
			}
			b.WriteByte(']')
		default:
			char(t.char, `*?[]{}\`)
		}
	}
	return b.String()
}

// regexpOf is an expression whose groups are what the wildcards of a path
// stood for.
func regexpOf(tokens []token) (*regexp.Regexp, error) {
	e := "^"
	for i := 0; i < len(tokens); i++ {
		switch t := tokens[i]; t.kind {
		case anyToken:
			e += "([^/])"
		case starToken:
			e += "([^/]*)"
		case deepToken:
			if i+1 < len(tokens) {
				e += "(?:(.*)/)?"
				i++ // the "/" behind
			} else {
				e = strings.TrimSuffix(e, "/") + "(?:/(.*))?"
			}
		case classToken:
			e += "(["
			if t.not {
				e += "^/"
			}
			for j := 0; j < len(t.ranges); j += 2 {
				e += fmt.Sprintf(`\x{%x}-\x{%x}`, t.ranges[j], t.ranges[j+1])
			}
			e += "])"
		default:
			e += regexp.QuoteMeta(string(t.char))
		}
	}
	return regexp.Compile("(?s)" + e + "$")
}

// literalPrefix is what everything that tokens match begins with, and whether
// it is all of it.
func literalPrefix(tokens []token) (prefix string, whole bool) {
	var b strings.Builder
	for _, t := range tokens {
		if t.kind == deepToken {
			// "/dev/snd/**" matches "/dev/snd" too.
			return strings.TrimSuffix(b.String(), "/"), false
		}
		if t.kind != literalToken {
			return b.String(), false
		}
		b.WriteRune(t.char)
	}
	return b.String(), true
}
