package config

import (
	"bytes"
	"fmt"
)

// What a file may ask of the TOML parser. The language needs a depth of 8 and
// a few MiB at the most; see overload.
const (
	maxDepth   = 32
	maxKeyWork = 16 << 20
)

// overload looks for text that the TOML parser would need minutes and
// gigabytes for, and returns where it begins to be too much and why; an empty
// text is none. The parser writes out the full path of every key, once for
// each part of the key, and again at every bracket, where it recurses, so that a file of
// 1 MiB with deep brackets or with many keys below a long one could stop a
// node's every pod from starting. The scan knows only what a bracket, a key,
// a string and a comment are: where the text is no TOML, the parser stops at
// the same place at the latest.
func overload(data []byte) (at int, text string) {
	var (
		open   []bracket  // what is open here, outermost first
		header keyPath    // the last [table] header
		table  keyPath    // the table that keys go to
		key    keyPath    // the key that is being read, or whose value is
		value  bool       // after "=": no key is being read
		inHead bool       // within a [table] header
		work   int        // bytes that the parser has written for keys
		endKey = func() { // charges the key and everything above it
			key.parts++
			work += key.parts * (table.size() + key.size())
		}
	)
	for i := 0; i <= len(data); i++ {
		c := byte('\n') // the end of the text ends a line
		if i < len(data) {
			c = data[i]
		}
		switch {
		case c == '#':
			i = indexFrom(data, i, "\n") - 1
		case c == '"' || c == '\'':
			end := skipString(data, i)
			if !value {
				key.length += end - i
			}
			i = end - 1
		case c == '\n' && len(open) == 0:
			if inHead {
				endKey()
				header = key
			}
			table, key, value, inHead = header, keyPath{}, false, false
		case c == '[' && len(open) == 0 && !value:
			inHead, table, header = true, keyPath{}, keyPath{}
		case inHead && c == ']':
		case c == '[' || c == '{':
			if len(open) == maxDepth {
				return i, fmt.Sprintf("brackets more than %d deep: want fewer", maxDepth)
			}
			open = append(open, bracket{kind: c, table: table, key: key})
			work += table.size() + key.size()
			if c == '{' {
				table, key, value = table.plus(key), keyPath{}, false
			}
		case (c == ']' || c == '}') && len(open) > 0:
			last := open[len(open)-1]
			open = open[:len(open)-1]
			table, key, value = last.table, last.key, true
		case c == ',' && len(open) > 0 && open[len(open)-1].kind == '{':
			key, value = keyPath{}, false
		case c == '=' && !value:
			endKey()
			value = true
		case value || c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '.':
			key.parts++
		default:
			key.length++
		}
		if work > maxKeyWork {
			return i, "too many keys below long or deep ones: want short keys, few levels deep"
		}
	}
	return 0, ""
}

// bracket is an open array or inline table, and what is restored at its end.
type bracket struct {
	kind       byte
	table, key keyPath
}

// keyPath measures a key with everything above it.
type keyPath struct{ parts, length int }

// size is what one copy of the path costs: its text and a string header for
// each part.
func (k keyPath) size() int { return k.length + 16*k.parts }

func (k keyPath) plus(l keyPath) keyPath {
	return keyPath{k.parts + l.parts, k.length + l.length}
}

// skipString returns the offset behind the string that begins at i. A string
// on one line that is not closed ends with the line: no TOML.
func skipString(data []byte, i int) int {
	quote := data[i : i+1]
	multi := bytes.HasPrefix(data[i:], bytes.Repeat(quote, 3))
	if multi {
		i += 3
	} else {
		i++
	}
	for ; i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote[0] == '"':
			i++
		case data[i] == '\n' && !multi:
			return i
		case data[i] != quote[0]:
		case !multi:
			return i + 1
		case bytes.HasPrefix(data[i:], bytes.Repeat(quote, 3)):
			// Up to two quotes before the closing three belong to the text.
			for i += 3; i < len(data) && data[i] == quote[0]; i++ {
			}
			return i
		}
	}
	return len(data)
}

// indexFrom is the offset of sep at or after i, or the end.
func indexFrom(data []byte, i int, sep string) int {
	if n := bytes.Index(data[i:], []byte(sep)); n >= 0 {
		return i + n
	}
	return len(data)
}
