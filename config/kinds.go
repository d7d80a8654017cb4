package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kind is a kind of value that a match compares.
type kind struct {
	mode mode
	// want is what a value looks like, for messages.
	want string
	// bare says that TOML integers are accepted: numbers that are decimal by
	// nature. Elsewhere 0x10de would become 4318.
	bare bool
	// hex is how many digits an ID of this kind has where TOML integers are
	// not accepted and a hint can say what was meant.
	hex int
	// prefix says that a value matches all that begins with it.
	prefix bool
	// check returns what an alternative of a pattern breaks, or empty.
	check func(a alternative) (rule, hint string)
}

const hexDigits = "0123456789abcdef"

// plain is text, whatever it is.
var plain = kind{want: "a string or a list of strings"}

// hexID is a hexadecimal number of a fixed number of digits.
func hexID(what string, width int, example string) kind {
	want := fmt.Sprintf("%s digits such as %q", numeral(width), example)
	return kind{mode: hexMode, want: want, hex: width, check: func(a alternative) (string, string) {
		t := a.tokens
		if fitsHex(t, width) {
			return "", ""
		}
		hint := ""
		if s, whole := literalPrefix(t); whole && len(s) < width && fitsHex(t, len(s)) {
			hint = didYouMean(pad(s, width))
		}
		return "is not " + what + ": want " + want, hint
	}}
}

// hexPair is two such numbers of four digits, "vvvv:pppp".
func hexPair(what, second, example string) kind {
	want := fmt.Sprintf("vendor and %s of four digits each, such as %q", second, example)
	return kind{mode: hexMode, want: want, check: func(a alternative) (string, string) {
		t := a.tokens
		rule := "is not " + what + ": want " + want
		colon := token{char: ':'}
		i := slices.IndexFunc(t, colon.equal)
		if i < 0 {
			hint := ""
			if s, whole := literalPrefix(t); whole && fitsHex(t, 4) {
				hint = fmt.Sprintf("for all of a vendor write %q", s+":*")
			}
			return rule, hint
		}
		if !fitsHex(t[:i], 4) || !fitsHex(t[i+1:], 4) {
			return rule, padPair(t)
		}
		return "", ""
	}}
}

// padPair is the hint for IDs whose leading zeros were left out.
func padPair(tokens []token) string {
	s, whole := literalPrefix(tokens)
	first, second, _ := strings.Cut(s, ":")
	if !whole || strings.Trim(first+second, hexDigits) != "" || len(first) > 4 || len(second) > 4 || first == "" || second == "" {
		return ""
	}
	return didYouMean(pad(first, 4) + ":" + pad(second, 4))
}

// pciClass is the beginning of a class code.
var pciClass = kind{
	mode: hexMode, prefix: true, want: `two, four or six digits such as "03" or "0302"`, hex: 2,
	check: func(a alternative) (string, string) {
		t := a.tokens
		if fitsHex(t, 2) || fitsHex(t, 4) || fitsHex(t, 6) {
			return "", ""
		}
		return `is not the beginning of a PCI class: want two, four or six hexadecimal digits such as "03" or "0302"`, ""
	},
}

// pciAddress is domain, bus, device and function; pciSlot is the same without
// the function, which all functions of one card share.
var (
	pciAddress = address("a PCI address", regexp.MustCompile(addressShape+`\.[0-7]$`), "0000:3b:00.0")
	pciSlot    = address("a PCI slot", regexp.MustCompile(addressShape+`$`), "0000:3b:00")
)

// addressShape: some controllers make domains of more than four digits.
const addressShape = `^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]`

func address(what string, shape *regexp.Regexp, example string) kind {
	want := fmt.Sprintf("one such as %q", example)
	return kind{mode: hexMode, want: want, check: func(a alternative) (string, string) {
		t := a.tokens
		s, whole := literalPrefix(t)
		if !whole || shape.MatchString(s) {
			return "", ""
		}
		hint := ""
		// As lspci prints it, and with the function that a slot lacks.
		for _, meant := range []string{"0000:" + s, strings.SplitN(s, ".", 2)[0]} {
			if shape.MatchString(meant) {
				hint = didYouMean(meant)
			}
		}
		return "is not " + what + ": want " + want, hint
	}}
}

// number is a number that is decimal by nature, a list of ranges of them, or
// a pattern.
var number = kind{
	mode: numberMode, bare: true, want: `a number, or numbers and ranges such as "0,2-7"`,
	check: func(a alternative) (string, string) {
		for _, t := range a.tokens {
			if t.kind == literalToken && (t.char < '0' || t.char > '9') {
				return `is not a number: want one such as "2", or numbers and ranges such as "0,2-7"`, ""
			}
		}
		return "", ""
	},
}

// oneOfKind is one of a few words.
func oneOfKind(words ...string) kind {
	return kind{want: "one of " + list(words), check: func(a alternative) (string, string) {
		p := plainMode.pattern(a.tokens)
		for _, w := range words {
			if plainMode.matches([]pattern{p}, w) {
				return "", ""
			}
		}
		return "is not one of " + list(words), ""
	}}
}

func (t token) equal(u token) bool {
	return t.kind == u.kind && t.char == u.char && t.not == u.not && slices.Equal(t.ranges, u.ranges)
}

// fitsHex reports whether a hexadecimal number of so many digits can match.
func fitsHex(tokens []token, width int) bool {
	least, open := 0, false
	for _, t := range tokens {
		switch t.kind {
		case starToken:
			open = true
			continue
		case classToken:
			for _, r := range t.ranges {
				if !isHex(r) {
					return false
				}
			}
		case literalToken:
			if !isHex(t.char) {
				return false
			}
		}
		least++
	}
	return least == width || open && least <= width
}

func isHex(r rune) bool { return strings.ContainsRune(hexDigits, r) }

// pad puts the zeros before a number that its width lacks.
func pad(s string, width int) string { return strings.Repeat("0", width-len(s)) + s }

func numeral(n int) string {
	if n == 2 {
		return "two"
	}
	return "four"
}
