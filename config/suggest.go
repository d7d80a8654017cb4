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
	similar, tables := nearest(name, known), v.tablesWith(name)
	switch {
	case similar != "" && (len(tables) == 0 || pattern.Distance(name, similar) == 1):
		return didYouMean(similar)
	case len(tables) == 0:
		return v.w.once("the keys here are " + list(known))
	}
	hint := fmt.Sprintf("%q is a key of %s", name, strings.Join(tables, ", "))
	if above, ok := v.enclosing(name); ok {
		hint += ": " + v.headerHint(above)
	}
	return hint
}

// tablesWith lists the tables with a key: the nearest around v, or all.
func (v value) tablesWith(name string) (tables []string) {
	if above, ok := v.enclosing(name); ok {
		return []string{tableName(above)}
	}
	for _, key := range v.w.language() {
		// The keys of exclude are those of match.
		if path, ok := strings.CutSuffix(key, "."+name); ok && path != "resource.exclude" && !strings.HasPrefix(path, "resource.exclude.") {
			tables = append(tables, tableName(path))
		}
	}
	return tables
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
