package pattern

import (
	"slices"
	"strings"
)

// Values is what a configuration wants of a value: a list of patterns, some of
// which may have a leading "!". The zero Values is no condition. It is
// immutable.
type Values struct {
	kind               Kind
	patterns           []Pattern
	positive, negative bool // whether there are such patterns
}

// NewValues is the condition that patterns of one kind make.
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

// Patterns lists the patterns as the configuration has them, "!" included.
func (v Values) Patterns() []string {
	var all []string
	for _, p := range v.patterns {
		all = append(all, p.written)
	}
	return all
}

// Parsed lists the patterns.
func (v Values) Parsed() []Pattern { return slices.Clone(v.patterns) }

// Match reports whether what a device has fulfils the condition: one of the
// positive patterns matches, or there is none, and no negative one does. have
// is empty where the device lacks the attribute, and empty strings in it do
// not count: an absent attribute fulfils negative patterns only. It has
// several values where the device has, such as the classes of its interfaces:
// then a positive pattern holds if any value matches, and a negative one fails
// if any does.
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

// first is the first alternative of the patterns with or without "!" that
// matches s, which is normal.
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

// Captures is what the wildcards stood for in a value that v matches, in
// order: those of the first pattern that does. It is nil where none does.
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

// Literal is the one text that v selects, if that is one without wildcards.
func (v Values) Literal() (text string, ok bool) {
	if all := v.Alternatives(); len(all) == 1 {
		return all[0].Literal()
	}
	return "", false
}

// Prefixes are sorted, and none begins with another: every value that matches
// begins with one of them, so that a reader of sorted values finds the
// candidates by binary search and sees none twice.
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
