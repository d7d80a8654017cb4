package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Limits of a file for the TOML parser (v1.6.0). It copies the full path of every key, once for
// each part of the key and again at every bracket, where it recurses. Without limits, a file of 1
// MiB with deep brackets or with many keys below a long key would take minutes and gigabytes. The
// language itself needs a depth of 8.
const (
	maxDepth   = 16  // open brackets, or parts of one key
	maxKeySize = 512 // bytes of a key with the keys of its tables
)

// node is a key, or an element of a list, with its value.
type node struct {
	// at is its offset in the text.
	at int
	// raw is the value: map[string]*node is a table, []*node a list, and string, int64, float64, bool
	// and time.Time are themselves.
	raw any
	// size is the length of the key with the keys of its tables.
	size int
	// closed is set if the value of the key is complete, so that nothing may be added
	// to it.
	closed bool
	// hasHeader is set for a table with a header of its own, "[table]" or "[[list]]".
	hasHeader bool
}

// table returns the keys of a table, or nil for other values.
func (n *node) table() map[string]*node {
	keys, _ := n.raw.(map[string]*node)
	return keys
}

// list returns the elements of a list. ok is false for other values.
func (n *node) list() (items []*node, ok bool) {
	items, ok = n.raw.([]*node)
	return items, ok
}

// scanner makes the tree of the keys and values of a text with their positions, because the library
// only reports the positions of syntax errors, and loses keys: dotted keys below a list of tables
// overwrite each other. It knows keys, headers, brackets, strings and comments, and stops where the
// text is not TOML, or too expensive for the parser.
type scanner struct {
	text string
	i    int // offset of the next byte
	root *node
	// resources are the offsets of the [[resource]] headers, where checkSyntax splits the text.
	resources []int
	depth     int // of open brackets
	nodes     int // keys and tables so far
	// stopped is set where the scan ended early, at an offset. problem is set if the text is rejected in
	// any case, and otherwise the library knows what is wrong.
	stopped bool
	at      int
	problem string
	hint    string
}

// scan scans a text. nodes is the number of keys and tables in the files before it. It always
// returns a scanner: problem is set if the text must not be parsed.
func scan(text string, nodes int) *scanner {
	root := &node{raw: make(map[string]*node)}
	s := &scanner{text: text, root: root, nodes: nodes}
	table := s.root
	for s.space(true); s.i < len(s.text); s.space(true) {
		if s.peek() == '[' {
			table = s.header()
		} else {
			s.assignment(table)
		}
		s.space(false)
		// The byte 0 stands for the end of the text.
		isEndOfLine := strings.ContainsRune("\r\n#\x00", rune(s.peek()))
		if !isEndOfLine {
			s.stop()
		}
	}
	return s
}

// peek returns the next byte, or 0 at the end of the text.
func (s *scanner) peek() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

// stop ends the scan, because the rest is not TOML.
func (s *scanner) stop() { s.refuse(s.i, "", "") }

// refuse ends the scan with a problem.
func (s *scanner) refuse(at int, problem, hint string) {
	if !s.stopped {
		s.stopped = true
		s.at = at
		s.problem = problem
		s.hint = hint
	}
	s.i = len(s.text)
}

// node returns a new node for a key, or for an element with keys.
func (s *scanner) node(at, size int) *node {
	s.nodes++
	if s.nodes > maxKeys {
		s.refuse(at, fmt.Sprintf("the configuration has more than %d keys and tables", maxKeys), "")
	}
	if size > maxKeySize {
		s.refuse(at, fmt.Sprintf("the key with the keys of its tables is longer than %d bytes", maxKeySize), "")
	}
	// The node is valid even beyond the limits, so that callers need no check. The scan ends anyway.
	return &node{at: at, size: size}
}

// space skips white space. If lines is set, it skips comments and ends of lines as well.
func (s *scanner) space(lines bool) {
	for ; s.i < len(s.text); s.i++ {
		switch c := s.text[s.i]; {
		case c == ' ' || c == '\t':
		case lines && (c == '\n' || c == '\r'):
		case lines && c == '#':
			s.until("\n")
			// The line feed is handled by the loop.
			s.i--
		default:
			return
		}
	}
}

// until skips to the next of the characters.
func (s *scanner) until(characters string) {
	if n := strings.IndexAny(s.text[s.i:], characters); n >= 0 {
		s.i += n
	} else {
		s.i = len(s.text)
	}
}

// header reads [table] or [[list]] and returns its table.
func (s *scanner) header() *node {
	at := s.i
	closing := "]"
	isListHeader := strings.HasPrefix(s.text[s.i:], "[[")
	if isListHeader {
		closing = "]]"
	}
	s.i += len(closing)
	// Headers are always relative to the top.
	n := s.key(s.root)
	items, isList := n.list()
	// A table and a list cannot have the same name.
	if n.raw != nil && isList != isListHeader {
		s.stop()
		return n
	}
	if isListHeader {
		if n == s.root.table()["resource"] {
			s.resources = append(s.resources, at)
			if len(s.resources) > maxResources {
				s.refuse(at, tooManyResources(), "")
			}
		}
		item := s.node(at, n.size)
		n.raw = append(items, item)
		n = item
	}
	n.hasHeader = true
	if n.raw == nil {
		n.raw = make(map[string]*node)
	}
	if !strings.HasPrefix(s.text[s.i:], closing) {
		s.stop()
		return n
	}
	s.i += len(closing)
	return n
}

// assignment reads a key below a table, and its value.
func (s *scanner) assignment(table *node) {
	n := s.key(table)
	if s.peek() != '=' {
		s.stop()
		return
	}
	s.i++
	s.space(false)
	s.value(n)
}

// givenOnce explains why a key is refused that already has a value.
const givenOnce = "a key is given once in its table; several values are a list, several resources are several [[resource]]"

// key reads a dotted key below a table.
func (s *scanner) key(n *node) *node {
	for parts := 1; ; parts++ {
		s.space(false)
		at := s.i
		name := s.name()
		// Within the loop, so that a key of a megabyte is not split into parts first.
		if parts > maxDepth {
			s.refuse(at, fmt.Sprintf("the key has more than %d parts", maxDepth), "")
			return n
		}
		n = s.child(n, name, at)
		s.space(false)
		next := s.peek()
		// TOML forbids to add keys to a complete value, with a dotted key or a header, and to complete a
		// table that has keys. The library accepts some of that, and drops keys.
		isCompletion := n.raw != nil && next == '='
		isGiven := n.closed || isCompletion
		if isGiven && strings.ContainsRune(".]=", rune(next)) {
			line := strings.Count(s.text[:n.at], "\n") + 1
			s.refuse(at, fmt.Sprintf("%s is already given in line %d", quote(name), line), givenOnce)
			return n
		}
		if next != '.' {
			return n
		}
		// In TOML, a key below a list of tables belongs to its last element.
		if items, _ := n.list(); len(items) > 0 {
			n = items[len(items)-1]
		}
		s.i++
	}
}

// child returns the node of a key below n. It creates a missing node at the offset.
func (s *scanner) child(n *node, name string, at int) *node {
	keys := n.table()
	if keys == nil {
		keys = make(map[string]*node)
		n.raw = keys
	}
	c := keys[name]
	if c == nil {
		c = s.node(at, n.size+len(name))
		keys[name] = c
	}
	return c
}

// name reads one part of a key.
func (s *scanner) name() string {
	at := s.i
	if c := s.peek(); c != '"' && c != '\'' {
		s.until(" \t\r\n.=[]{},#\"'")
		if s.i == at {
			s.stop()
		}
		return s.text[at:s.i]
	}
	s.i = skipString(s.text, at)
	quoted := s.text[at:s.i]
	// Escapes are rare, and the library knows them all. An invalid one is reported by the library
	// later.
	if name, isString := scalar(quoted).(string); isString {
		return name
	}
	return quoted
}

// scalar returns the value of a text that is no list and no table. It is nil if the text is invalid,
// which the library reports later.
func scalar(text string) any {
	isPlain := len(text) > 1 && !strings.ContainsAny(text, "\\\n")
	isTriple := strings.HasPrefix(text, `"""`) || strings.HasPrefix(text, "'''")
	switch {
	case text == "true" || text == "false":
		return text == "true"
	case isPlain && !isTriple && strings.ContainsRune(`"'`, rune(text[0])):
		return text[1 : len(text)-1]
	}
	// The notations of integers are the ones of Go.
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n
	}
	// Everything else is rare, and the library knows it all.
	var decoded struct{ K any }
	if _, err := toml.Decode("K = "+text, &decoded); err != nil {
		return nil
	}
	return decoded.K
}

// value reads a value; n is its key or element.
func (s *scanner) value(n *node) {
	n.closed = true
	at := s.i
	switch s.peek() {
	case '"', '\'':
		s.i = skipString(s.text, at)
		n.raw = scalar(s.text[at:s.i])
	case '[':
		items := []*node{}
		s.brackets(']', func() {
			item := &node{at: s.i, size: n.size}
			if c := s.peek(); c == '{' || c == '[' {
				item = s.node(s.i, n.size)
			}
			s.value(item)
			items = append(items, item)
		})
		n.raw = items
	case '{':
		n.raw = make(map[string]*node)
		// Keys of an inline table are relative to the table.
		s.brackets('}', func() {
			s.assignment(n)
		})
	default:
		s.until(",]}#\n")
		n.raw = scalar(strings.TrimSpace(s.text[at:s.i]))
	}
}

// brackets reads the content of brackets, separated by commas. read reads an
// element.
func (s *scanner) brackets(closing byte, read func()) {
	// The scanner and the parser recurse at each bracket. The limit protects both stacks.
	if s.depth == maxDepth {
		s.refuse(s.i, fmt.Sprintf("brackets are nested more than %d deep", maxDepth), "")
		return
	}
	s.depth++
	s.i++
	for {
		s.space(true)
		// The list is empty, or ends with a comma.
		if s.peek() == closing || s.peek() == 0 {
			break
		}
		read()
		s.space(true)
		if s.peek() != ',' {
			break
		}
		s.i++
	}
	if s.peek() != closing {
		s.stop()
		return
	}
	s.i++
	s.depth--
}

// skipString returns the offset after the string at i. An unclosed string on one line
// ends with the line: not TOML.
func skipString(text string, i int) int {
	quote := text[i : i+1]
	triple := strings.Repeat(text[i:i+1], 3)
	// An empty string "" is no multi-line string, since it has only two quotes.
	multi := strings.HasPrefix(text[i:], triple)
	if multi {
		i += 3
	} else {
		i++
	}
	for ; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == `"`:
			i++
		case text[i] == '\n' && !multi:
			return i
		case text[i] != quote[0]:
		case !multi:
			return i + 1
		case strings.HasPrefix(text[i:], triple):
			// Up to two quotes before the closing three belong to the text.
			for i += 3; i < len(text) && text[i] == quote[0]; i++ {
			}
			return i
		}
	}
	return len(text)
}

// source is a file and its text.
type source struct {
	name string
	text string
}

// problem returns a problem at an offset of the text.
func (s *source) problem(at int, text, hint string) Problem {
	before := s.text[:at]
	lastLine := before[strings.LastIndexByte(before, '\n')+1:]
	return Problem{
		File:   s.name,
		Line:   strings.Count(before, "\n") + 1,
		Column: utf8.RuneCountInString(lastLine) + 1,
		Text:   text,
		Hint:   hint,
	}
}

// utf8BOM is written by some editors before the text.
const utf8BOM = "\xef\xbb\xbf"

// decode returns the tree of a file, or reports a syntax error. The library only decides whether the
// text is valid: its tables have no positions, and its structs accept keys in any letter case and pass
// integers to text unmarshalers.
func (r *reader) decode(f File) (*source, *node) {
	src := &source{name: f.shown(), text: strings.TrimPrefix(string(f.Data), utf8BOM)}
	s := scan(src.text, r.nodes)
	r.nodes = s.nodes
	// A text that exceeds a limit never reaches the library, which could take minutes for it.
	if s.problem != "" {
		r.report(src.problem(s.at, s.problem, s.hint))
		return src, nil
	}
	start, err := checkSyntax(src.text, s.resources)
	var syntax toml.ParseError
	switch {
	case errors.As(err, &syntax):
		// The position is relative to the part that was decoded. The bounds protect against a
		// position outside of the text.
		at := min(start+max(syntax.Position.Start, 0), len(src.text))
		text := syntax.Message
		// The message about a number is the only one without the text around it.
		if strings.Contains(text, "is out of range") {
			text = syntax.LastKey + ": " + text
		}
		r.report(src.problem(at, text, syntaxHint(text, src.text, at)))
	case err != nil:
		r.report(Problem{File: src.name, Text: err.Error()})
	// The values come from the scan, so it must have read the whole text.
	case s.stopped:
		r.report(src.problem(s.at, "the text is not valid TOML from here on", ""))
	default:
		return src, s.root
	}
	return src, nil
}

// checkSyntax returns an error of the library if the text is not TOML. start is the offset of the
// part to which it refers. Each [[resource]] is decoded separately: the library (v1.6.0) tracks keys by
// their dotted paths across the elements of an array of tables, so that the keys of one resource would
// count for another one.
func checkSyntax(text string, starts []int) (start int, err error) {
	// Each part ends where the next one starts.
	ends := append(slices.Clone(starts), len(text))
	// The first resource is decoded with the text above it.
	for _, end := range ends[min(1, len(starts)):] {
		var part map[string]any
		if _, err := toml.Decode(text[start:end], &part); err != nil {
			return start, err
		}
		start = end
	}
	return 0, nil
}
