package pattern

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// normalize returns a value in the form of the patterns, so that both can be compared byte by byte.
func (k Kind) normalize(s string) string {
	switch k {
	case Path:
		return s
	case Hex, HexPrefix:
		// The kernel writes some IDs with "0x" (PCI) and some without (USB).
		return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x")
	case Number:
		s = strings.TrimSpace(s)
		// One digit stays, so that "000" is "0".
		for len(s) > 1 && s[0] == '0' {
			s = s[1:]
		}
		return s
	}
	return strings.TrimSpace(s)
}

// Match reports whether the alternative matches all of a value. Unlike Values.Match, it does not
// treat an empty value as absent.
func (a Alternative) Match(value string) bool {
	return a.matches(a.kind.normalize(value))
}

// matches is like Match, for a value in normal form.
func (a *Alternative) matches(s string) bool {
	// A value that is no number is in no range.
	if a.span != nil {
		n, err := strconv.ParseUint(s, 10, 31)
		return err == nil && a.span.first <= n && n <= a.span.last
	}
	text, isLiteral := a.Literal()
	if isLiteral {
		return s == text
	}
	// It rules out most values.
	return strings.HasPrefix(s, a.Prefix()) && a.match(s, nil)
}

// wildcardMatch is the part s[from:to] of a text s that a wildcard matches.
type wildcardMatch struct {
	token int // its index
	// from is moved to the left when the wildcard is extended.
	from int
	to   int
}

// match reports whether the tokens match all of s. It stores the match of each token in captured, unless
// captured is nil. It proceeds from right to left, so that the first wildcard matches as much as
// possible.
//
// On a mismatch the nearest star to the right is extended by one character, or else the
// nearest "**" by one element. Wildcards further to the right need no second attempt, because
// the nearer wildcard reaches every match that they could reach. The time is therefore polynomial.
func (a *Alternative) match(s string, captured []string) bool {
	const none = -1
	// lastStar and lastDeep are the nearest wildcards to the right that can still be extended.
	lastStar := wildcardMatch{token: none}
	lastDeep := wildcardMatch{token: none}
	i := len(a.tokens) - 1
	end := len(s)
	// s[end:] is matched by the tokens after i. Both must end at the same time.
	for ; i >= 0 || end > 0; i-- {
		from := 0
		ok := false
		if i >= 0 {
			from, ok = a.shortest(i, s[:end])
		}
		switch {
		case ok:
		// The tokens to the left of the wildcard are matched again, from its new start.
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
			// A star to the right of "**" needs no second attempt.
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

// shortest is the offset of the shortest match of token i at the end of s. A star and a final
// "/**" match the empty text first. If ok is false, from has no meaning.
func (a *Alternative) shortest(i int, s string) (from int, ok bool) {
	switch t := &a.tokens[i]; t.kind {
	case literal:
		return len(s) - len(t.text), strings.HasSuffix(s, t.text)
	case single:
		r, size := utf8.DecodeLastRuneInString(s)
		isSeparator := a.kind == Path && r == '/'
		return len(s) - size, size > 0 && !isSeparator && t.matches(r)
	case deep:
		if i < len(a.tokens)-1 {
			// "/**/" in the middle matches at least the "/".
			return len(s) - 1, strings.HasSuffix(s, "/")
		}
	}
	return len(s), true
}

// extend extends the match of a star by one character, or of "**" by one element, if possible.
func (a *Alternative) extend(t *wildcardMatch, s string) bool {
	// "**" is extended by the element to the left, with the "/" before it.
	from := strings.LastIndexByte(s[:t.from], '/')
	if a.tokens[t.token].kind == star {
		r, size := utf8.DecodeLastRuneInString(s[:t.from])
		isSeparator := a.kind == Path && r == '/'
		// The star has reached the start of the text, or of its element.
		if size == 0 || isSeparator {
			return false
		}
		from = t.from - size
	}
	if from >= 0 {
		t.from = from
	}
	return from >= 0
}

// matches reports whether a class or "?" matches a character.
func (t *token) matches(r rune) bool {
	in := false
	// The text has two characters for each range. "?" has none, and is negated.
	for text := t.text; text != "" && !in; {
		lo, n := utf8.DecodeRuneInString(text)
		hi, m := utf8.DecodeRuneInString(text[n:])
		in = lo <= r && r <= hi
		text = text[n+m:]
	}
	return in != t.not
}

// captures returns the text that each wildcard matches in s. The alternative matches s. s must be
// in normal form. The result has one text for each wildcard, in the order of the pattern.
func (a *Alternative) captures(s string) []string {
	captured := make([]string, len(a.tokens))
	a.match(s, captured)
	out := []string{}
	for i, t := range a.tokens {
		switch t.kind {
		case single, star:
			out = append(out, captured[i])
		case deep:
			// The "/" around "**" belongs to its token, but not to the text that people expect.
			out = append(out, strings.Trim(captured[i], "/"))
		}
	}
	return out
}

// Wildcards returns the number of wildcards. A class and "?" are wildcards, too. A HexPrefix has
// one more than written.
func (a Alternative) Wildcards() int {
	n := 0
	for _, t := range a.tokens {
		if t.kind != literal {
			n++
		}
	}
	return n
}

// String returns the alternative as written, except that {a,b} is expanded, and that a
// hexadecimal number is in normal form.
func (a Alternative) String() string { return a.written }

// Literal returns the only match of an alternative without wildcards. For other alternatives, ok is
// false.
func (a Alternative) Literal() (text string, ok bool) {
	// Adjacent literal characters are always one token, see tokenize.
	if a.span != nil || len(a.tokens) > 1 {
		return "", false
	}
	if len(a.tokens) == 0 {
		return "", true
	}
	return a.tokens[0].text, a.tokens[0].kind == literal
}

// Prefix returns the literal prefix of every match.
func (a Alternative) Prefix() string {
	if len(a.tokens) == 0 {
		return ""
	}
	first := &a.tokens[0]
	switch first.kind {
	case literal:
		return first.text
	case deep:
		// A match of "/**" begins with "/", or is empty, which no path is.
		return "/"
	}
	return ""
}

// Shape returns the alternative with "*" in place of every wildcard, and without escapes. It
// shows the elements of a path. Package config checks paths by their shapes. The result cannot be
// parsed again.
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

// Fits reports whether the alternative can match n characters that are all in chars. For a HexPrefix,
// it considers the pattern itself and not the numbers that begin with it.
func (a Alternative) Fits(n int, chars string) bool {
	tokens := a.tokens
	length := 0
	unbounded := false
	if a.kind == HexPrefix {
		// The last token is the star that tokenize appends.
		tokens = tokens[:len(tokens)-1]
	}
	for _, t := range tokens {
		// The text of a class consists of the ends of its ranges.
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
	if unbounded {
		return length <= n
	}
	return length == n
}

// Join returns one condition with the patterns of several, which are of one kind.
func Join(all ...Values) Values {
	if len(all) == 1 {
		return all[0]
	}
	var joined Values
	for _, v := range all {
		joined.kind = v.kind
		joined.patterns = append(joined.patterns, v.patterns...)
	}
	return joined
}

// Split returns each pattern as a separate condition. The conditions share the patterns of v,
// which nobody changes.
func (v Values) Split() []Values {
	all := make([]Values, len(v.patterns))
	for i := range v.patterns {
		all[i] = Values{v.kind, v.patterns[i : i+1]}
	}
	return all
}

// Positive returns v without any leading "!".
func (v Values) Positive() Values {
	if !v.Negative() {
		return v
	}
	positive := Values{kind: v.kind}
	for _, p := range v.patterns {
		// p is a copy, so that v does not change.
		p.written = strings.TrimSpace(strings.TrimPrefix(p.written, "!"))
		p.not = false
		positive.patterns = append(positive.patterns, p)
	}
	return positive
}

// Empty reports whether v is no condition.
func (v Values) Empty() bool { return len(v.patterns) == 0 }

// Size is the length of all patterns in bytes, with their alternatives spelled out. Each alternative
// counts for a few bytes more. Memory and the time of a comparison grow with it.
func (v Values) Size() int {
	size := 0
	for i := range v.patterns {
		for j := range v.patterns[i].alternatives {
			size += alternativeSize + len(v.patterns[i].alternatives[j].written)
		}
	}
	return size
}

// Negative reports whether v has patterns with a leading "!".
func (v Values) Negative() bool { return v.has(true) }

// has reports whether v has patterns with or without "!".
func (v Values) has(not bool) bool {
	return slices.ContainsFunc(v.patterns, func(p pattern) bool {
		return p.not == not
	})
}

// Patterns returns the patterns as written, with their "!".
func (v Values) Patterns() []string {
	var all []string
	for _, p := range v.patterns {
		all = append(all, p.written)
	}
	return all
}

// Match reports whether the values of a device match: one of them matches a positive pattern, if there
// are any, and none of them matches a negative pattern. No value or an empty value means that the
// attribute is absent: it only satisfies negative patterns.
func (v Values) Match(have ...string) bool {
	// Without a positive pattern, everything matches that no negative pattern excludes.
	ok := !v.has(false)
	for _, h := range have {
		h = v.kind.normalize(h)
		if h == "" {
			continue
		}
		// One value is enough to exclude a device, whatever its other values are.
		if v.firstMatch(h, true) != nil {
			return false
		}
		// The loop continues after a match, because a later value may match a negative pattern.
		if !ok {
			ok = v.firstMatch(h, false) != nil
		}
	}
	return ok
}

// firstMatch returns the first alternative that matches s, which is in normal form. It considers only
// patterns with "!" if not is set, and otherwise only patterns without. It returns nil if none
// matches.
func (v Values) firstMatch(s string, not bool) *Alternative {
	for i := range v.patterns {
		p := &v.patterns[i]
		if p.not != not {
			continue
		}
		for j := range p.alternatives {
			a := &p.alternatives[j]
			if a.matches(s) {
				return a
			}
		}
	}
	return nil
}

// Captures returns the texts that the wildcards of the first matching pattern without "!" match in a
// value. It returns nil if no pattern matches.
func (v Values) Captures(have string) []string {
	have = v.kind.normalize(have)
	if have == "" {
		return nil
	}
	a := v.firstMatch(have, false)
	if a == nil {
		return nil
	}
	return a.captures(have)
}

// Alternatives returns the alternatives of all patterns without "!".
func (v Values) Alternatives() []Alternative {
	var all []Alternative
	for _, p := range v.patterns {
		if !p.not {
			all = append(all, p.alternatives...)
		}
	}
	return all
}

// Literal returns the text of the only alternative of the patterns without "!". If there are several,
// or it has wildcards, ok is false.
func (v Values) Literal() (text string, ok bool) {
	all, ok := v.Literals()
	if !ok || len(all) != 1 {
		return "", false
	}
	return all[0], true
}

// Literals returns the texts of all alternatives of the patterns without "!". If there is none, or one of
// them has wildcards, ok is false.
func (v Values) Literals() (texts []string, ok bool) {
	for _, a := range v.Alternatives() {
		text, isLiteral := a.Literal()
		if !isLiteral {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, len(texts) > 0
}
