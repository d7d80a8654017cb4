package importer

import (
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/pattern"
)

// parseGlob parses a pattern of paths without {a,b}.
func parseGlob(glob string) (pattern.Alternative, error) {
	p, err := pattern.Parse(pattern.Path, glob)
	if err != nil {
		return pattern.Alternative{}, fmt.Errorf("%.80q %w", glob, err)
	}
	return p.Positive().Alternatives()[0], nil
}

// wildDirectory reports whether a pattern of paths has a wildcard in front of
// a "/".
func wildDirectory(a pattern.Alternative) bool {
	return strings.Contains(a.Shape()[len(a.Prefix()):], "/")
}

// captured is a shape with the variables of what its wildcards matched, between literals.
func captured(shape string, literal func(string) string) (text string) {
	for i, part := range strings.Split(shape, "*") {
		if i > 0 {
			text += fmt.Sprintf("${%d}", i)
		}
		text += literal(part)
	}
	return text
}

// goGlobToken finds what is different in patterns of path.Match.
const goGlobToken = `(?s)\\.|\[(\\.|[^\\\]])*\]|[{}]|\*+`

// fromGoGlob converts a pattern of path.Match: classes are negated by "^",
// braces are literal, and "**" is "*".
func fromGoGlob(glob string) (a pattern.Alternative, err error) {
	if !path.IsAbs(glob) || path.Clean(glob) != glob || glob == "/" {
		return a, fmt.Errorf(`%q is not an absolute, clean path: want one such as "/dev/ttyUSB*"`, glob)
	}
	if _, err := path.Match(glob, ""); err != nil {
		return a, fmt.Errorf(`%q is not a pattern: want every [...] closed, and a character after every \`, glob)
	}
	return parseGlob(regexp.MustCompile(goGlobToken).ReplaceAllStringFunc(glob, func(token string) string {
		switch {
		case token[0] == '*':
			return "*"
		case token[0] == '\\':
			return pattern.Quote(token[1:])
		case token[0] == '{', token[0] == '}':
			return `\` + token
		case strings.HasPrefix(token, "[^"):
			return "[!" + token[2:]
		case strings.HasPrefix(token, "[!"):
			return `[\` + token[1:]
		}
		return token
	}))
}

// Limits of the globs of an expression: unbounded repetition is expanded often
// enough for the numbers of device nodes.
const (
	maxRepeats = 3
	maxGlobs   = 64
)

// fromRegexp converts a regular expression of Go, which is searched for in
// paths relative to /dev, to globs of absolute paths.
func fromRegexp(expression string) (globs, differences []string, err error) {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	tree = tree.Simplify() // without counted repetition
	e := &expander{}
	globs, again := e.globs(tree)
	if again {
		e = &expander{loose: true}
		globs, _ = e.globs(tree)
	}
	if e.tooMany {
		return nil, []string{"not imported: the expression stands for more than 64 patterns"}, nil
	}
	return globs, e.differences, nil
}

// numbered are the globs of an expression such as ^video[0-9]*$, the most frequent kind:
// all that begins like this, but for what goes on with other characters. It is nil for
// other expressions.
func numbered(expression string) []string {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil || tree.Op != syntax.OpConcat || len(tree.Sub) != 4 || tree.Sub[0].Op != syntax.OpBeginText || tree.Sub[3].Op != syntax.OpEndText {
		return nil
	}
	name, number := tree.Sub[1], tree.Sub[2]
	if name.Op != syntax.OpLiteral || number.Op != syntax.OpStar && number.Op != syntax.OpPlus || number.Sub[0].Op != syntax.OpCharClass {
		return nil
	}
	class, ok := strings.CutPrefix(classGlob(number.Sub[0].Rune), "[")
	if !ok || class[0] == '!' {
		return nil
	}
	prefix, first := "/dev/"+literalGlob(name), ""
	if number.Op == syntax.OpPlus {
		first = "[" + class
	}
	return []string{prefix + first + "*", "!" + prefix + "*[!" + class + "*"}
}

// expander expands an expression.
type expander struct {
	// loose makes "*" of unbounded repetition.
	loose       bool
	tooMany     bool
	differences []string
}

// Wildcards that also match "/", until the directories that they may stand for are known.
const (
	crossOne  = "\ue000"
	crossStar = "\ue001"
)

// expansion is one of the globs of an expression, and whether it is anchored to the
// start and the end of the path.
type expansion struct {
	glob       string
	begin, end bool
}

func (e *expander) differs(text string) { e.differences = addOnce(e.differences, text) }

// globs lists the globs of an expression. expanded is set if there are too many, or if
// each is a resource: wildcards in directories are a part of its name.
func (e *expander) globs(tree *syntax.Regexp) (globs []string, expanded bool) {
	all, stars := e.expand(tree), regexp.MustCompile(stars)
	for _, x := range all {
		if !x.begin {
			x.glob = crossStar + x.glob
		}
		if !x.end {
			x.glob += crossStar
		}
		for _, glob := range cross("/dev/" + e.limitCross(stars.ReplaceAllString(x.glob, "$1$2$3"))) {
			if a, err := parseGlob(glob); err == nil && wildDirectory(a) && !strings.ContainsAny(x.glob, crossStar+crossOne) {
				expanded = true
			}
			globs = addOnce(globs, glob)
		}
	}
	if len(globs) > maxGlobs {
		e.tooMany = true
	}
	return globs, expanded || e.tooMany
}

// limitCross leaves the first and the last of the wildcards that match "/", since each
// multiplies the globs.
func (e *expander) limitCross(glob string) string {
	before, rest, _ := strings.Cut(glob, crossStar)
	last := strings.LastIndex(rest, crossStar)
	if last < 0 || !strings.Contains(rest[:last], crossStar) {
		return glob
	}
	e.differs(`differs: only the first and the last of several ".*" match "/"`)
	return before + crossStar + strings.ReplaceAll(rest[:last], crossStar, "*") + rest[last:]
}

// cross resolves the wildcards of a glob that match "/" too: to those that do not, alone
// and with the directories of /dev that they may stand for.
func cross(glob string) (all []string) {
	if before, after, found := strings.Cut(glob, crossOne); found {
		all = cross(before + "?" + after)
		if isDirectory(before) {
			all = append(all, cross(before+"/"+after)...)
		}
		return all
	}
	before, after, found := strings.Cut(glob, crossStar)
	if !found {
		return []string{glob}
	}
	if dir, ok := strings.CutSuffix(before, "/"); !ok || !isDirectory(dir) || slices.Contains(directories, dir) { // else without nodes
		all = cross(before + "*" + after)
	}
	if before == "/dev/" {
		for _, dirs := range []string{"*/", "*/*/", "*/*/*/"} {
			all = append(all, cross(before+dirs+"*"+after)...)
		}
		return all
	}
	a, err := parseGlob(before)
	for _, d := range directories {
		for i := len(d); err == nil && i > len("/dev/"); i-- {
			if a.Match(d[:i]) {
				all = append(all, cross(before+regexp.MustCompile("[0-9]+").ReplaceAllString(d[i:], "*")+"/*"+after)...)
				break
			}
		}
	}
	return all
}

// stars finds "**", which crosses directories, and several that are as good as one.
const stars = `(?s)(\\.)|\**(` + crossStar + `)[*` + crossStar + `]*|(\*)\**`

// expand lists the expansions of an expression without counted repetition.
func (e *expander) expand(re *syntax.Regexp) (all []expansion) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []expansion{{}}
	case syntax.OpBeginText:
		return []expansion{{begin: true}}
	case syntax.OpEndText:
		return []expansion{{end: true}}
	case syntax.OpLiteral:
		return []expansion{{glob: literalGlob(re)}}
	case syntax.OpCharClass:
		if glob := classGlob(re.Rune); glob != "" {
			return []expansion{{glob: glob}}
		}
		e.differs("not imported: a part of the expression that matches nothing")
		return nil
	case syntax.OpNoMatch:
		e.differs("not imported: a part of the expression that matches nothing")
		return nil
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []expansion{{glob: crossOne}}
	case syntax.OpCapture:
		return e.expand(re.Sub[0])
	case syntax.OpConcat:
		all = []expansion{{}}
		for _, sub := range re.Sub {
			all = e.join(all, e.expand(sub))
		}
		return all
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			all = append(all, e.expand(sub)...)
		}
		return all
	case syntax.OpQuest:
		return append([]expansion{{}}, e.expand(re.Sub[0])...)
	case syntax.OpStar:
		return e.repeat(re.Sub[0], 0)
	case syntax.OpPlus:
		return e.repeat(re.Sub[0], 1)
	}
	e.differs("differs: word boundaries and anchors inside the expression are ignored")
	return []expansion{{}}
}

// join appends each of the tails to each of the heads.
func (e *expander) join(heads, tails []expansion) (all []expansion) {
	for _, h := range heads {
		for _, t := range tails {
			if h.glob != "" && t.begin || h.end && t.glob != "" {
				e.differs("differs: word boundaries and anchors inside the expression are ignored")
			}
			all = append(all, expansion{h.glob + t.glob, h.begin || h.glob == "" && t.begin, t.end || t.glob == "" && h.end})
		}
	}
	if len(all) > maxGlobs {
		e.tooMany = true
		all = all[:maxGlobs]
	}
	return all
}

// repeat expands x* and x+: x at least 0 times or once.
func (e *expander) repeat(x *syntax.Regexp, least int) (all []expansion) {
	once := e.expand(x)
	times := []expansion{{}}
	if !slices.ContainsFunc(once, func(x expansion) bool { return x.glob != "" }) { // anchors
		if least == 0 {
			return times
		}
		return once
	}
	if least == 1 {
		times = once
	}
	if len(once) == 1 && once[0].glob == crossOne {
		return e.join(times, []expansion{{glob: crossStar}})
	}
	if anything := len(once) == 1 && once[0].glob == "?"; anything || e.loose {
		if !anything {
			e.differs("differs: unbounded repetition has become *, which matches any characters")
		}
		return e.join(times, []expansion{{glob: "*"}})
	}
	e.differs("differs: unbounded repetition is expanded up to three times")
	for n := least; n < maxRepeats; n++ {
		all = append(all, times...)
		times = e.join(times, once)
	}
	return append(all, times...)
}

func literalGlob(re *syntax.Regexp) (glob string) {
	for _, r := range re.Rune {
		class := ""
		if re.Flags&syntax.FoldCase != 0 {
			for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
				class += string(other)
			}
		}
		if class == "" {
			glob += pattern.Quote(string(r))
		} else {
			glob += "[" + class + string(r) + "]"
		}
	}
	return glob
}

// classGlob converts a class, which has the first and the last character of
// each range. It is empty where no name has any of them.
func classGlob(ranges []rune) string {
	begin, all := "[", ""
	if n := len(ranges); n > 0 && ranges[n-1] == unicode.MaxRune { // [^ab], as all others
		begin, all = "[!", "?"
		var holes []rune
		next := rune(0)
		for i := 0; i < len(ranges); i += 2 {
			if next < ranges[i] {
				holes = append(holes, next, ranges[i]-1)
			}
			next = ranges[i+1] + 1
		}
		ranges = holes
	}
	var members string
	add := func(first, last rune) {
		switch {
		case first == last:
			members += classMember(first)
		case first < last:
			members += classMember(first) + "-" + classMember(last)
		}
	}
	for i := 0; i < len(ranges); i += 2 {
		// A name has neither control characters nor "/".
		add(max(ranges[i], ' '), min(ranges[i+1], '/'-1))
		add(max(ranges[i], '/'+1), ranges[i+1])
	}
	if members == "" {
		return all
	}
	return begin + members + "]"
}

func classMember(r rune) string {
	if strings.ContainsRune(`]\-!^[`, r) {
		return `\` + string(r)
	}
	return string(r)
}
