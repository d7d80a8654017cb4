package pattern

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// normalize converts a value to the form of the patterns.
func (k Kind) normalize(s string) string {
	switch k {
	case Path:
		return s
	case Hex, HexPrefix:
		return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x")
	case Number:
		s = strings.TrimSpace(s)
		for len(s) > 1 && s[0] == '0' {
			s = s[1:]
		}
		return s
	}
	return strings.TrimSpace(s)
}

// Match reports whether the alternative matches all of a value.
func (a Alternative) Match(value string) bool { return a.matches(a.kind.normalize(value)) }

// matches is Match of a value in normal form.
func (a *Alternative) matches(s string) bool {
	if a.span != nil {
		n, err := strconv.ParseUint(s, 10, 31)
		return err == nil && a.span[0] <= n && n <= a.span[1]
	}
	if text, whole := a.Literal(); whole {
		return s == text
	}
	prefix := a.Prefix()
	if !strings.HasPrefix(s, prefix) {
		return false
	}
	if len(a.tokens) == 2 && a.tokens[1].kind == star && a.tokens[0].kind == literal { // most patterns
		return a.kind != Path || strings.IndexByte(s[len(prefix):], '/') < 0
	}
	return strings.Contains(s, a.lastLiteral()) && a.match(s, nil)
}

// lastLiteral is contained in every match. Searching for it first is faster than
// trying the wildcards.
func (a *Alternative) lastLiteral() string {
	for _, t := range slices.Backward(a.tokens) {
		if t.kind == literal {
			return t.text
		}
	}
	return ""
}

// wildcardMatch is the part of a text that a wildcard matches: s[from:to].
type wildcardMatch struct{ token, from, to int }

// match reports whether the tokens match all of s, and stores the match of each
// in captured unless that is nil. It goes from right to left, so that the first
// wildcard is the greedy one.
//
// On a mismatch the nearest star to the right is extended by one character, or else the
// nearest "**" by one element. Wildcards further to the right need no second attempt:
// the nearer one reaches everything that they could. So the time is polynomial.
func (a *Alternative) match(s string, captured []string) bool {
	const none = -1
	lastStar := wildcardMatch{token: none}
	lastDeep := wildcardMatch{token: none}
	for i, end := len(a.tokens)-1, len(s); i >= 0 || end > 0; i-- {
		from := 0
		ok := false
		if i >= 0 {
			from, ok = a.shortest(i, s[:end])
		}
		switch {
		case ok:
		case lastStar.token != none && a.extend(&lastStar, s):
			i = lastStar.token
			from = lastStar.from
			end = lastStar.to
		case lastDeep.token != none && a.extend(&lastDeep, s):
			i = lastDeep.token
			from = lastDeep.from
			end = lastDeep.to
		default:
			return false
		}
		switch t := &a.tokens[i]; {
		case t.kind == star:
			lastStar = wildcardMatch{i, from, end}
		case t.kind == deep:
			lastStar = wildcardMatch{token: none}
			lastDeep = wildcardMatch{i, from, end}
		case t.kind == literal && a.kind == Path && strings.Contains(t.text, "/"):
			lastStar.token = none // its element has matched
		}
		if captured != nil {
			captured[i] = s[from:end]
		}
		end = from
	}
	return true
}

// shortest is the offset of the shortest match of token i at the end of s.
func (a *Alternative) shortest(i int, s string) (from int, ok bool) {
	switch t := &a.tokens[i]; t.kind {
	case literal:
		return len(s) - len(t.text), strings.HasSuffix(s, t.text)
	case single:
		r, size := utf8.DecodeLastRuneInString(s)
		return len(s) - size, size > 0 && t.matches(r) && !(a.kind == Path && r == '/')
	case deep:
		if i < len(a.tokens)-1 {
			return len(s) - 1, strings.HasSuffix(s, "/")
		}
	}
	return len(s), true
}

// extend extends the match of a star by one character, or of "**" by one element, if possible.
func (a *Alternative) extend(t *wildcardMatch, s string) bool {
	from := strings.LastIndexByte(s[:t.from], '/')
	if a.tokens[t.token].kind == star {
		r, size := utf8.DecodeLastRuneInString(s[:t.from])
		if from = t.from - size; size == 0 || a.kind == Path && r == '/' {
			return false
		}
	}
	if from >= 0 {
		t.from = from
	}
	return from >= 0
}

// matches reports whether a class or "?" matches a character.
func (t *token) matches(r rune) bool {
	in := false
	for text := t.text; text != "" && !in; {
		lo, n := utf8.DecodeRuneInString(text)
		hi, m := utf8.DecodeRuneInString(text[n:])
		in = lo <= r && r <= hi
		text = text[n+m:]
	}
	return in != t.not
}

// captures lists the matches of the wildcards in s, which the alternative matches.
func (a *Alternative) captures(s string) []string {
	captured := make([]string, len(a.tokens))
	a.match(s, captured)
	out := []string{}
	for i, t := range a.tokens {
		switch t.kind {
		case single, star:
			out = append(out, captured[i])
		case deep:
			out = append(out, strings.Trim(captured[i], "/"))
		}
	}
	return out
}

// Wildcards is the number of wildcards.
func (a Alternative) Wildcards() int {
	n := 0
	for _, t := range a.tokens {
		if t.kind != literal {
			n++
		}
	}
	return n
}

// String is the alternative as written.
func (a Alternative) String() string { return a.written }

// Literal is the only match of an alternative without wildcards.
func (a Alternative) Literal() (text string, ok bool) {
	if a.span != nil || len(a.tokens) > 1 {
		return "", false
	} else if len(a.tokens) == 0 {
		return "", true
	}
	return a.tokens[0].text, a.tokens[0].kind == literal
}

// Prefix is the literal prefix of every match.
func (a Alternative) Prefix() string {
	if len(a.tokens) > 0 && a.tokens[0].kind == literal {
		return a.tokens[0].text
	} else if len(a.tokens) > 0 && a.tokens[0].kind == deep {
		return "/"
	}
	return ""
}

// Shape is the alternative with "*" for every wildcard, and without escapes: the
// elements of a path.
func (a Alternative) Shape() string {
	var b strings.Builder
	for i, t := range a.tokens {
		switch {
		case t.kind == literal:
			b.WriteString(t.text)
		case t.kind == deep && i == len(a.tokens)-1:
			b.WriteString("/*")
		case t.kind == deep:
			b.WriteString("/*/")
		default:
			b.WriteByte('*')
		}
	}
	return b.String()
}

// Fits reports whether the alternative may match n characters, all of them in chars. A
// HexPrefix counts as a Hex.
func (a Alternative) Fits(n int, chars string) bool {
	tokens := a.tokens
	length := 0
	unbounded := false
	if a.kind == HexPrefix {
		tokens = tokens[:len(tokens)-1]
	}
	for _, t := range tokens {
		if strings.Trim(t.text, chars) != "" {
			return false
		}
		switch t.kind {
		case literal:
			length += len(t.text)
		case single:
			length++
		default:
			unbounded = true
		}
	}
	return length == n || unbounded && length <= n
}

// Join is one condition with the patterns of all, which are of one kind.
func Join(all ...Values) (joined Values) {
	if len(all) == 1 {
		return all[0]
	}
	for _, v := range all {
		joined.kind = v.kind
		joined.patterns = append(joined.patterns, v.patterns...)
	}
	return joined
}

// Split lists the patterns as separate conditions.
func (v Values) Split() []Values {
	all := make([]Values, len(v.patterns))
	for i := range v.patterns {
		all[i] = Values{v.kind, v.patterns[i : i+1]}
	}
	return all
}

// Positive is v with each "!" removed.
func (v Values) Positive() Values {
	if !v.Negative() {
		return v
	}
	positive := Values{kind: v.kind}
	for _, p := range v.patterns {
		p.written = strings.TrimSpace(strings.TrimPrefix(p.written, "!"))
		p.not = false
		positive.patterns = append(positive.patterns, p)
	}
	return positive
}

// Empty reports whether v is no condition.
func (v Values) Empty() bool { return len(v.patterns) == 0 }

// Negative reports whether v has patterns with a leading "!".
func (v Values) Negative() bool { return v.has(true) }

// has reports whether v has patterns with or without "!".
func (v Values) has(not bool) bool {
	return slices.ContainsFunc(v.patterns, func(p pattern) bool { return p.not == not })
}

// Patterns lists the patterns as written, "!" included.
func (v Values) Patterns() []string {
	var all []string
	for _, p := range v.patterns {
		all = append(all, p.written)
	}
	return all
}

// Match reports whether the values of a device match: any of them a positive
// pattern, if there is one, and none of them a negative one. No value, or an
// empty one, is an absent attribute, which matches negative patterns only.
func (v Values) Match(have ...string) bool {
	ok := !v.has(false)
	for _, h := range have {
		if h = v.kind.normalize(h); h == "" {
			continue
		}
		if v.firstMatch(h, true) != nil {
			return false
		}
		ok = ok || v.firstMatch(h, false) != nil
	}
	return ok
}

// firstMatch is the first alternative that matches s, in normal form, of the patterns
// with or without "!".
func (v Values) firstMatch(s string, not bool) *Alternative {
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
	if have = v.kind.normalize(have); have != "" {
		if a := v.firstMatch(have, false); a != nil {
			return a.captures(have)
		}
	}
	return nil
}

// Alternatives lists the alternatives of all patterns without "!".
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
	if !v.has(false) {
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

// Distance is the number of letters to add, drop, replace or swap with their neighbour
// to turn a into b.
func Distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
