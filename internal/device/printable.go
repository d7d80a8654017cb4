package device

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable escapes everything in a text that a reader cannot see or that changes how the
// rest is shown: control characters, marks that reverse the order of text (U+202E),
// characters without width, line separators, characters for private use and invalid UTF-8.
// Strings of USB devices and names of nodes may contain any of these. Characters in except
// stay. The escapes of valid text are those of JSON.
func Printable(text, except string) string {
	if IsPrintableASCII(text) {
		return text
	}
	var out []byte
	for i, r := range text {
		isInvalid := r == utf8.RuneError && !strings.HasPrefix(text[i:], string(r))
		if isInvalid {
			out = fmt.Appendf(out, `\x%02x`, text[i])
		} else if isVisible(r) || strings.ContainsRune(except, r) {
			out = utf8.AppendRune(out, r)
		} else {
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
	}
	return string(out)
}

// IsPrintableASCII reports whether a text has only visible characters of ASCII and spaces.
func IsPrintableASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// invisible are letters, marks and symbols that have no glyph: they are printable to
// package unicode, which only excludes the categories of formats and controls.
var invisible = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point,
	unicode.Variation_Selector,
	{R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}}}, // BRAILLE PATTERN BLANK
}

func isVisible(r rune) bool { return unicode.IsPrint(r) && !unicode.In(r, invisible...) }
