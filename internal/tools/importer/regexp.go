package importer

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
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

// expressionToken matches what configurations use of regular expressions: any character or a class, with
// a repetition; a choice of plain words; a character that may be missing; and a plain character.
const expressionToken = `^(?:(\.|\\d|\[[\w-]+\])([*+]?)|\(([\w/|-]+)\)|(\w)\?|\\?([.-])|([\w/:,]))`

// parseRegexp converts a regular expression of Go to globs. The error says what is not converted.
func parseRegexp(text string) ([]expression, error) {
	rest, begins := strings.CutPrefix(text, "^")
	rest, ends := strings.CutSuffix(rest, "$")
	e := expression{isOpen: !begins}
	token := regexp.MustCompile(expressionToken)
	glob := ""
	for rest != "" {
		found := token.FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("the expression is only converted up to %q", rest)
		}
		rest = rest[len(found[0]):]
		class := strings.NewReplacer(".", "?", `\d`, "[0-9]").Replace(found[1])
		switch found[2] {
		case "*":
			glob += "*"
		case "+":
			glob += class + "*"
		default:
			glob += class
		}
		isRepeated := found[2] != ""
		isAny := class == "?" || class == "[0-9]"
		e.isWider = e.isWider || isRepeated && !isAny
		if found[3] != "" {
			glob += "{" + strings.ReplaceAll(found[3], "|", ",") + "}"
		}
		if found[4] != "" {
			glob += "{," + found[4] + "}"
		}
		glob += found[5] + found[6]
	}
	if !ends {
		glob += "*"
	}
	p, err := pattern.Parse(pattern.Text, regexp.MustCompile(`\*+`).ReplaceAllString(glob, "*"))
	if err != nil {
		return nil, fmt.Errorf("the expression %w", err)
	}
	var all []expression
	for _, a := range p.Alternatives() {
		e.glob = a.String()
		all = append(all, e)
	}
	return all, nil
}
