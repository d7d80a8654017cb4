package importer

import (
	"path"
	"strings"
	"unicode/utf8"
)

// goGlob is a pattern of Go's path.Match as one of the language, whether it
// has no wildcards, or the rule that it breaks.
func goGlob(s string) (pattern string, literal bool, rule string) {
	if !path.IsAbs(s) || path.Clean(s) != s || s == "/" {
		return "", false, `is not an absolute, clean path: want one such as "/dev/ttyUSB*"`
	}
	if _, err := path.Match(s, ""); err != nil || !utf8.ValidString(s) {
		return "", false, `is not a pattern: want every [...] closed, and a character after every \`
	}
	literal = true
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			i++
			b.WriteString(escape(s[i : i+1]))
		case '[':
			literal = false
			var class string
			class, i = goClass(s, i+1)
			b.WriteString(class)
		case '*':
			literal = false
			if s[i-1] != '*' { // two are one here, and cross directories there
				b.WriteByte(c)
			}
		case '?':
			literal = false
			b.WriteByte(c)
		default:
			b.WriteString(escape(string(c)))
		}
	}
	return b.String(), literal, ""
}

// goClass is the class of a valid pattern of Go that begins at i, and where it
// ends.
func goClass(s string, i int) (class string, end int) {
	not := s[i] == '^'
	if not {
		i++
	}
	member := func() rune {
		if s[i] == '\\' {
			i++
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		return r
	}
	var ranges []rune
	for s[i] != ']' {
		lo := member()
		hi := lo
		if s[i] == '-' {
			i++
			hi = member()
		}
		ranges = append(ranges, lo, hi)
	}
	return classText(not, ranges), i
}

// classText is a class that matches one character of a path: one of the
// ranges, pairs of first and last character, or none of them.
func classText(not bool, ranges []rune) string {
	var b strings.Builder
	for i := 0; i < len(ranges); i += 2 {
		for _, r := range withoutSlash(max(ranges[i], ' '), ranges[i+1]) {
			b.WriteString(classMember(r[0]))
			if r[1] > r[0]+1 {
				b.WriteByte('-')
			}
			if r[1] > r[0] {
				b.WriteString(classMember(r[1]))
			}
		}
	}
	switch {
	case b.Len() == 0 && not:
		return "?"
	case b.Len() == 0:
		return ""
	case not:
		return "[!" + b.String() + "]"
	}
	return "[" + b.String() + "]"
}

// withoutSlash is a range without "/", which no class of a path may hold.
func withoutSlash(lo, hi rune) [][2]rune {
	var out [][2]rune
	if lo <= '/' && '/' <= hi {
		if lo < '/' {
			out = append(out, [2]rune{lo, '/' - 1})
		}
		lo = '/' + 1
	}
	if lo <= hi {
		out = append(out, [2]rune{lo, hi})
	}
	return out
}

func classMember(r rune) string {
	if strings.ContainsRune(`]\-!^[{},`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// classEnd is where the class of a pattern that begins at i ends.
func classEnd(pattern string, i int) int {
	for i++; i < len(pattern) && pattern[i] != ']'; i++ {
		if pattern[i] == '\\' {
			i++
		}
	}
	return i
}

// escape is a text as a pattern that matches nothing else.
func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(`*?[]{}\!`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func escapeAll(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = escape(v)
	}
	return out
}

// unescape is what a pattern without wildcards matches.
func unescape(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// beginning is what all begins with that a pattern matches, as it is written.
func beginning(pattern string) string {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '*', '?', '[', '{':
			return pattern[:i]
		}
	}
	return pattern
}

// literal is a text that has no variables.
func literal(s string) string { return strings.ReplaceAll(s, "${", "$${") }
