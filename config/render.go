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

// regexpOf is an expression whose groups are what the wildcards of a path
// stood for.
func regexpOf(tokens []token) *regexp.Regexp {
	e := "^"
	for i := 0; i < len(tokens); i++ {
		switch t := tokens[i]; t.kind {
		case anyToken:
			e += "([^/])"
		case starToken:
			e += "([^/]*)"
		case deepToken:
			switch above, ok := strings.CutSuffix(e, "/"); {
			case i+1 < len(tokens):
				e += "(?:(.*)/)?"
				i++ // the "/" behind
			case ok:
				e = above + "(?:/(.*))?"
			default: // behind another
				e += "(.*)"
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
	return regexp.MustCompile("(?s)" + e + "$")
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
