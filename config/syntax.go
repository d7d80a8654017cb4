package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// decode turns the text of a file into tables, or into a problem. Everything
// else is left to the walk over the tables: the library's own decoding into
// structs takes keys in any letter case, hands integers to text parsers and
// gives wrong positions inside arrays of tables.
func decode(f File) (map[string]any, *Problem) {
	if len(f.Data) > MaxFileSize {
		return nil, &Problem{Place: f.Name, Text: fmt.Sprintf("larger than %d bytes: want at most 1 MiB", MaxFileSize),
			Hint: "a configuration may be a directory of several *.toml files"}
	}
	data := trimBOM(f.Data)
	if at, text := overload(data); text != "" {
		return nil, &Problem{Place: position(f.Name, data, at), Text: text}
	}
	tables, start, err := decodeChunks(data)
	if err != nil {
		var parse toml.ParseError
		var lost lostError
		switch {
		case errors.As(err, &parse):
			at := start + parse.Position.Start
			return nil, &Problem{
				Place: position(f.Name, data, at),
				Text:  lowerFirst(strings.TrimSuffix(parse.Message, ".")),
				Hint:  syntaxHint(parse.Message, data, at),
			}
		case errors.As(err, &lost):
			return nil, &Problem{Place: position(f.Name, data, start), Text: err.Error() + ": want the table that it is in on one line, in braces",
				Hint: "match = { glob = \"/dev/ttyUSB*\", usb.id = \"10c4:ea60\" }"}
		}
		return nil, &Problem{Place: f.Name, Text: err.Error()}
	}
	return tables, nil
}

// position is "name:line:column" of an offset in data, both from 1, the
// column in characters. The library's own column is wrong where an error
// stands at the beginning of a line.
func position(name string, data []byte, at int) string {
	before := data[:min(max(at, 0), len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return fmt.Sprintf("%s:%d:%d", name, bytes.Count(before, []byte{'\n'})+1, utf8.RuneCount(before[start:])+1)
}

// syntaxHint knows what administrators mean by the usual slips.
func syntaxHint(message string, data []byte, at int) string {
	at = min(max(at, 0), len(data))
	word := wordAt(data, at)
	switch {
	case strings.Contains(message, "but got ':'"):
		return `a key is followed by "=": is this YAML?`
	case strings.Contains(message, "cannot be used as an array"):
		return "[name] and [[name]] do not mix: every resource begins with [[resource]]"
	case strings.Contains(message, "already been defined"):
		return "a key is given once in its table; several values are a list, several resources are several [[resource]]"
	case at > 0 && data[at-1] == '[' && strings.HasPrefix(message, "expected value"):
		return `is a "]" missing above?`
	case word == "":
		return ""
	case strings.HasPrefix(message, "expected value"),
		strings.Contains(message, "leading zeroes"),
		strings.Contains(message, "to end with a newline") && at > 0 && isDigit(data[at-1]),
		strings.Contains(message, "expected a comma") && at > 0 && isDigit(data[at-1]):
		return "text and hexadecimal IDs are written in quotes: " + quote(word)
	}
	return ""
}

// wordAt is the run of letters and digits around an offset.
func wordAt(data []byte, at int) string {
	start, end := at, at
	for start > 0 && isWord(data[start-1]) {
		start--
	}
	for end < len(data) && isWord(data[end]) {
		end++
	}
	return string(data[start:end])
}

func isWord(b byte) bool {
	return isDigit(b) || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || strings.IndexByte("_-:./*?", b) >= 0
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[n:]
}
