package importer

import (
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// parseGlob parses a pattern of paths without {a,b}.
func parseGlob(glob string) (pattern.Alternative, error) {
	p, err := pattern.Parse(pattern.Path, glob)
	if err != nil {
		return pattern.Alternative{}, fmt.Errorf("%.80q %w", glob, err)
	}
	return p.Positive().Alternatives()[0], nil
}

// captured replaces the wildcards of a shape by the variables of their matches.
func captured(shape string, literal func(string) string) (text string) {
	for i, part := range strings.Split(shape, "*") {
		if i > 0 {
			text += fmt.Sprintf("${%d}", i)
		}
		text += literal(part)
	}
	return text
}

// goGlobToken matches the syntax that differs in patterns of path.Match.
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

// Private-use characters mark syntax that patterns lack, while an expression is translated.
const (
	beginText = "\ue000"
	endText   = "\ue001"
	anything  = "\ue002" // any text, "/" too
	repeated  = "\ue003" // any number of characters of the next class
	star      = "\ue004" // "*"; two of them are not "**"
)

// expression is one alternative of a regular expression: paths that match glob but not
// others, which is set if the expression ends in a repeated class.
type expression struct{ glob, others string }

// parseRegexp converts a regular expression of Go to globs. If there are none, a difference
// says why.
func parseRegexp(text string) (all []expression, differences []string, err error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	t := &translator{}
	p, err := pattern.Parse(pattern.Path, "/dev/"+t.glob(tree.Simplify()))
	switch {
	case t.nothing:
		return nil, []string{"not imported: a part of the expression that matches nothing"}, nil
	case err != nil:
		return nil, []string{"not imported: the expression " + err.Error()}, nil
	}
	for _, a := range p.Alternatives() {
		e := t.resolve(strings.TrimPrefix(a.String(), "/dev/"))
		if text := strings.Trim(e.glob, anything); text == strings.TrimSpace(text) {
			all = append(all, e)
		} else {
			t.differs("not imported: an alternative that begins or ends with a space")
		}
	}
	return all, t.differences, nil
}

// translator translates an expression.
type translator struct {
	nothing     bool // a part matches nothing
	differences []string
}

func (t *translator) differs(text string) { t.differences = addOnce(t.differences, text) }

const ignored = "differs: word boundaries and anchors inside the expression are ignored"

// glob is a pattern with marks for an expression without counted repetition.
func (t *translator) glob(re *syntax.Regexp) (text string) {
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
		for _, r := range re.Rune {
			text += t.literal(r, re.Flags)
		}
		return text
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

// repeat is the glob for any number of repetitions of an expression.
func (t *translator) repeat(re *syntax.Regexp, glob string) string {
	switch {
	case strings.Trim(glob, beginText+endText) == "":
		return ""
	case glob == "?" && re.Op != syntax.OpCharClass:
		return anything
	case glob == "?":
		return star
	case re.Op == syntax.OpCharClass:
		return repeated + glob
	case re.Op == syntax.OpLiteral && len(re.Rune) == 1 && re.Flags&syntax.FoldCase == 0:
		return repeated + t.class([]rune{re.Rune[0], re.Rune[0]})
	}
	t.differs(anyRepetition)
	return star
}

const anyRepetition = "differs: unbounded repetition has become *, which matches any characters"

// resolve replaces the marks of an alternative.
func (t *translator) resolve(glob string) expression {
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
	const class = repeated + `\[(!?)((?:\\.|[^\\\]])*)\]`
	tail := regexp.MustCompile("^([^" + anything + repeated + star + "]*)" + class + "$")
	if m := tail.FindStringSubmatch(glob); m != nil {
		others := map[string]string{"": "[!", "!": "["}[m[2]]
		return expression{m[1] + "*", m[1] + "*" + others + m[3] + "]*"}
	}
	glob = regexp.MustCompile(class+anything).ReplaceAllString(glob, anything) // equivalent
	if strings.Contains(glob, repeated) {
		t.differs(anyRepetition)
		glob = regexp.MustCompile(class).ReplaceAllString(glob, star)
	}
	const either = "[" + anything + star + "]*"
	glob = regexp.MustCompile(either+anything+either).ReplaceAllString(glob, anything)
	glob = regexp.MustCompile(star+"+").ReplaceAllString(glob, "*")
	// Each anything multiplies the globs.
	first, rest, _ := strings.Cut(glob, anything)
	if last := strings.LastIndex(rest, anything); last >= 0 && strings.Contains(rest[:last], anything) {
		t.differs(`differs: only the first and the last of several ".*" match "/"`)
		glob = first + anything + strings.ReplaceAll(rest[:last], anything, "*") + rest[last:]
	}
	return expression{glob: glob}
}

func (t *translator) literal(r rune, flags syntax.Flags) string {
	cases := []rune{r, r}
	if flags&syntax.FoldCase != 0 {
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			cases = append(cases, other, other)
		}
	}
	if len(cases) > 2 || r < ' ' {
		return t.class(cases)
	}
	return pattern.Quote(string(r))
}

// class converts a class, which has the first and the last character of each range.
func (t *translator) class(ranges []rune) string {
	not := ""
	if n := len(ranges); n > 0 && ranges[n-1] == unicode.MaxRune { // [^ab], as all others
		not = "!"
		holes := []rune{0}
		for i := 0; i < n; i += 2 {
			holes = append(holes, ranges[i]-1, ranges[i+1]+1)
		}
		ranges = holes[:len(holes)-1]
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
	switch {
	case members != "":
		return "[" + not + members + "]"
	case not != "":
		return "?"
	}
	t.nothing = true
	return ""
}

func classMember(r rune) string {
	if strings.ContainsRune(`]\-!^[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// expandAnything lists the globs below /dev for one with anything: without "/", and with the
// directories that it may stand for.
func expandAnything(glob string) (all []string) {
	before, after, found := strings.Cut(glob, anything)
	if !found {
		return []string{glob}
	}
	if dir, ok := strings.CutSuffix(before, "/"); !ok || !isDirectory(dir) || slices.Contains(directories, dir) { // else without nodes
		all = expandAnything(before + "*" + after)
	}
	if before == "/dev/" {
		for _, dirs := range []string{"*/", "*/*/", "*/*/*/"} {
			all = append(all, expandAnything(before+dirs+"*"+after)...)
		}
		return all
	}
	a, err := parseGlob(before)
	for _, d := range directories {
		for i := len(d); err == nil && i > len("/dev/"); i-- {
			if a.Match(d[:i]) {
				all = append(all, expandAnything(before+regexp.MustCompile("[0-9]+").ReplaceAllString(d[i:], "*")+"/*"+after)...)
				break
			}
		}
	}
	return all
}

// directories of /dev that hold nodes, one or several examples of each. Container runtimes
// take a directory as a device for all nodes below it; a glob has to be explicit.
var directories = []string{
	"/dev/blackmagic", "/dev/block", "/dev/bsg", "/dev/bus/usb/001", "/dev/char", "/dev/cpu/0", "/dev/disk/by-id", "/dev/disk/by-path",
	"/dev/dma_heap", "/dev/dri", "/dev/dri/by-path", "/dev/dvb/adapter0", "/dev/gpib", "/dev/infiniband", "/dev/input", "/dev/input/by-id",
	"/dev/input/by-path", "/dev/mapper", "/dev/mtd/by-name", "/dev/net", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/serial/by-id",
	"/dev/serial/by-path", "/dev/shm", "/dev/snd", "/dev/snd/by-id", "/dev/snd/by-path", "/dev/usb", "/dev/v4l/by-id", "/dev/v4l/by-path",
	"/dev/vfio", "/dev/vfio/devices", "/dev/zvol",
}

// isDirectory reports whether a path is that of a directory, and not of a node. Numbers
// stand for others.
func isDirectory(path string) bool {
	if !strings.HasPrefix(path, "/dev/") {
		return false
	}
	numbers := regexp.MustCompile("[0-9]+")
	path = numbers.ReplaceAllString(path, "0")
	return slices.ContainsFunc(directories, func(d string) bool {
		d = numbers.ReplaceAllString(d, "0")
		return d == path || strings.HasPrefix(d, path+"/")
	})
}
