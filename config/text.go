package config

import (
	"errors"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// parseText splits a string with variables: ${name} is one, $${ is a literal
// "${", any other $ is itself.
func parseText(s string) (device.Text, error) {
	var (
		text    device.Text
		literal strings.Builder
	)
	flush := func() {
		text = append(text, device.Literal(literal.String())...)
		literal.Reset()
	}
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "$${"); ok {
			literal.WriteString("${")
			s = rest
			continue
		}
		if rest, ok := strings.CutPrefix(s, "${"); ok {
			name, rest, closed := strings.Cut(rest, "}")
			if !closed || strings.ContainsAny(name, "${") {
				return nil, errors.New(`has a variable that is not closed: want "${name}", or "$${" for a literal "${"`)
			}
			if name == "" {
				return nil, errors.New(`has a variable without a name: want "${name}", or "$${" for a literal "${"`)
			}
			flush()
			text = append(text, device.Part{Var: name})
			s = rest
			continue
		}
		literal.WriteByte(s[0])
		s = s[1:]
	}
	flush()
	return text, nil
}
