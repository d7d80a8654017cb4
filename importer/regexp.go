package importer

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

const (
	// maxRepeats is how often what may be repeated without end is written
	// out: enough for the numbers of device nodes.
	maxRepeats = 3
	// maxAlternatives is how many alternatives a pattern of the language may
	// stand for.
	maxAlternatives = 64
	// maxPattern is how many bytes such a pattern may have.
	maxPattern = 512
)

// What patterns do otherwise than the expressions that they come from.
const (
	noteRepeats  = "differs: what may be repeated without end is written out up to three times"
	noteLoose    = "differs: what is repeated has become *, which stands for any characters"
	noteSlash    = `differs: "." stood for "/" too; here nodes in directories below are not selected`
	noteUnbound  = "differs: the expression has no ^ or no $ around it and was looked for anywhere in a path; here in names directly below /dev"
	noteBoundary = "differs: word boundaries and line ends inside the expression are left out"
)

// globber turns a regular expression into patterns of the language.
type globber struct {
	notes []string
	// loose makes * of what is repeated without end, where there would be too
	// many alternatives.
	loose bool
	// flat makes patterns without {a,b}, of which there are more.
	flat bool
}

// globs turns a regular expression of Go, which is looked for anywhere in a
// path relative to /dev, into patterns for the whole of such a path. The notes
// say what these do otherwise.
func globs(expression string) (patterns, notes []string, err error) {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	var g globber
	patterns, most := g.whole(tree)
	if slices.ContainsFunc(patterns, wildDirectory) || slices.ContainsFunc(patterns, maybeNameless) {
		// The names of resources are made of the wildcards in directories, and a
		// path that ends with "/" is to be left out by itself.
		g = globber{loose: true, flat: true}
		patterns, _ = g.whole(tree)
	} else if most > maxAlternatives {
		g = globber{loose: true}
		patterns, _ = g.whole(tree)
	}
	return patterns, g.notes, nil
}

// wildDirectory reports whether a pattern has more than names before its last
// element.
func wildDirectory(pattern string) bool {
	return strings.Contains(pattern[len(beginning(pattern)):], "/")
}

// maybeNameless reports whether the last element of a pattern may stand for
// nothing: "snd/{,a}".
func maybeNameless(pattern string) bool {
	return maybeEmpty(pattern[strings.LastIndexByte(pattern, '/')+1:])
}

// maybeEmpty reports whether a pattern is nothing but {a,b} of which each has an
// alternative that may be empty.
func maybeEmpty(pattern string) bool {
	depth, begin, empty := 0, 0, false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if depth == 0 && c != '{' {
			return false
		}
		switch c {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				begin, empty = i+1, false
			}
		case ',', '}':
			if depth == 1 {
				empty = empty || maybeEmpty(pattern[begin:i])
				begin = i + 1
			}
			if c == '}' {
				if depth--; depth == 0 && !empty {
					return false
				}
			}
		}
	}
	return true
}

func (g *globber) note(text string) {
	if !slices.Contains(g.notes, text) {
		g.notes = append(g.notes, text)
	}
}

// whole is the patterns of an expression with its anchors, and how many
// alternatives the largest has.
func (g *globber) whole(e *syntax.Regexp) (patterns []string, most int) {
	for e.Op == syntax.OpCapture {
		e = e.Sub[0]
	}
	if e.Op == syntax.OpAlternate {
		for _, s := range e.Sub {
			p, n := g.whole(s)
			patterns, most = append(patterns, p...), max(most, n)
		}
		return patterns, most
	}
	parts := []*syntax.Regexp{e}
	if e.Op == syntax.OpConcat {
		parts = e.Sub
	}
	begin, end := len(parts) > 0 && parts[0].Op == syntax.OpBeginText, false
	if begin {
		parts = parts[1:]
	}
	if n := len(parts); n > 0 && parts[n-1].Op == syntax.OpEndText {
		end, parts = true, parts[:n-1]
	}
	if !begin || !end {
		g.note(noteUnbound)
	}
	for _, p := range g.concat(parts) {
		s, n := p.text, p.alternatives
		if !begin {
			s = "*" + s
		}
		if !end {
			s += "*"
		}
		patterns, most = append(patterns, oneStar(s)), max(most, n)
	}
	return patterns, most
}

// oneStar is a pattern with one * for several in a row: two cross directories.
func oneStar(pattern string) string {
	var b strings.Builder
	star := false
	for i := 0; i < len(pattern); i++ {
		if c := pattern[i]; c != '*' || !star {
			b.WriteByte(c)
		}
		star = pattern[i] == '*'
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}

// alternative is a pattern and how many alternatives it stands for.
type alternative struct {
	text         string
	alternatives int
}

// concat is the patterns of a sequence: several where an alternative goes
// through directories.
func (g *globber) concat(parts []*syntax.Regexp) []alternative {
	out := []alternative{{"", 1}}
	for _, p := range parts {
		var next []alternative
		for _, tail := range g.pattern(p) {
			for _, head := range out {
				next = append(next, alternative{head.text + tail.text, head.alternatives * tail.alternatives})
			}
		}
		if len(next) > maxAlternatives {
			g.note(noteLoose)
			next = []alternative{{"*", 1}}
		}
		out = next
	}
	return out
}

// pattern is the patterns of an expression.
func (g *globber) pattern(e *syntax.Regexp) []alternative {
	switch e.Op {
	case syntax.OpEmptyMatch:
		return []alternative{{"", 1}}
	case syntax.OpLiteral:
		return []alternative{{literalGlob(e), 1}}
	case syntax.OpCharClass:
		return []alternative{{classGlob(e.Rune), 1}}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		g.note(noteSlash)
		return []alternative{{"?", 1}}
	case syntax.OpCapture:
		return g.pattern(e.Sub[0])
	case syntax.OpConcat:
		return g.concat(e.Sub)
	case syntax.OpAlternate:
		var all []alternative
		for _, s := range e.Sub {
			all = append(all, g.pattern(s)...)
		}
		return g.braces(all)
	case syntax.OpStar:
		return g.repeated(e.Sub[0], 0, -1)
	case syntax.OpPlus:
		return g.repeated(e.Sub[0], 1, -1)
	case syntax.OpQuest:
		return g.repeated(e.Sub[0], 0, 1)
	case syntax.OpRepeat:
		return g.repeated(e.Sub[0], e.Min, e.Max)
	}
	// Anchors inside, and what matches nothing.
	g.note(noteBoundary)
	return []alternative{{"", 1}}
}

// repeated is the patterns of what stands there from least to most times; most
// is -1 for no end.
func (g *globber) repeated(e *syntax.Regexp, least, most int) []alternative {
	for e.Op == syntax.OpCapture {
		e = e.Sub[0]
	}
	one := g.pattern(e)
	endless := most < 0
	if endless && len(one) == 1 && one[0].text == "?" {
		return []alternative{{strings.Repeat("?", min(least, maxAlternatives)) + "*", 1}}
	}
	if endless {
		most = max(least, maxRepeats)
	}
	switch {
	case len(one) > 1 || most > 2*maxRepeats || least > most:
		g.note(noteLoose)
		return []alternative{{"*", 1}}
	case g.loose && endless:
		g.note(noteLoose)
		return []alternative{{strings.Repeat(one[0].text, least) + "*", 1}}
	}
	if endless {
		g.note(noteRepeats)
	}
	var all []alternative
	for n := least; n <= most; n++ {
		count := 1
		for range n {
			count *= one[0].alternatives
		}
		all = append(all, alternative{strings.Repeat(one[0].text, n), count})
	}
	return g.braces(all)
}

// braces joins alternatives to one pattern, where none of them goes through
// directories: the name of a resource is made of the last element of a path.
func (g *globber) braces(all []alternative) []alternative {
	if len(all) < 2 || g.flat || slices.ContainsFunc(all, func(a alternative) bool { return strings.Contains(a.text, "/") }) {
		return all
	}
	texts, n := make([]string, len(all)), 0
	for i, a := range all {
		texts[i] = a.text
		n += a.alternatives
	}
	return []alternative{{"{" + strings.Join(texts, ",") + "}", n}}
}

// literalGlob is a literal as a pattern.
func literalGlob(e *syntax.Regexp) string {
	var b strings.Builder
	for _, r := range e.Rune {
		other := unicode.SimpleFold(r)
		if e.Flags&syntax.FoldCase == 0 || other == r {
			b.WriteString(escape(string(r)))
			continue
		}
		b.WriteByte('[')
		for ; other != r; other = unicode.SimpleFold(other) {
			b.WriteRune(other)
		}
		b.WriteRune(r)
		b.WriteByte(']')
	}
	return b.String()
}

// classGlob is the ranges of a class, pairs of first and last character, as a
// pattern for one character of a path.
func classGlob(ranges []rune) string {
	not := len(ranges) > 0 && ranges[len(ranges)-1] == unicode.MaxRune
	if not {
		// [^ab] has become all others.
		var holes []rune
		from := rune(0)
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] > from {
				holes = append(holes, from, ranges[i]-1)
			}
			from = ranges[i+1] + 1
		}
		ranges = holes
	}
	return classText(not, ranges)
}
