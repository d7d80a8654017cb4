package pattern

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"
)

// maxFound is the maximum number of paths that a search finds, with the directories that it has still to
// search, and listedAtOnce how many entries of a directory it has in memory: a container may fill a directory
// with millions of files or directories.
const (
	maxFound     = 100_000
	listedAtOnce = 1024
)

// Glob lists the paths of the host that match v, which is of kind Path, sorted. mounted
// returns where a host path is mounted. Links are followed only before the first
// wildcard. complete is not set if the search was cut off, so that the list may lack paths: it does not end
// before the time until, or finds too much.
//
// Glob may block for as long as a file system does. It has no context, because system calls
// cannot be cancelled: the caller runs it in a goroutine and stops waiting.
func (v Values) Glob(mounted func(host string) string, until time.Time) (found []string, complete bool) {
	s := globSearch{
		wanted:  v,
		mounted: mounted,
		until:   until,
	}
	for _, a := range v.Alternatives() {
		// A literal is looked up by its name, which is cheaper than reading its directory.
		dir, whole := a.Literal()
		if !whole {
			dir = a.dir()
			s.walk(dir, a.Through())
		}
		// The directory itself may match, such as "/dev/snd" for "/dev/snd/**".
		s.lookUp(dir)
	}
	// Two alternatives may find the same path.
	slices.Sort(s.found)
	return slices.Compact(s.found), !s.isOver
}

// globSearch is one call of Glob.
type globSearch struct {
	wanted Values
	// mounted returns the local path of a path of the host.
	mounted func(host string) string
	// until is the end of the search, and isOver whether it was cut off.
	until  time.Time
	isOver bool
	// found may have repeats.
	found []string
	// waiting is the number of directories that are still to be searched.
	waiting int
}

// end reports whether the search is cut off.
func (s *globSearch) end() bool {
	s.isOver = s.isOver || len(s.found)+s.waiting >= maxFound || time.Now().After(s.until)
	return s.isOver
}

// lookUp adds a path if it is wanted and exists. It does not follow a link in the last element: a
// dangling link exists.
func (s *globSearch) lookUp(p string) {
	if s.end() || !s.wanted.Match(p) {
		return
	}
	_, err := os.Lstat(s.mounted(p))
	if err == nil {
		s.found = append(s.found, p)
	}
}

// walk adds the wanted paths below dir, in the directories that through matches. A directory that cannot be
// read has no entries.
func (s *globSearch) walk(dir string, through Values) {
	// With these flags the call neither waits for the writer of a FIFO nor opens a device.
	const flags = os.O_RDONLY | onlyDirectory | syscall.O_NONBLOCK
	f, err := os.OpenFile(s.mounted(dir), flags, 0)
	if err != nil {
		return
	}
	var below []string
	for err == nil && !s.end() {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(listedAtOnce)
		for _, e := range entries {
			p := path.Join(dir, e.Name())
			if s.wanted.Match(p) {
				s.found = append(s.found, p)
			}
			// A link to a directory is not ModeDir, so that a search cannot run in circles.
			if e.IsDir() && through.Match(p) {
				below = append(below, p)
				s.waiting++
			}
		}
	}
	// A deep tree must not use up all file descriptors.
	f.Close()
	for _, p := range below {
		s.waiting--
		if !s.end() {
			s.walk(p, through)
		}
	}
}

// Through returns a condition on directories: the directories above the matches of an alternative of
// kind Path: "/dev" and "/dev/snd" for "/dev/snd/*", and everything below "/dev" for
// "/dev/**/card0".
func (a Alternative) Through() Values {
	// The text identifies the condition.
	p := pattern{written: a.written + " and above"}
	// add adds the directories that the first n tokens and one more token match.
	add := func(n int, last token) {
		// The clipped slice makes append copy the tokens of the alternative.
		before := slices.Clip(a.tokens[:n])
		p.alternatives = append(p.alternatives, Alternative{
			kind:   Path,
			tokens: append(before, last),
		})
	}
	for i, t := range a.tokens {
		if t.kind == deep {
			add(i, t)
		}
		if t.kind != literal {
			continue // the text of a class is not a path
		}
		for j := range t.text {
			// "/" is above everything, and is not searched.
			isRoot := i == 0 && j == 0
			if t.text[j] == '/' && !isRoot {
				add(i, token{text: t.text[:j]})
			}
		}
	}
	return Values{Path, []pattern{p}}
}

// dir returns the deepest directory without wildcards above all matches.
func (a *Alternative) dir() string {
	prefix := a.Prefix()
	// The token "/**" contains the "/" after the prefix, so that the prefix is a whole path.
	if len(a.tokens) > 1 && a.tokens[1].kind == deep {
		return prefix
	}
	// The prefix may end with "/" or within an element: the appended character is removed with
	// it.
	return path.Dir(prefix + "x")
}
