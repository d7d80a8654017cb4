package pattern

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// lookUpCost is the cost of opening a directory or of finding a file by its name, in units of reading a
// directory entry.
const lookUpCost = 8

// Glob lists the paths of the host that match v, which is of kind Path, sorted. mounted
// returns where a host path is mounted. Links are followed only before the first
// wildcard. *entries limits the directory entries to read, and is decremented by the cost of
// the search. If it reaches 0, the list may lack paths.
//
// Glob may block for as long as a file system does. It has no context, because system calls
// cannot be cancelled: the caller runs it in a goroutine and stops waiting.
func (v Values) Glob(mounted func(host string) string, entries *int) []string {
	s := globSearch{
		wanted:   v,
		mounted:  mounted,
		entries:  entries,
		perEntry: v.Size() / comparedBytes,
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
	return slices.Compact(s.found)
}

// comparedBytes is the size of the patterns with which an entry is compared at the cost of reading it.
const comparedBytes = 1024

// globSearch is one call of Glob.
type globSearch struct {
	wanted Values
	// perEntry is the cost of comparing an entry with the patterns, besides reading it.
	perEntry int
	// mounted returns the local path of a path of the host.
	mounted func(host string) string
	// entries is the rest of the budget of the caller.
	entries *int
	// found may have repeats.
	found []string
}

// spend subtracts a cost, and reports whether anything is left of the budget.
func (s *globSearch) spend(cost int) bool {
	*s.entries = max(0, *s.entries-cost)
	return *s.entries > 0
}

// lookUp adds a path if it is wanted and exists. It does not follow a link in the last element: a
// dangling link exists.
func (s *globSearch) lookUp(p string) {
	if !s.wanted.Match(p) || !s.spend(lookUpCost) {
		return
	}
	_, err := os.Lstat(s.mounted(p))
	if err == nil {
		s.found = append(s.found, p)
	}
}

// walk adds the wanted paths below dir, in the directories that through matches.
func (s *globSearch) walk(dir string, through Values) {
	// Deep trees end here, too: each directory costs something, even if it is empty.
	if !s.spend(lookUpCost) {
		return
	}
	for _, e := range s.list(dir) {
		// A comparison that is not paid for would not be limited by anything.
		if s.perEntry > 0 && !s.spend(s.perEntry) {
			return
		}
		p := path.Join(dir, e.Name())
		if s.wanted.Match(p) {
			s.found = append(s.found, p)
		}
		// A link to a directory is not ModeDir, so that a search cannot run in circles.
		if e.Type()&fs.ModeDir != 0 && through.Match(p) {
			s.walk(p, through)
		}
	}
}

// list returns the sorted entries of a directory, at most as many as the budget permits, because a
// container may fill a directory with millions of files. It returns no entries of a directory that
// cannot be read.
func (s *globSearch) list(dir string) []fs.DirEntry {
	// With these flags the call neither waits for the writer of a FIFO nor opens a device.
	const flags = os.O_RDONLY | onlyDirectory | syscall.O_NONBLOCK
	f, err := os.OpenFile(s.mounted(dir), flags, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	// With an error, it returns the entries read so far. The budget is greater than 0 here:
	// otherwise ReadDir would return all entries.
	all, _ := f.ReadDir(*s.entries)
	s.spend(len(all))
	// File.ReadDir returns the entries in the order of the directory, unlike os.ReadDir.
	slices.SortFunc(all, func(a, b fs.DirEntry) int {
		return strings.Compare(a.Name(), b.Name())
	})
	return all
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
