package config

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// wildcards is an alternative with wildcards, made ready to be matched many
// times.
type wildcards struct {
	// dir is where the paths are if that has no wildcards; else dirs are the
	// elements of where they are.
	dir  string
	dirs []element
	// name is the last element of the paths, or the whole of a text that is
	// no path.
	name element
	// above is set where the pattern ends in "/**": it is what is in front of
	// that, which the pattern matches too.
	above *pattern
}

// element is one element of a path, or a whole text.
type element struct {
	deep  bool // "**": any number of elements
	least int  // bytes of what it matches
	runs  []run
}

// run is what stands between two stars: tokens that take one character each,
// the literals in front of the first wildcard as one.
type run struct {
	literal string
	tokens  []token
}

// compile makes tokens ready. Those of a path begin with "/".
func (m mode) compile(tokens []token) *wildcards {
	if m != pathMode {
		return &wildcards{name: newElement(tokens)}
	}
	var elements []element
	end := 0 // of the directory
	for start := 0; start <= len(tokens); {
		n := slices.IndexFunc(tokens[start:], token{char: '/'}.equal)
		if n < 0 {
			n = len(tokens) - start
		}
		elements = append(elements, newElement(tokens[start:start+n]))
		end = max(start-1, 0)
		start += n + 1
	}
	w := &wildcards{}
	n := len(elements) - 1
	if elements[n].deep {
		// What is below a directory is all that is in it and in those below it.
		if n > 0 && !elements[n-1].deep {
			above := m.pattern(tokens[:end])
			w.above = &above
		}
		w.dirs, w.name = elements, newElement([]token{{kind: starToken}})
		return w
	}
	w.name = elements[n]
	if dir, literal := literalPrefix(tokens[:end]); literal {
		w.dir = dir
	} else {
		w.dirs = elements[:n]
	}
	return w
}

func newElement(tokens []token) element {
	if len(tokens) == 1 && tokens[0].kind == deepToken {
		return element{deep: true}
	}
	var e element
	for {
		i := slices.IndexFunc(tokens, func(t token) bool { return t.kind == starToken || t.kind == deepToken })
		if i < 0 {
			i = len(tokens)
		}
		r := newRun(tokens[:i])
		e.runs = append(e.runs, r)
		e.least += len(r.literal) + len(r.tokens)
		if i == len(tokens) {
			return e
		}
		tokens = tokens[i+1:]
	}
}

func newRun(tokens []token) run {
	wild := slices.IndexFunc(tokens, func(t token) bool { return t.kind != literalToken })
	if wild < 0 {
		wild = len(tokens)
	}
	literal, _ := literalPrefix(tokens[:wild])
	return run{literal: literal, tokens: tokens[wild:]}
}

// matchPath reports whether w matches all of a path.
func (w *wildcards) matchPath(path string) bool {
	if w.above != nil && pathMode.matches([]pattern{*w.above}, path) {
		return true
	}
	i := strings.LastIndexByte(path, '/')
	return i >= 0 && w.name.match(path[i+1:]) && w.matchDir(path[:i])
}

// matchDir reports whether w matches paths in a directory.
func (w *wildcards) matchDir(dir string) bool {
	if w.dirs == nil {
		return dir == w.dir
	}
	return matchElements(w.dirs, dir)
}

// matchElements reports whether elements match a path: one each, and "**" any
// number, none included.
func matchElements(elements []element, path string) bool {
	i, more := 0, true
	// Where to go on when something behind the last "**" does not match: that
	// takes one element more of retry.
	behind, retry := -1, ""
	for more {
		if i < len(elements) {
			e := &elements[i]
			i++
			if e.deep {
				if i == len(elements) {
					return true
				}
				behind, retry = i, path
				continue
			}
			head, tail, found := strings.Cut(path, "/")
			if e.match(head) {
				path, more = tail, found
				continue
			}
		}
		if behind < 0 {
			return false
		}
		if _, retry, more = strings.Cut(retry, "/"); !more {
			return false
		}
		path, i = retry, behind
	}
	return !slices.ContainsFunc(elements[i:], func(e element) bool { return !e.deep })
}

// match reports whether e matches all of s.
func (e *element) match(s string) bool {
	if len(s) < e.least {
		return false
	}
	first, last := &e.runs[0], &e.runs[len(e.runs)-1]
	n := first.prefix(s)
	if len(e.runs) == 1 || n < 0 {
		return n == len(s)
	}
	s = s[n:]
	if n = last.suffix(s); n < 0 {
		return false
	}
	s = s[:len(s)-n]
	// Of what is between, the first place is as good as any.
	for i := 1; i < len(e.runs)-1; i++ {
		if n = e.runs[i].end(s); n < 0 {
			return false
		}
		s = s[n:]
	}
	return true
}

func (r *run) empty() bool { return r.literal == "" && len(r.tokens) == 0 }

// prefix is how many bytes at the beginning of s the run matches, -1 for none.
func (r *run) prefix(s string) int {
	if !strings.HasPrefix(s, r.literal) {
		return -1
	}
	n := len(r.literal)
	for i := range r.tokens {
		c, size := utf8.DecodeRuneInString(s[n:])
		if size == 0 || !r.tokens[i].takes(c) {
			return -1
		}
		n += size
	}
	return n
}

// suffix is how many bytes at the end of s the run matches, -1 for none.
func (r *run) suffix(s string) int {
	rest := s
	for i := len(r.tokens) - 1; i >= 0; i-- {
		c, size := rune(0), 0
		if n := len(rest); n > 0 && rest[n-1] < utf8.RuneSelf {
			c, size = rune(rest[n-1]), 1 // as good as always
		} else {
			c, size = utf8.DecodeLastRuneInString(rest)
		}
		if size == 0 || !r.tokens[i].takes(c) {
			return -1
		}
		rest = rest[:len(rest)-size]
	}
	if !strings.HasSuffix(rest, r.literal) {
		return -1
	}
	return len(s) - len(rest) + len(r.literal)
}

// end is where the first match of the run in s ends, -1 for none.
func (r *run) end(s string) int {
	for i := 0; ; {
		at := strings.Index(s[i:], r.literal)
		if at < 0 {
			return -1
		}
		i += at
		if n := r.prefix(s[i:]); n >= 0 {
			return i + n
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if size == 0 {
			return -1
		}
		i += size
	}
}

// takes reports whether the token stands for a character. No wildcard stands
// for "/" in a path, and elements have none.
func (t *token) takes(c rune) bool {
	switch t.kind {
	case literalToken:
		return c == t.char
	case classToken:
		return inRanges(t.ranges, c) != t.not
	}
	return true
}
