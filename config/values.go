package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Values is the condition that a key of a match sets: a list of patterns,
// some of which may be turned around by a leading "!". The zero Values is no
// condition. It is immutable.
type Values struct {
	mode     mode
	positive []pattern
	negative []pattern
	written  []string
}

// mode is how a kind of value is compared.
type mode byte

const (
	plainMode  mode = iota // trimmed
	pathMode               // as a path: * and ? stop at "/", ** does not
	hexMode                // trimmed, without regard to case and 0x
	numberMode             // trimmed, without leading zeros
)

// pattern is one alternative of a pattern: a literal, a span of numbers, or
// one with wildcards.
type pattern struct {
	written string // as the configuration has it
	place   int    // in Values.written of what it is an alternative of
	literal string
	wild    *wildcards // nil: literal or span
	span    bool
	lo, hi  int
	// prefix that everything begins with which it matches; of paths only.
	prefix string
	tokens []token // of paths only
	// groups is an expression whose groups are what the wildcards of a path
	// stood for. It is made when it is asked for: few configurations do.
	groups func() *regexp.Regexp
}

// Empty reports whether v is no condition.
func (v Values) Empty() bool { return len(v.written) == 0 }

// single reports whether v is fulfilled by one value alone.
func (v Values) single() bool { return len(v.positive) == 1 && v.positive[0].wild == nil }

// MatchLiteral reports whether a positive pattern without wildcards is have.
func (v Values) MatchLiteral(have string) bool {
	have = v.mode.normal(have)
	return slices.ContainsFunc(v.positive, func(p pattern) bool { return !p.span && p.wild == nil && p.literal == have })
}

// Patterns lists the patterns as the configuration has them, "!" included.
func (v Values) Patterns() []string { return slices.Clone(v.written) }

// Match reports whether what a device has fulfils the condition: one of the
// positive patterns matches, or there is none, and no negative one does. have
// is empty where the device lacks the attribute, and empty strings in it do
// not count: an absent attribute fulfils negative patterns only. It has
// several values where the device has, such as the classes of its interfaces:
// then a positive pattern holds if any value matches, and a negative one fails
// if any does.
func (v Values) Match(have ...string) bool {
	ok := len(v.positive) == 0
	for _, h := range have {
		h = v.mode.normal(h)
		if h == "" {
			continue
		}
		if v.mode.matches(v.negative, h) {
			return false
		}
		ok = ok || v.mode.matches(v.positive, h)
	}
	return ok
}

// normal is a value of a device in the form that patterns are compared with.
func (m mode) normal(s string) string {
	switch m {
	case pathMode:
		return s
	case hexMode:
		return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x")
	case numberMode:
		s = strings.TrimSpace(s)
		if digits(s) == len(s) && s != "" {
			s = strings.TrimLeft(s[:len(s)-1], "0") + s[len(s)-1:]
		}
		return s
	default:
		return strings.TrimSpace(s)
	}
}

// matches reports whether any of the patterns matches s, which is normal.
func (m mode) matches(patterns []pattern, s string) bool {
	n, err := -1, error(nil)
	if m == numberMode {
		if n, err = strconv.Atoi(s); err != nil {
			n = -1
		}
	}
	for i := range patterns {
		p := &patterns[i]
		switch {
		case p.span:
			if p.lo <= n && n <= p.hi {
				return true
			}
		case p.wild == nil:
			if p.literal == s {
				return true
			}
		case m == pathMode:
			if strings.HasPrefix(s, p.prefix) && p.wild.matchPath(s) {
				return true
			}
		case p.wild.name.match(s):
			return true
		}
	}
	return false
}

// Prefixes of paths, for glob: every path that matches begins with one of
// them. They are sorted and none begins with another, so that a reader of
// sorted paths finds the candidates by binary search and sees none twice.
func (v Values) Prefixes() []string {
	prefixes := []string{devDir}
	if len(v.positive) > 0 {
		prefixes = nil
	}
	for i := range v.positive {
		prefixes = append(prefixes, v.positive[i].prefix)
	}
	slices.Sort(prefixes)
	var out []string
	for _, p := range prefixes {
		if n := len(out); n == 0 || !strings.HasPrefix(p, out[n-1]) {
			out = append(out, p)
		}
	}
	return out
}

// Captures is what the wildcards of a glob stood for in a path that it
// matches, in order: those of the first pattern that does. It is nil where
// none does.
func (v Values) Captures(path string) []string {
	for i := range v.positive {
		p := &v.positive[i]
		if !v.mode.matches(v.positive[i:i+1], path) {
			continue
		}
		if p.wild == nil {
			return []string{}
		}
		if found := p.groups().FindStringSubmatch(path); found != nil {
			return found[1:]
		}
	}
	return nil
}

// wildcards is how many wildcards each positive pattern of a glob has at
// least.
func (v Values) wildcards() int {
	least := -1
	for i := range v.positive {
		n := 0
		for _, t := range v.positive[i].tokens {
			if t.kind != literalToken {
				n++
			}
		}
		if least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}
