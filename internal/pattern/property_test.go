package pattern_test

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// simple is the plain meaning of a pattern without braces and escapes: each wildcard
// takes as much as it can, and less until the rest matches. captured is what each took.
func simple(p, s string, isPath bool) (captured []string, ok bool) {
	try := func(n int, took, rest string) bool {
		if more, found := simple(p[n:], rest, isPath); found {
			captured, ok = append([]string{took}, more...), true
		}
		return ok
	}
	r, size := utf8.DecodeRuneInString(s)
	one := size > 0 && !(isPath && r == '/')
	switch {
	case p == "":
		return nil, s == ""
	case isPath && p == "/**":
		if s != "" && s[0] != '/' {
			return nil, false
		}
		return []string{strings.TrimPrefix(s, "/")}, true
	case isPath && strings.HasPrefix(p, "/**/"):
		if s == "" || s[0] != '/' {
			return nil, false
		}
		for i := len(s) - 1; i > 0; i-- {
			if s[i] == '/' && try(4, s[1:i], s[i+1:]) {
				return captured, ok
			}
		}
		try(4, "", s[1:])
	case p[0] == '*':
		n := len(p) - len(strings.TrimLeft(p, "*"))
		for i := len(s); i >= 0; i-- {
			if !(isPath && strings.Contains(s[:i], "/")) && utf8.ValidString(s[:i]) && try(n, s[:i], s[i:]) {
				return captured, ok
			}
		}
	case p[0] == '?':
		if one {
			try(1, s[:size], s[size:])
		}
	case p[0] == '[':
		end := strings.Index(p, "]")
		class, not := strings.CutPrefix(p[1:end], "!")
		in := strings.ContainsRune(class, r)
		if lo, hi, ranged := strings.Cut(class, "-"); ranged {
			in = lo <= s[:size] && s[:size] <= hi
		}
		if one && in != not {
			try(end+1, s[:size], s[size:])
		}
	default:
		if _, n := utf8.DecodeRuneInString(p); strings.HasPrefix(s, p[:n]) {
			return simple(p[n:], s[n:], isPath)
		}
	}
	return captured, ok
}

// Patterns match according to the plain meaning, and to doublestar where both agree.
func TestMatchesLikeOthers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	words := func(most int, from ...string) string {
		var b strings.Builder
		for range 1 + rng.IntN(most) {
			b.WriteString(from[rng.IntN(len(from))])
		}
		return b.String()
	}
	matched := map[string]int{}
	check := func(by, p, s string, isPath, got, want bool) {
		if got != want {
			t.Errorf("%q matches %q: %v, and %s says %v (path: %v)", p, s, got, by, want, isPath)
		}
		if want {
			matched[by]++
		}
	}
	for range 30_000 {
		p := words(7, "a", "b", "é", "/", "/", "*", "*", "/**/", "?", "[ab]", "[!a]", "[!a-é]", "ab")
		s := words(7, "a", "b", "é", "/", "ab", "a/b", "世")
		v := values(t, pattern.Text, p)
		want, ok := simple(p, s, false)
		check("its meaning as a text", p, s, false, v.Match(s), ok)
		if diff := cmp.Diff(want, v.Captures(s)); ok && len(want) > 0 && diff != "" {
			t.Errorf("%q of %q (-want +got):\n%s", p, s, diff)
		}

		p, s = path.Clean("/"+p), path.Clean("/"+s)
		v = values(t, pattern.Path, p)
		for strings.Contains(p+"/", "/**/**/") {
			p = strings.TrimSuffix(strings.ReplaceAll(p+"/", "/**/**/", "/**/"), "/")
		}
		want, ok = simple(p, s, true)
		check("its meaning as a path", p, s, true, v.Match(s), ok)
		if diff := cmp.Diff(want, v.Captures(s)); ok && len(want) > 0 && diff != "" {
			t.Errorf("%q of %q (-want +got):\n%s", p, s, diff)
		}
		if a := v.Alternatives()[0]; ok && s != "/" && path.Dir(s) != "/" && !a.Through().Match(path.Dir(s)) && !strings.HasSuffix(p, "/**") {
			t.Errorf("%q matches %q, but leads not through its directory", p, s)
		}

		// In doublestar a negated class matches "/", and "**" has another meaning as
		// the last element or as a part of one.
		p = path.Clean("/" + words(7, "a", "b", "é", "/", "/", "*", "*", "/**/", "?", "[ab]", "{a,b*}", "{a,/b{*,?}}", `\*`, `\a`, "ab"))
		if s == "/" || strings.Count(p, "{") > 4 {
			continue
		}
		v = values(t, pattern.Path, p)
		if slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
			return strings.Contains(strings.ReplaceAll(a.String(), "/**/", "//"), "**")
		}) {
			continue
		}
		doublestarSays, err := doublestar.Match(p, s)
		if err != nil {
			t.Fatal(err)
		}
		check("doublestar", p, s, true, v.Match(s), doublestarSays)
	}
	for by, n := range matched {
		if n < 300 {
			t.Errorf("%s: %d matched: want enough of them for the test to tell anything", by, n)
		}
	}
}

// Parse accepts the patterns of doublestar, except for some classes, and every method
// works for an accepted pattern.
func FuzzParse(f *testing.F) {
	f.Add("/dev/{tty,a{b,c}}[!0-9a]?*", "/dev/ttyx12")
	f.Add("/dev/**/v*", "/dev/a/b/v1")
	f.Add(`/dev/\[a\]\**`, "/dev/[a]*x")
	f.Add("0,2-7", "3")
	f.Fuzz(func(t *testing.T, written, s string) {
		for _, kind := range []pattern.Kind{pattern.Text, pattern.Path, pattern.Hex, pattern.HexPrefix, pattern.Number} {
			p, err := pattern.Parse(kind, written)
			trimmed := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(written), "!"))
			if valid := doublestar.ValidatePattern(trimmed) && utf8.ValidString(written); err == nil && !valid {
				t.Errorf("Parse(%q) takes what is not valid", written)
			} else if err != nil && valid && strings.HasPrefix(err.Error(), "is not a pattern") {
				t.Errorf("Parse(%q) refuses what is valid", written)
			}
			if err != nil {
				continue
			}
			v := p.Positive()
			got := v.Match(s)
			for _, a := range p.Alternatives() {
				if n := len(v.Captures(s)); got && len(p.Alternatives()) == 1 && n != a.Wildcards() {
					t.Errorf("%d captures of %d wildcards", n, a.Wildcards())
				}
				_, _, _ = a.Shape(), a.Through(), a.String()
			}
			if got != (v.Captures(s) != nil) {
				t.Errorf("%q: Match(%q) = %v, Captures = %q", written, s, got, v.Captures(s))
			}
		}
	})
}
