package pattern

import (
	"slices"
	"strings"
)

// Values is a condition on a value: a list of patterns, some of them with a
// leading "!". The zero Values is no condition. It is immutable.
type Values struct {
	kind               Kind
	patterns           []Pattern
	positive, negative bool // whether there are such patterns
}

// NewValues is a condition of patterns of one kind.
func NewValues(patterns ...Pattern) Values {
	v := Values{patterns: patterns}
	for _, p := range patterns {
		v.kind = p.kind
		v.positive = v.positive || !p.not
		v.negative = v.negative || p.not
	}
	return v
}

// Empty reports whether v is no condition.
func (v Values) Empty() bool { return len(v.patterns) == 0 }

// Negative reports whether v has patterns with a leading "!".
func (v Values) Negative() bool { return v.negative }

// Patterns lists the patterns as written, "!" included.
func (v Values) Patterns() []string {
	var all []string
	for _, p := range v.patterns {
		all = append(all, p.written)
	}
	return all
}

// Parsed lists the patterns.
func (v Values) Parsed() []Pattern { return slices.Clone(v.patterns) }

// Match reports whether the values of a device match: any of them a positive
// pattern, if there is one, and none of them a negative one. No value, or an
// empty one, is an absent attribute, which matches negative patterns only.
func (v Values) Match(have ...string) bool {
	ok := !v.positive
	for _, h := range have {
		if h = v.kind.normal(h); h == "" {
			continue
		}
		if v.negative && v.first(h, true) != nil {
			return false
		}
		ok = ok || v.first(h, false) != nil
	}
	return ok
}

// first is the first alternative that matches s, which is in normal form, of the
// patterns with or without "!".
func (v Values) first(s string, not bool) *Alternative {
	for i := range v.patterns {
		p := &v.patterns[i]
		for j := range p.alternatives {
			if a := &p.alternatives[j]; p.not == not && a.matches(s) {
				return a
			}
		}
	}
	return nil
}

// Captures lists the matches of the wildcards of the first pattern without "!"
// that matches a value. It is nil if none does.
func (v Values) Captures(have string) []string {
	if have = v.kind.normal(have); have != "" {
		if a := v.first(have, false); a != nil {
			return a.captures(have)
		}
	}
	return nil
}

// Alternatives lists those of all patterns without "!".
func (v Values) Alternatives() []Alternative {
	var all []Alternative
	for _, p := range v.patterns {
		if !p.not {
			all = append(all, p.alternatives...)
		}
	}
	return all
}

// Literal is the only positive alternative, if it has no wildcards.
func (v Values) Literal() (text string, ok bool) {
	if all := v.Alternatives(); len(all) == 1 {
		return all[0].Literal()
	}
	return "", false
}

// Prefixes lists the literal prefixes of all matches, sorted, and none a prefix of
// another: for a binary search in sorted values.
func (v Values) Prefixes() []string {
	if !v.positive {
		return []string{""}
	}
	var prefixes []string
	for _, a := range v.Alternatives() {
		prefixes = append(prefixes, a.Prefix())
	}
	slices.Sort(prefixes)
	last := 0
	for _, p := range prefixes {
		if !strings.HasPrefix(p, prefixes[last]) {
			last++
			prefixes[last] = p
		}
	}
	return prefixes[:last+1]
}
