package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// kind is a kind of value that a match compares.
type kind struct {
	mode pattern.Kind
	// want is what a value looks like, for messages.
	want string
	// bare says that TOML integers are accepted: numbers that are decimal by
	// nature. Elsewhere 0x10de would become 4318.
	bare bool
	// hex is how many digits an ID of this kind has where TOML integers are
	// not accepted and a hint can say what was meant.
	hex int
	// check returns what an alternative of a pattern breaks, or empty.
	check func(a pattern.Alternative) (rule, hint string)
}

const hexDigits = "0123456789abcdef"

// plain is text, whatever it is.
var plain = kind{want: "a string or a list of strings"}

// hexID is a hexadecimal number of a fixed number of digits.
func hexID(what string, width int, example string) kind {
	want := fmt.Sprintf("%s digits such as %q", numeral(width), example)
	return kind{mode: pattern.Hex, want: want, hex: width, check: func(a pattern.Alternative) (string, string) {
		if a.Fits(width, hexDigits) {
			return "", ""
		}
		hint := ""
		if s, whole := a.Literal(); whole && len(s) < width && a.Fits(len(s), hexDigits) {
			hint = didYouMean(pad(s, width))
		}
		return "is not " + what + ": want " + want, hint
	}}
}

// hexPair is two such numbers of four digits, "vvvv:pppp".
func hexPair(what, second, example string) kind {
	want := fmt.Sprintf("vendor and %s of four digits each, such as %q", second, example)
	return kind{mode: pattern.Hex, want: want, check: func(a pattern.Alternative) (string, string) {
		first, second, pair := strings.Cut(a.String(), ":")
		if pair && fourDigits(first) && fourDigits(second) {
			return "", ""
		}
		hint := ""
		if s, whole := a.Literal(); whole && pair {
			hint = padPair(s)
		} else if whole && a.Fits(4, hexDigits) {
			hint = fmt.Sprintf("for all of a vendor write %q", s+":*")
		}
		return "is not " + what + ": want " + want, hint
	}}
}

// fourDigits reports whether a pattern may match four hexadecimal digits.
func fourDigits(s string) bool {
	p, err := pattern.Parse(pattern.Hex, s)
	return err == nil && p.Alternatives()[0].Fits(4, hexDigits)
}

// padPair is the hint for IDs whose leading zeros were left out.
func padPair(s string) string {
	first, second, _ := strings.Cut(s, ":")
	if strings.Trim(first+second, hexDigits) != "" || len(first) > 4 || len(second) > 4 || first == "" || second == "" {
		return ""
	}
	return didYouMean(pad(first, 4) + ":" + pad(second, 4))
}

// pciClass is the beginning of a class code.
var pciClass = kind{
	mode: pattern.HexPrefix, want: `two, four or six digits such as "03" or "0302"`, hex: 2,
	check: func(a pattern.Alternative) (string, string) {
		if a.Fits(2, hexDigits) || a.Fits(4, hexDigits) || a.Fits(6, hexDigits) {
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
	return kind{mode: pattern.Hex, want: want, check: func(a pattern.Alternative) (string, string) {
		s, whole := a.Literal()
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
	mode: pattern.Number, bare: true, want: `a number, or numbers and ranges such as "0,2-7"`,
}

// oneOfKind is one of a few words.
func oneOfKind(words ...string) kind {
	return kind{want: "one of " + list(words), check: func(a pattern.Alternative) (string, string) {
		if slices.ContainsFunc(words, a.Match) {
			return "", ""
		}
		return "is not one of " + list(words), ""
	}}
}

// pad puts the zeros before a number that its width lacks.
func pad(s string, width int) string { return strings.Repeat("0", width-len(s)) + s }

func numeral(n int) string {
	if n == 2 {
		return "two"
	}
	return "four"
}
