package pattern

import "strings"

// regexpMarks are parts of regular expressions that no path of a device node contains.
var regexpMarks = []string{`]+`, `)+`, `.+`, `\d`, `\w`, `]*$`, `.*`}

// replacements turn parts of a regular expression into the nearest parts of a glob. Longer parts
// come first.
var replacements = []string{
	`[0-9]+`, `[0-9]*`,
	`\d+`, `[0-9]*`,
	`\d*`, `*`,
	`\d`, `[0-9]`,
	`\w+`, `*`,
	`\w*`, `*`,
	`\w`, `?`,
	`\.`, `.`,
	`\/`, `/`,
	`.*`, `*`,
	`.+`, `?*`,
	`]+`, `]*`,
	`(?:`, `{`,
	`(`, `{`,
	`)`, `}`,
	`|`, `,`,
}

// FromRegexp returns the glob that is meant by a path that was written as a regular expression. The
// result is empty if s does not look like a regular expression. A path such as "/dev/dfl-port.*" does,
// although it is a valid glob, so that only a caller that found no such path may suggest the result.
func FromRegexp(s string) string {
	inner := strings.TrimPrefix(s, "^")
	inner = strings.TrimSuffix(inner, "$")
	isAnchored := inner != s
	hasMark := false
	for _, mark := range regexpMarks {
		hasMark = hasMark || strings.Contains(s, mark)
	}
	isAlternation := strings.Contains(s, "(") && strings.Contains(s, "|")
	if !isAnchored && !hasMark && !isAlternation {
		return ""
	}
	glob := strings.NewReplacer(replacements...).Replace(inner)
	// A regular expression without an equivalent glob has no suggestion.
	_, err := Parse(Path, glob)
	if err != nil {
		return ""
	}
	return glob
}

// IsRegexp reports whether a path is certainly a regular expression, and not a glob: it has an
// anchor or a quantifier. Package config rejects such a path, so that this must not be true for a
// path that somebody means as a glob.
func IsRegexp(s string) bool {
	hasAnchor := strings.HasPrefix(s, "^") || strings.HasSuffix(s, "$")
	hasQuantifier := strings.Contains(s, "]+") || strings.Contains(s, `\d`)
	return hasAnchor || hasQuantifier
}
