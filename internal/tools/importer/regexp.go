package importer

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// A regular expression is parsed by Go's parser, and its tree becomes one pattern of ours with
// alternatives. What patterns lack is marked at first, because its translation depends on
// what is beside it:
//
//	.*       any text: "*", and directories where it stands for "/" (expandAnything)
//	[0-9]*   any number of characters of a class: "*" without the nodes that have others
//	^ and $  without them, any text may be in front or behind
//
// Everything else that a pattern cannot say is a difference, or the expression is refused.

// Private-use characters mark syntax that patterns lack, while an expression is translated.
const (
	beginText = "\ue000"
	endText   = "\ue001"
	anything  = "\ue002" // any text, including "/"
	repeated  = "\ue003" // any number of characters of the next class
	star      = "\ue004" // "*"; two of them are not "**"
)

// expression is one alternative of a regular expression: paths that match glob but not
// others. others is only set if the expression ends in a repeated class.
type expression struct {
	glob   string
	others string
}

// parseRegexp converts a regular expression of Go to globs. If there are none, a difference
// says why.
func parseRegexp(text string) (all []expression, differences []string, err error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	t := &translator{}
	p, err := pattern.Parse(pattern.Path, "/dev/"+t.glob(tree.Simplify()))
	if t.nothing {
		return nil, []string{"not imported: a part of the expression that matches nothing"}, nil
	}
	if err != nil {
		return nil, []string{"not imported: the expression " + err.Error()}, nil
	}
	for _, a := range p.Alternatives() {
		e := t.resolve(strings.TrimPrefix(a.String(), "/dev/"))
		text := strings.Trim(e.glob, anything)
		if text != strings.TrimSpace(text) {
			t.differs("not imported: an alternative that begins or ends with a space")
			continue
		}
		all = append(all, e)
	}
	return all, t.differences, nil
}

// translator translates an expression.
type translator struct {
	nothing     bool // a part matches nothing
	differences []string
}

// differs records what the translation loses, once for each kind of loss.
func (t *translator) differs(text string) { t.differences = addOnce(t.differences, text) }

const ignored = "differs: word boundaries and anchors inside the expression are ignored"

// glob is a pattern with marks for an expression without counted repetition.
func (t *translator) glob(re *syntax.Regexp) string {
	var subs []string
	for _, sub := range re.Sub {
		subs = append(subs, t.glob(sub))
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return ""
	case syntax.OpBeginText:
		return beginText
	case syntax.OpEndText:
		return endText
	case syntax.OpLiteral:
		return t.literals(re)
	case syntax.OpCharClass:
		return t.class(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "?"
	case syntax.OpCapture, syntax.OpConcat:
		return strings.Join(subs, "")
	case syntax.OpAlternate:
		return "{" + strings.Join(subs, ",") + "}"
	case syntax.OpQuest:
		return "{," + subs[0] + "}"
	case syntax.OpStar:
		return t.repeat(re.Sub[0], subs[0])
	case syntax.OpPlus:
		return subs[0] + t.repeat(re.Sub[0], subs[0])
	case syntax.OpNoMatch:
		t.nothing = true
	}
	t.differs(ignored)
	return ""
}

const anyRepetition = "differs: unbounded repetition has become *, which matches any characters"

// repeat is the glob for any number of repetitions of an expression.
func (t *translator) repeat(re *syntax.Regexp, glob string) string {
	if strings.Trim(glob, beginText+endText) == "" {
		return ""
	}
	isClass := re.Op == syntax.OpCharClass
	isLetter := re.Op == syntax.OpLiteral && len(re.Rune) == 1 && re.Flags&syntax.FoldCase == 0
	switch {
	case glob == "?" && isClass:
		return star
	case glob == "?":
		return anything
	case isClass:
		return repeated + glob
	case isLetter:
		return repeated + t.class([]rune{re.Rune[0], re.Rune[0]})
	}
	t.differs(anyRepetition)
	return star
}

// resolve replaces the marks of an alternative.
func (t *translator) resolve(glob string) expression {
	glob = t.resolveAnchors(glob)
	const class = repeated + `\[(!?)((?:\\.|[^\\\]])*)\]`
	tail := regexp.MustCompile("^([^" + anything + repeated + star + "]*)" + class + "$")
	if m := tail.FindStringSubmatch(glob); m != nil {
		others := "[!"
		if m[2] == "!" {
			others = "["
		}
		return expression{
			glob:   m[1] + "*",
			others: m[1] + "*" + others + m[3] + "]*",
		}
	}
	// A repeated class before any text is any text.
	glob = regexp.MustCompile(class+anything).ReplaceAllString(glob, anything)
	if strings.Contains(glob, repeated) {
		t.differs(anyRepetition)
		glob = regexp.MustCompile(class).ReplaceAllString(glob, star)
	}
	const either = "[" + anything + star + "]*"
	glob = regexp.MustCompile(either+anything+either).ReplaceAllString(glob, anything)
	glob = regexp.MustCompile(star+"+").ReplaceAllString(glob, "*")
	return expression{glob: t.limitAnything(glob)}
}

// resolveAnchors makes an expression without anchors one for any text around it.
func (t *translator) resolveAnchors(glob string) string {
	glob, begins := strings.CutPrefix(glob, beginText)
	glob, ends := strings.CutSuffix(glob, endText)
	if strings.ContainsAny(glob, beginText+endText) {
		t.differs(ignored)
		glob = strings.NewReplacer(beginText, "", endText, "").Replace(glob)
	}
	if !begins {
		glob = anything + glob
	}
	if !ends {
		glob += anything
	}
	return glob
}

// limitAnything lets only the first and the last of several marks stand for "/", since each
// multiplies the number of globs.
func (t *translator) limitAnything(glob string) string {
	first, rest, _ := strings.Cut(glob, anything)
	last := strings.LastIndex(rest, anything)
	if last < 0 || !strings.Contains(rest[:last], anything) {
		return glob
	}
	t.differs(`differs: only the first and the last of several ".*" match "/"`)
	between := strings.ReplaceAll(rest[:last], anything, "*")
	return first + anything + between + rest[last:]
}

// literals are the characters of a literal part.
func (t *translator) literals(re *syntax.Regexp) string {
	var text strings.Builder
	for _, r := range re.Rune {
		text.WriteString(t.literal(r, re.Flags))
	}
	return text.String()
}

// literal is one character. A control character needs a class, since a pattern must be
// printable; so does a letter in any case.
func (t *translator) literal(r rune, flags syntax.Flags) string {
	cases := []rune{r, r}
	if flags&syntax.FoldCase != 0 {
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			cases = append(cases, other, other)
		}
	}
	hasCases := len(cases) > 2
	isControl := r < ' '
	if hasCases || isControl {
		return t.class(cases)
	}
	return pattern.Quote(string(r))
}

// class converts a class, which has the first and the last character of each range.
func (t *translator) class(ranges []rune) string {
	not := ""
	if isNegated(ranges) {
		not = "!"
		ranges = holes(ranges)
	}
	var members strings.Builder
	for i := 0; i < len(ranges); i += 2 {
		// A name has neither control characters nor "/".
		members.WriteString(classRange(max(ranges[i], ' '), min(ranges[i+1], '/'-1)))
		members.WriteString(classRange(max(ranges[i], '/'+1), ranges[i+1]))
	}
	if members.Len() > 0 {
		return "[" + not + members.String() + "]"
	}
	if not != "" {
		return "?"
	}
	t.nothing = true
	return ""
}

// isNegated reports whether a class is better written as the characters that it lacks: it
// includes the last character of Unicode.
func isNegated(ranges []rune) bool {
	return len(ranges) > 0 && ranges[len(ranges)-1] == unicode.MaxRune
}

// holes are the ranges between the ranges of a class that includes the last character.
func holes(ranges []rune) []rune {
	between := []rune{0}
	for i := 0; i < len(ranges); i += 2 {
		between = append(between, ranges[i]-1, ranges[i+1]+1)
	}
	return between[:len(between)-1]
}

// classRange is a range as a pattern has it, empty if it has no characters.
func classRange(first, last rune) string {
	if first > last {
		return ""
	}
	if first == last {
		return classMember(first)
	}
	return classMember(first) + "-" + classMember(last)
}

// classMember is a character of a class, escaped where a class of ours has syntax.
func classMember(r rune) string {
	if strings.ContainsRune(`]\-!^[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// expandAnything lists the globs below /dev for a glob with the mark for any text: without
// "/", and with the directories that the text may include.
func expandAnything(glob string) (all []string) {
	before, after, found := strings.Cut(glob, anything)
	if !found {
		return []string{glob}
	}
	dir, endsDir := strings.CutSuffix(before, "/")
	hasNodes := !endsDir || !isDirectory(dir) || slices.Contains(directories, dir)
	if hasNodes {
		all = expandAnything(before + "*" + after)
	}
	if before == "/dev/" {
		for _, dirs := range []string{"*/", "*/*/", "*/*/*/"} {
			all = append(all, expandAnything(before+dirs+"*"+after)...)
		}
		return all
	}
	for _, d := range directories {
		if rest, ok := restOfDirectory(d, before); ok {
			all = append(all, expandAnything(before+rest+"/*"+after)...)
		}
	}
	return all
}

// restOfDirectory is the rest of a directory after the longest beginning that a glob
// matches, with wildcards for its numbers.
func restOfDirectory(dir, glob string) (rest string, ok bool) {
	a, err := parseGlob(glob)
	if err != nil {
		return "", false
	}
	numbers := regexp.MustCompile("[0-9]+")
	for i := len(dir); i > len("/dev/"); i-- {
		if a.Match(dir[:i]) {
			return numbers.ReplaceAllString(dir[i:], "*"), true
		}
	}
	return "", false
}
