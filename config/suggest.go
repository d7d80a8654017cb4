package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// unknownHint suggests a key for one that the table v does not have: known are its
// keys.
func (v value) unknownHint(name string, known []string) string {
	if lower := strings.ToLower(name); lower != name && slices.Contains(known, lower) {
		return didYouMean(lower) + " keys are written in lower case"
	}
	if n := keyElsewhere(name); slices.Contains(known, n) {
		return didYouMean(n)
	}
	n := nearest(name, known)
	if n != "" && pattern.Distance(name, n) == 1 {
		return didYouMean(n)
	}
	if above, ok := v.enclosing(name); ok {
		return fmt.Sprintf("%q is a key of %s: %s", name, tableName(above), v.headerHint(above))
	}
	if below := v.below(name); len(below) > 0 {
		if v.path() == "" {
			return quote(name) + " belongs in a resource: write it below a line [[resource]]"
		}
		return didYouMean(below...)
	}
	if n != "" {
		return didYouMean(n)
	}
	for _, key := range v.w.language() {
		if table, ok := strings.CutSuffix(key, "."+name); ok {
			return quote(name) + " is a key of " + tableName(table)
		}
	}
	return v.w.once("the keys here are " + list(known))
}

// keyElsewhere is the key that means what a name means in sysfs, in Kubernetes or in other
// device plugins; empty for none.
func keyElsewhere(name string) string {
	switch strings.ToLower(name) {
	case "path", "paths", "devicematch":
		return "glob"
	case "pid", "idproduct":
		return "product"
	case "vid", "idvendor":
		return "vendor"
	case "replicas", "maxdevices", "nummaxdevices":
		return "count"
	case "resourcename", "resource":
		return "name"
	case "source", "src":
		return "host_path"
	case "mountpath", "target", "destination", "dst":
		return "container_path"
	}
	return ""
}

// enclosing is the path of the nearest table around v that has a key.
func (v value) enclosing(name string) (path string, ok bool) {
	for path = v.path(); path != ""; {
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
		if slices.Contains(v.w.language(), strings.TrimPrefix(path+"."+name, ".")) {
			return path, true
		}
	}
	return "", false
}

// misplaced reports whether name, an arbitrary key in the table v, is a key of a table
// around it. want describes valid names.
func (v value) misplaced(name, want string) bool {
	above, ok := v.enclosing(name)
	if ok {
		v.key(name).report(quote(name)+" is a key of "+tableName(above)+": want "+want, v.headerHint(above))
	}
	return ok
}

// headerHint explains the pitfall of TOML's headers, after which a key of the table
// above belongs to the table v.
func (v value) headerHint(above string) string {
	if above == "" {
		return "write it above the first [[resource]]"
	}
	table := tableName(v.path())
	return fmt.Sprintf("after a [%s] header every key belongs to %s; write dotted keys (%s.KEY = ...) instead of headers",
		v.path(), table[strings.LastIndexByte(table, '.')+1:], table)
}

// below lists the dotted keys from v that end in name: those with the fewest parts.
func (v value) below(name string) (dotted []string) {
	above := strings.TrimPrefix(v.path()+".", ".")
	for _, key := range v.w.language() {
		key, ok := strings.CutPrefix(key, above)
		// The keys of exclude are those of match.
		if !ok || !strings.HasSuffix(key, "."+name) || strings.HasPrefix(key, "exclude.") {
			continue
		}
		if len(dotted) > 0 {
			switch parts, least := strings.Count(key, "."), strings.Count(dotted[0], "."); {
			case parts > least:
				continue
			case parts < least:
				dotted = nil
			}
		}
		dotted = append(dotted, key)
	}
	return dotted
}

// tableName names a table in messages.
func tableName(path string) string {
	if path == "" {
		return "the top level"
	}
	return strings.TrimPrefix(path, "resource.")
}

func didYouMean(names ...string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return "did you mean " + strings.Join(quoted, " or ") + "?"
}

// nearest is the name for which a misspelled one may stand, or empty: at most one edit
// for each three letters.
func nearest(name string, names []string) string {
	best, edits := "", max(1, min(len(name)/3, 3))
	for _, n := range names {
		if rest, cut := strings.CutPrefix(n, name); cut && len(name) > 2 && !strings.Contains(rest, ".") {
			best, edits = n, 1
			continue
		}
		if d := len(n) - len(name); d > edits || -d > edits {
			continue
		}
		if e := pattern.Distance(name, n); e <= edits && (best == "" || e < edits) {
			best, edits = n, e
		}
	}
	return best
}
