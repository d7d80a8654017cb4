package config

import (
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/pattern"
)

// attributeKind is what the names of attributes may be.
type attributeKind struct {
	want string
	wild bool // with wildcards
}

var (
	plainAttribute = attributeKind{want: `want one such as "state" or "power/runtime_status"`}
	wildAttribute  = attributeKind{want: `want one such as "index" or "rom*/VBNV"`, wild: true}
)

// attributes is v as a table of attributes and what they have to be.
func (v value) attributes(k attributeKind) map[string]pattern.Values {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped(`a table such as { state = "enabled" }`, "")
		return nil
	}
	if len(m) == 0 {
		v.report("an empty table: want at least one attribute", "")
	}
	attr := make(map[string]pattern.Values, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		// Kernels choose these names: "name" is a real one, and no misplaced key
		// where the table around has its own.
		if above, ok := v.enclosing(name); ok && !v.around(len(above)).has(name) {
			v.key(name).report(quote(name)+" is a key of "+tableName(above)+": want the name of an attribute", v.headerHint(above))
			continue
		}
		if rule, hint := k.check(name); rule != "" {
			v.key(name).report(quote(name)+" "+rule, hint)
			continue
		}
		attr[name] = v.child(name).values(plain)
	}
	return attr
}

// check returns what the name of an attribute breaks, or empty.
func (k attributeKind) check(name string) (rule, hint string) {
	switch {
	case strings.Contains(name, "${"):
		return "has a variable: " + k.want, ""
	case !k.wild && strings.ContainsAny(name, `*?[{\`):
		return "has a wildcard: " + k.want, ""
	case strings.ContainsAny(name, `{\`) || strings.Contains(name, "**"):
		return `has more than *, ? and [...] within one element: ` + k.want, ""
	case strings.HasPrefix(name, "/"):
		if base := path.Base(name); base != "/" {
			hint = didYouMean(base) + " It is looked for from the node up to its hardware"
		}
		return "is an absolute path: " + k.want, hint
	case slices.Contains(strings.Split(name, "/"), ".."):
		return `has "..": ` + k.want, ""
	case path.Clean(name) != name || name == "." || strings.ContainsFunc(name, unicode.IsControl):
		return "is not the name of an attribute: " + k.want, ""
	}
	if _, err := pattern.Parse(pattern.Path, name); err != nil {
		return err.Error(), ""
	}
	return "", ""
}
