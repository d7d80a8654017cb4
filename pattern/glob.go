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
	for _, a := range v.Alternatives() {
		dir, whole := a.Literal()
		if !whole {
			dir = a.dir()
			s := search{v, a.Through(), here, entries}
			found = s.below(found, dir)
		}
		if _, err := os.Lstat(here(dir)); err == nil && v.Match(dir) {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// search is a search for the paths of one alternative.
type search struct {
	of      Values
	through Values // the directories to read
	here    func(host string) string
	entries *int
}

// below adds the matches below a directory.
func (s search) below(found []string, dir string) []string {
	if *s.entries <= 0 {
		return found
	}
	entries, err := os.ReadDir(s.here(dir))
	if err != nil {
		return found
	}
	*s.entries = max(0, *s.entries-len(entries))
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if s.of.Match(p) {
			found = append(found, p)
		}
		if e.Type()&fs.ModeDir != 0 && s.through.Match(p) {
			found = s.below(found, p)
		}
	}
	return found
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
