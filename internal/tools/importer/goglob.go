package importer

import (
	"fmt"
	"path"
	"regexp"
	"strings"

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
func captured(shape string, literal func(string) string) string {
	var text strings.Builder
	for i, part := range strings.Split(shape, "*") {
		if i > 0 {
			fmt.Fprintf(&text, "${%d}", i)
		}
		text.WriteString(literal(part))
	}
	return text.String()
}

// goGlobToken matches the syntax that differs between patterns of path.Match or fnmatch and
// ours.
const goGlobToken = `(?s)\\.|\[(\\.|[^\\\]])*\]|[{}]|\*+`

// fromGoGlob converts a path that is a pattern of path.Match.
func fromGoGlob(glob string) (a pattern.Alternative, err error) {
	isClean := path.IsAbs(glob) && path.Clean(glob) == glob
	if !isClean || glob == "/" {
		return a, fmt.Errorf(`%q is not an absolute, clean path such as "/dev/ttyUSB*"`, glob)
	}
	if _, err := path.Match(glob, ""); err != nil {
		return a, fmt.Errorf(`%q is not a pattern: want every [...] closed, and a character after every \`, glob)
	}
	return parseGlob(translateGlob(glob))
}

// translateGlob converts a pattern of path.Match or fnmatch to ours. There, classes are
// negated by "^", braces are literal, and "**" is "*". fnmatch accepts "!" for negation as
// well, and path.Match does not.
func translateGlob(glob string) string {
	translated := regexp.MustCompile(goGlobToken).ReplaceAllStringFunc(glob, func(token string) string {
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
	})
	// The configuration refuses a path that looks like a regular expression, but not one with classes.
	translated = strings.ReplaceAll(translated, "]+", "][+]")
	if before, found := strings.CutSuffix(translated, "$"); found {
		return before + "[$]"
	}
	return translated
}

// translateFnmatch converts a pattern of fnmatch, where "[!" negates a class as it does in
// ours (glibc, posix/fnmatch_loop.c).
func translateFnmatch(glob string) string {
	classes := regexp.MustCompile(`\[!((?:\\.|[^\\\]])*\])`)
	return translateGlob(classes.ReplaceAllString(glob, "[^$1"))
}
