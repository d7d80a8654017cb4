package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Resource is a [[resource]] for an administrator to start with.
type Resource struct {
	Name string // without the domain, which the command init writes at the top
	// Comment names the devices that it selects on this host.
	Comment []string
	// Lines are its keys except for the name.
	Lines []string
}

// Text returns the resource in TOML, with its comment.
func (r Resource) Text() string {
	var b strings.Builder
	for _, line := range r.Comment {
		b.WriteString("# " + OneLine(line) + "\n")
	}
	fmt.Fprintf(&b, "[[resource]]\nname = %q\n%s\n", r.Name, strings.Join(r.Lines, "\n"))
	return b.String()
}

// OneLine replaces all characters that could end a comment or that a terminal interprets: the names
// of devices and pods are arbitrary.
func OneLine(s string) string {
	printable := func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}
	return strings.Map(printable, strings.ToValidUTF8(s, "?"))
}

// Quote formats a basic string of TOML, which has the escapes of JSON.
func Quote(s string) string {
	text, _ := json.Marshal(s) // a string always has an encoding
	return string(text)
}

// quoteAll formats strings as a value of TOML: a list, or the only string.
func quoteAll(values []string) string {
	quoted := make([]string, len(values))
	for i, s := range values {
		quoted[i] = Quote(s)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// slug makes a name of letters, digits and "-", which is valid in the name of a resource. It
// returns "device" if nothing of s remains.
func slug(s string) string {
	name := strings.Map(func(r rune) rune {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if isLetter || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, s)
	return device.CutName(cmp.Or(strings.Trim(name, "-"), "device"))
}
