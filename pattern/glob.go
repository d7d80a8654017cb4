package pattern

import (
	"io/fs"
	"os"
	"path"
	"slices"
)

// Glob lists the paths of the host that match v, which is of kind Path, sorted. here
// maps host paths to their mount points. Links are followed only before the first
// wildcard. It reads at most *entries entries of directories and subtracts what it read:
// if that is 0 afterwards, the list may lack paths.
func (v Values) Glob(here func(host string) string, entries *int) []string {
	var found []string
	var below func(dir string, through Values)
	below = func(dir string, through Values) {
		if *entries <= 0 {
			return
		}
		all, err := os.ReadDir(here(dir))
		if err != nil {
			return
		}
		*entries = max(0, *entries-len(all))
		for _, e := range all {
			p := path.Join(dir, e.Name())
			if v.Match(p) {
				found = append(found, p)
			}
			if e.Type()&fs.ModeDir != 0 && through.Match(p) {
				below(p, through)
			}
		}
	}
	for _, a := range v.Alternatives() {
		dir, whole := a.Literal()
		if !whole {
			dir = a.dir()
			below(dir, a.Through())
		}
		if _, err := os.Lstat(here(dir)); err == nil && v.Match(dir) {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Through matches the directories above the matches of an alternative of kind
// Path: "/dev" and "/dev/snd" for "/dev/snd/*", and everything below "/dev" for
// "/dev/**/card0".
func (a Alternative) Through() Values {
	var p pattern
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
	return Values{Path, []pattern{p}}
}

// dir is the deepest directory without wildcards above all matches.
func (a *Alternative) dir() string {
	prefix := a.Prefix()
	if len(a.tokens) > 1 && a.tokens[1].kind == deep {
		return prefix
	}
	return path.Dir(prefix + "x")
}
