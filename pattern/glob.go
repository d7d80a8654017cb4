package pattern

import (
	"io/fs"
	"os"
	"path"
	"slices"
)

// Glob lists the paths of the host that match v, which is of kind Path, sorted. here
// maps host paths to their mount points. Links are followed only before the first
// wildcard.
func (v Values) Glob(here func(host string) string) []string {
	var found []string
	for _, a := range v.Alternatives() {
		dir, whole := a.Literal()
		if !whole {
			dir = a.dir()
			found = append(found, below(dir, a.Through(), here)...)
		}
		if _, err := os.Lstat(here(dir)); err == nil {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(p string) bool { return !v.Match(p) })
}

// below lists the entries of a directory, and of those below that match through.
func below(dir string, through Values, here func(string) string) []string {
	entries, err := os.ReadDir(here(dir))
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		found = append(found, p)
		if e.Type()&fs.ModeDir != 0 && through.Match(p) {
			found = append(found, below(p, through, here)...)
		}
	}
	return found
}

// Through matches the directories above the matches of an alternative of kind
// Path: "/dev" and "/dev/snd" for "/dev/snd/*", and everything below "/dev" for
// "/dev/**/card0".
func (a Alternative) Through() Values {
	p := Pattern{kind: Path}
	add := func(i int, last token) {
		p.alternatives = append(p.alternatives, Alternative{kind: Path, tokens: append(slices.Clip(a.tokens[:i]), last)})
	}
	for i, t := range a.tokens {
		if t.kind == deep {
			add(i, t)
		}
		for j := range t.text {
			if t.kind == literal && t.text[j] == '/' && i+j > 0 {
				add(i, token{text: t.text[:j]})
			}
		}
	}
	return NewValues(p)
}

// dir is the deepest directory without wildcards above all matches.
func (a *Alternative) dir() string {
	prefix := a.Prefix()
	if len(a.tokens) > 1 && a.tokens[1].kind == deep {
		return prefix
	}
	return path.Dir(prefix + "x")
}
