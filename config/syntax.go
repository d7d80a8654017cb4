package config

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Messages of the TOML library say which character it did not expect. The hints in this file say
// what the author probably meant.

const (
	// backslashHint is for a serial number or a regular expression in double quotes.
	backslashHint = `text with quotes or backslashes is written in single quotes: '"a" \*'`
	quotesHint    = "text and hexadecimal IDs are written in quotes, and booleans are true and false"
)

// Hints for YAML. The first one is for a whole file. It does not name the file, because the
// configuration of another plugin is often pasted.
const (
	yamlFileHint = "this is YAML, and the configuration is TOML: kubectl generic-dp import FILE converts the configuration of another plugin"
	yamlLineHint = "this line is YAML: in TOML a key is written as KEY = VALUE, and a list in brackets"
)

// syntaxHints are hints for parts of the messages of the library (v1.6.0). The first one that
// applies is used. A newer version of the library may have other messages: then a hint is missing,
// but the message remains.
var syntaxHints = []struct{ part, hint string }{
	{"invalid escape", backslashHint},
	{"invalid UTF-8", "write the file in UTF-8"},
	{"probably using UTF-16", "write the file in UTF-8"},
	{"strings cannot contain newlines", "the quote at the end of the text is missing"},
	{"'0x0d'", `end lines with a line feed ("\n"), as an editor on Linux does`},
	{"cannot be used as an array", "[name] and [[name]] do not mix: every resource begins with [[resource]]"},
	{"already been defined", givenOnce},
	{"table array name delimiter", "a resource begins with [[resource]]: two brackets on each side"},
	{"unexpected comma", "remove one of the commas"},
	{"with a newline, comment, or EOF, but got ','", "remove the comma: each key has a line of its own"},
	{"with a newline, comment, or EOF, but got ']'", "a resource begins with [[resource]]: two brackets on each side"},
	{"to end with a newline", quotesHint + "; " + backslashHint},
	{"expected value", quotesHint},
	{"leading zeroes", quotesHint},
	{"expected a comma", "a comma or a closing bracket is missing before this"},
	{"but got '{' instead", "TOML wants KEY = VALUE, and [[resource]] above each resource"},
}

// inStyle turns a message of the library into a message of ours: it begins in lower case and has no
// full stop. An abbreviation stays in capitals.
func inStyle(message string) string {
	message = strings.TrimSuffix(message, ".")
	first, size := utf8.DecodeRuneInString(message)
	second, _ := utf8.DecodeRuneInString(message[size:])
	if unicode.IsUpper(second) {
		return message
	}
	return string(unicode.ToLower(first)) + message[size:]
}

// syntaxMessage returns a message of the library in our style. The library's message for a control
// character does not say where it is and calls a line end of an old Mac a control character.
func syntaxMessage(message string) string {
	const control = "TOML files cannot contain control characters: "
	code, isControl := strings.CutPrefix(message, control)
	switch {
	case code == "'0x0d'":
		return `a line ends with a carriage return ("\r") and no line feed`
	case isControl:
		return "the control character " + strings.Trim(code, "'") + ` is not allowed: write an escape such as "\u0001" in a string with double quotes`
	}
	return inStyle(message)
}

// isYAML reports whether a line is YAML and not TOML: the start of a document, an element of a
// list, or a key with a colon.
func isYAML(line string) bool {
	line = strings.TrimSpace(line)
	isList := line == "-" || strings.HasPrefix(line, "- ")
	if line == "---" || isList {
		return true
	}
	key, value, hasColon := strings.Cut(line, ":")
	isKey := consists(key, alnum+"_./-")
	isEndOfKey := value == "" || strings.HasPrefix(value, " ")
	return hasColon && isKey && isEndOfKey
}

// lineAt returns the line of a text around an offset.
func lineAt(text string, at int) string {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	return line
}

// syntaxHint returns a hint for a syntax error at an offset of a text. It is empty if the library's
// message is all that is known.
func syntaxHint(message, text string, at int) string {
	// The library reports the end of a line at the start of the next one.
	before := lineAt(text, max(0, at-1))
	line := lineAt(text, at)
	if isYAML(before) || isYAML(line) {
		// A "=" above the line means that the author has begun in TOML.
		hasKeys := strings.Contains(text[:at], "=")
		if hasKeys {
			return yamlLineHint
		}
		return yamlFileHint
	}
	if strings.HasPrefix(strings.TrimSpace(line), "//") {
		return `a comment begins with "#"`
	}
	// A "[" that starts a line is an element of a list that is still open.
	isElement := at > 0 && text[at-1] == '['
	if isElement && strings.HasPrefix(message, "expected value") {
		return `is a "]" missing above?`
	}
	for _, h := range syntaxHints {
		if strings.Contains(message, h.part) {
			return h.hint
		}
	}
	return ""
}
