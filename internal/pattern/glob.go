package pattern

import (
	"io/fs"
	"os"
	"path"
	"slices"
)

// Glob lists the paths of the host that match v, which is of kind Path, sorted. mounted
// returns where a host path is mounted. Links are followed only before the first
// wildcard. *entries limits the directory entries to read and is decremented: if it
// reaches 0, the list may lack paths.
func (v Values) Glob(mounted func(host string) string, entries *int) []string {
	var found []string
	var walk func(dir string, through Values)
	walk = func(dir string, through Values) {
		if *entries <= 0 {
			return
		}
		all, err := os.ReadDir(mounted(dir))
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
				walk(p, through)
			}
		}
	}
	for _, a := range v.Alternatives() {
		dir, whole := a.Literal()
		if !whole {
			dir = a.dir()
			walk(dir, a.Through())
		}
		if _, err := os.Lstat(mounted(dir)); err == nil && v.Match(dir) {
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
