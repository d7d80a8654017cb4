package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// parse reads one pattern of the kind. The rule is empty, or what s breaks.
func (k kind) parse(s string) (patterns []pattern, not bool, rule, hint string) {
	s = strings.TrimSpace(s)
	if after, ok := strings.CutPrefix(s, "!"); ok {
		s, not = strings.TrimSpace(after), true
	}
	if s == "" {
		if k.mode != pathMode {
			hint = `for what is absent write "!*"`
		}
		return nil, not, "is empty: want " + k.want, hint
	}
	if k.mode == numberMode && !strings.ContainsAny(s, `*?[]{}\`) {
		patterns, ok := spans(s)
		if !ok {
			rule, hint = k.check(alternative{tokens: []token{{char: '-'}}})
		}
		return patterns, not, rule, hint
	}
	if k.mode == hexMode {
		s = strings.ToLower(s)
	}
	alternatives, rule := parsePattern(s, k.mode == pathMode)
	for _, a := range alternatives {
		if k.mode == hexMode {
			a.tokens = trim0x(a.tokens)
		}
		if k.check != nil {
			if rule, hint = k.check(a); rule != "" {
				break
			}
		}
		if k.prefix {
			a.tokens = append(a.tokens, token{kind: starToken})
		}
		p := k.mode.pattern(a.tokens)
		p.written = a.written
		patterns = append(patterns, p)
	}
	return patterns, not, rule, hint
}

// pattern compiles one alternative.
func (m mode) pattern(tokens []token) pattern {
	prefix, whole := literalPrefix(tokens)
	p := pattern{literal: prefix}
	if !whole {
		p = pattern{wild: m.compile(tokens)}
	}
	if m == pathMode {
		p.prefix, p.tokens = prefix, tokens
		p.groups = sync.OnceValue(func() *regexp.Regexp { return regexpOf(tokens) })
	}
	return p
}

// trim0x drops "0x" at the beginning and behind a colon.
func trim0x(tokens []token) []token {
	if !slices.ContainsFunc(tokens, token{char: 'x'}.equal) {
		return tokens
	}
	var out []token
	for i := 0; i < len(tokens); i++ {
		start := len(out) == 0 || out[len(out)-1].equal(token{char: ':'})
		if start && i+1 < len(tokens) && tokens[i].equal(token{char: '0'}) && tokens[i+1].equal(token{char: 'x'}) {
			i++
			continue
		}
		out = append(out, tokens[i])
	}
	return out
}

// spans reads numbers and ranges with commas between them: "0,2-7".
func spans(s string) (patterns []pattern, ok bool) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		lo, err1 := strconv.ParseUint(strings.TrimSpace(first), 10, 31)
		hi, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 31)
		if err1 != nil || err2 != nil || hi < lo {
			return nil, false
		}
		patterns = append(patterns, pattern{span: true, lo: int(lo), hi: int(hi)})
	}
	return patterns, true
}

// values is v as a condition of the kind: a string or a list of strings.
func (v value) values(k kind) Values {
	items, ok := elements(v.raw)
	if !ok {
		items = []any{v.raw}
	}
	if len(items) == 0 {
		v.report("an empty list: want "+k.want, "")
	}
	out := Values{mode: k.mode}
	for _, raw := range items {
		n, isInt := raw.(int64)
		s, isString := raw.(string)
		switch {
		case isInt && k.bare:
			s = strconv.FormatInt(n, 10)
		case isInt:
			v.of(raw).mistyped(k.want, k.intHint(n))
			continue
		case !isString:
			v.of(raw).mistyped(k.want, "")
			continue
		}
		if v.w.alternatives > maxAllAlternatives {
			break
		}
		patterns, not, rule, hint := k.parse(s)
		if v.w.alternatives += len(patterns); v.w.alternatives > maxAllAlternatives {
			rule, hint = fmt.Sprintf("is too much: want at most %d patterns and alternatives in a configuration", maxAllAlternatives), ""
		}
		if rule != "" {
			written := quote(s)
			if isInt {
				written = s
			}
			v.report(written+" "+rule, hint)
			continue
		}
		for i := range patterns {
			patterns[i].place = len(out.written)
		}
		out.written = append(out.written, strings.TrimSpace(s))
		if not {
			out.negative = append(out.negative, patterns...)
		} else {
			out.positive = append(out.positive, patterns...)
		}
	}
	return out
}

// intHint says how to write what a bare integer may have been: TOML takes
// 0x10de and 4318 for the same.
func (k kind) intHint(n int64) string {
	if k.mode != hexMode {
		return fmt.Sprintf("write it in quotes: \"%d\"", n)
	}
	if k.hex == 0 || n < 0 {
		return ""
	}
	decimal, hex := fmt.Sprintf("%0*d", k.hex, n), fmt.Sprintf("%0*x", k.hex, n)
	switch {
	case len(hex) > k.hex:
		return ""
	case len(decimal) > k.hex || decimal == hex:
		return fmt.Sprintf("write it in quotes: %q", hex)
	default:
		return fmt.Sprintf("TOML takes %d and %#x for the same: write %q or %q", n, n, decimal, hex)
	}
}
