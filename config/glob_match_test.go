package config

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
)

// slash stands for "/" where doublestar is asked about what is no path, so
// that * matches it.
const slash = '\x00'

// doublestarOf writes tokens as doublestar takes them. There a negated class
// matches "/" too, so that a path's classes are given it.
func doublestarOf(tokens []token, path bool) string {
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

// doublestarMatches is what doublestar says of a pattern and a text.
func doublestarMatches(t *testing.T, pattern, text string, path bool) bool {
	t.Helper()
	alternatives, rule := parsePattern(pattern, path)
	if rule != "" {
		t.Fatalf("%q %s", pattern, rule)
	}
	if !path {
		text = strings.ReplaceAll(text, "/", string(slash))
	}
	for _, a := range alternatives {
		if doublestar.MatchUnvalidated(doublestarOf(a.tokens, path), text) {
			return true
		}
	}
	return false
}

// Patterns match as those of doublestar do.
func TestMatchesAsDoublestar(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	words := func(most int, from ...string) string {
		var b strings.Builder
		for range 1 + rng.IntN(most) {
			b.WriteString(from[rng.IntN(len(from))])
		}
		return b.String()
	}
	matched := 0
	for range 200_000 {
		pattern := words(7, "a", "b", "é", "/", "/", "*", "*", "/**/", "?", "[ab]", "[!a]", "[!a-é]", "{a,b*}", "ab")
		text := words(7, "a", "b", "é", "/", "ab", "a/b", "世")
		plain := kind{}
		if patterns, _, rule, _ := plain.parse(pattern); rule == "" {
			v := Values{positive: patterns, written: []string{pattern}}
			want := doublestarMatches(t, pattern, text, false)
			if got := v.Match(text); got != want {
				t.Errorf("Match(%q) of %q, which is no path, = %v, want %v", text, pattern, got, want)
			}
		}
		pattern, text = path.Clean("/"+pattern), path.Clean("/"+text)
		v, err := ParseGlob(pattern)
		if err != nil || text == "/" {
			continue
		}
		// "/a/**" matches "/a" to doublestar, but "/a*/**" does not.
		if dir, ok := strings.CutSuffix(pattern, "/**"); ok && !strings.HasSuffix(dir, "/**") {
			if above, err := ParseGlob(dir); err == nil && above.Match(text) {
				if !v.Match(text) {
					t.Errorf("Match(%q) of %q = false, want true", text, pattern)
				}
				continue
			}
		}
		want := doublestarMatches(t, pattern, text, true)
		if got := v.Match(text); got != want {
			t.Errorf("Match(%q) of %q = %v, want %v", text, pattern, got, want)
		}
		if got := findWithGlobs(v, text); got != want {
			t.Errorf("one of the Globs of %q matches %q: %v, want %v", pattern, text, got, want)
		}
		if got := v.Captures(text) != nil; got != want {
			t.Errorf("Captures(%q) of %q != nil: %v, want %v", text, pattern, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("%d paths matched: want enough of them for the test to tell anything", matched)
	}
}

// findWithGlobs asks the Globs of a condition as a reader of directories does.
func findWithGlobs(v Values, p string) bool {
	return slices.ContainsFunc(v.Globs(), func(g Glob) bool {
		if literal, ok := g.Path(); ok {
			return literal == p
		}
		dir, name := path.Split(p)
		dir = strings.TrimSuffix(dir, "/")
		if alone, ok := g.Dir(); ok && alone != dir {
			return false
		}
		prefix, all := g.NamePrefix()
		if g.MatchDir(dir) && g.MatchName(name) && strings.Trim(g.NameLetters(), name) != "" {
			panic("a name without one of NameLetters")
		}
		return g.MatchDir(dir) && strings.HasPrefix(name, prefix) && (all || g.MatchName(name))
	})
}
