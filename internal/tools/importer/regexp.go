package importer

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// A regular expression is parsed by Go's parser, and its tree becomes one pattern of ours with
// alternatives. What patterns lack is marked at first, because its translation depends on
// what is beside it:
//
//	[0-9]*   any number of characters of a class: "*"
//	^ and $  without them, any text may be in front or behind
//
// Expressions with anything else that a pattern cannot say are refused.

// Private-use characters mark syntax that patterns lack, while an expression is translated.
const (
	beginText = "\ue000"
	endText   = "\ue001"
	repeated  = "\ue003" // any number of characters of the next class
)

// expression is one alternative of a regular expression, as a glob.
type expression struct {
	glob string
	// isOpen is set if the expression has no "^", and glob matches no text in front.
	isOpen bool
	// isWider is set if glob matches more than the expression, which has a repeated class. The
	// kernel only has digits where people write [0-9]*.
	isWider bool
}

// parseRegexp converts a regular expression of Go to globs. The error says what a pattern cannot
// express.
func parseRegexp(text string) ([]expression, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	glob, err := translate(tree.Simplify())
	if err != nil {
		return nil, err
	}
	p, err := pattern.Parse(pattern.Text, glob)
	if err != nil {
		return nil, fmt.Errorf("the expression %w", err)
	}
	var all []expression
	for _, a := range p.Alternatives() {
		e, err := resolve(a.String())
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// translate returns a pattern with marks for an expression without counted repetition.
func translate(re *syntax.Regexp) (string, error) {
	var subs []string
	for _, sub := range re.Sub {
		text, err := translate(sub)
		if err != nil {
			return "", err
		}
		subs = append(subs, text)
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return "", nil
	case syntax.OpBeginText:
		return beginText, nil
	case syntax.OpEndText:
		return endText, nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return pattern.Quote(string(re.Rune)), nil
		}
	case syntax.OpCharClass:
		// Other classes are negated, or have characters with a meaning in patterns.
		if fullMatch(`\[([^!^\\]|\\-)+\]`, re.String()) {
			return re.String(), nil
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "?", nil
	case syntax.OpCapture, syntax.OpConcat:
		return strings.Join(subs, ""), nil
	case syntax.OpAlternate:
		return "{" + strings.Join(subs, ",") + "}", nil
	case syntax.OpQuest:
		return "{," + subs[0] + "}", nil
	case syntax.OpPlus:
		if rest := repeat(re, subs[0]); rest != "" {
			return subs[0] + rest, nil
		}
	case syntax.OpStar:
		if rest := repeat(re, subs[0]); rest != "" {
			return rest, nil
		}
	}
	return "", fmt.Errorf("a pattern cannot express %q", re)
}

// repeat is the pattern for repetitions of a character, empty if there is none.
func repeat(re *syntax.Regexp, once string) string {
	switch re.Sub[0].Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "*"
	case syntax.OpCharClass:
		return repeated + once
	}
	return ""
}

// resolve replaces the marks of an alternative.
func resolve(glob string) (expression, error) {
	glob, begins := strings.CutPrefix(glob, beginText)
	glob, ends := strings.CutSuffix(glob, endText)
	if strings.ContainsAny(glob, beginText+endText) {
		return expression{}, errors.New("a pattern cannot express an anchor inside the expression")
	}
	if !ends {
		glob += "*"
	}
	e := expression{isOpen: !begins}
	e.isWider = strings.Contains(strings.ReplaceAll(glob, repeated+"[0-9]", "*"), repeated)
	glob = regexp.MustCompile(repeated+`\[(\\.|[^\\\]])*\]`).ReplaceAllString(glob, "*")
	e.glob = regexp.MustCompile(`\*+`).ReplaceAllString(glob, "*")
	return e, nil
}
