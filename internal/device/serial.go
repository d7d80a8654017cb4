package device

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// PlaceholderSerial reports whether s is a manufacturer's placeholder instead of a serial number.
// Any number of devices may have the same placeholder. The rules consider only letters
// and digits, and ignore case and a label in front ("SN0001", "0x0001"):
//
//   - fewer than three characters: "", "0", "1.0"
//   - one character repeated: "00000000", "ffffff", "00:00:00:00:00:00"
//   - zeros and a final one, repeatedly: "0001", "00000001", "001000001"
//   - counting up from 0, 1 or a, decimal, hexadecimal or by letters, repeatedly:
//     "123456", "0123456789ABCDEF", "12345678901234567890", "ABCDEFGH"
//   - the same with each character repeated, and one more: "AAAABBBBCCCC1"
//   - counting down to 0 or 1: "87654321", "9876543210"
//   - a date before one of these, or before a number that ends in five zeros:
//     "200901010001", "20100201396000000"
//   - a version of the product, with or without a word before it: "01.00.00", "1.10", "REV8",
//     "Rev. B", "v1.2"
//   - a PCI address, which the kernel reports as the serial number of root hubs: "0000:00:14.0"
//   - words for a missing serial number: "None", "N/A", "Default string",
//     "Serial Number", "To be filled by O.E.M."
//
// Other duplicates are only visible when several devices are present. Package ledger handles them.
func PlaceholderSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if IsPCIAddress(s) || isVersion(s) {
		return true
	}
	s = strings.Map(lettersAndDigits, s)
	if slices.Contains(noSerial, s) {
		return true
	}
	return isPattern(withoutLabel(s))
}

// withoutLabel removes a label in front of a serial number.
func withoutLabel(s string) string {
	for _, label := range []string{"serialnumber", "serial", "sn", "0x"} {
		rest, hasLabel := strings.CutPrefix(s, label)
		if hasLabel {
			return rest
		}
	}
	return s
}

// lettersAndDigits drops all other characters.
func lettersAndDigits(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) {
		return r
	}
	return -1
}

// isPattern reports whether s follows a rule that has no list of words.
func isPattern(s string) bool {
	const shortest = 3
	if utf8.RuneCountInString(s) < shortest {
		return true
	}
	if isOneCharacter(s) || isZerosAndOne(s) {
		return true
	}
	return isCounting(s) || isCountingRepeated(s) || isDated(s)
}

// isOneCharacter reports whether s is one character, repeated: "ffffff".
func isOneCharacter(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	return strings.Trim(s, string(first)) == ""
}

// isZerosAndOne reports whether s is zeros and a final one, repeatedly: "001000001".
func isZerosAndOne(s string) bool {
	isBinary := strings.Trim(s, "01") == ""
	hasRun := strings.Contains(s, "11")
	return isBinary && !hasRun && s[0] == '0' && strings.HasSuffix(s, "1")
}

// isDated reports whether s is a date in the era of USB and another placeholder: "200901010001".
func isDated(s string) bool {
	const layout = "20060102"
	if len(s) < len(layout) {
		return false
	}
	date, err := time.Parse(layout, s[:len(layout)])
	if err != nil || date.Year() < 1990 || date.Year() >= 2060 {
		return false
	}
	rest := s[len(layout):]
	return strings.HasSuffix(rest, "00000") || isPattern(rest)
}

// versionWords are words in front of a version. "version" comes before "v", its prefix.
var versionWords = []string{"version", "ver", "revision", "rev", "firmware", "fw", "hw", "v"}

// isVersion reports whether s is a version, which is the same for all devices of a model. Cameras report
// "01.00.00" (04f2:b7c0, 05c8:082f, 30c9:0084), other devices "01.00.00.00" (06cb:0701) and "REV8"
// (b58e:9e84). A number without dots is only a version if a word precedes it.
func isVersion(s string) bool {
	for _, word := range versionWords {
		rest, hasWord := strings.CutPrefix(s, word)
		if hasWord {
			return isNamedVersion(strings.TrimLeft(rest, " .:_-"))
		}
	}
	const maxGroups = 4
	groups := strings.Split(s, ".")
	if len(groups) < 2 || len(groups) > maxGroups {
		return false
	}
	return areShortNumbers(groups)
}

// isNamedVersion reports whether the text after a word such as "rev" is a version: a letter, or
// numbers with dots between them.
func isNamedVersion(s string) bool {
	if len(s) == 1 && unicode.IsLetter(rune(s[0])) {
		return true
	}
	return areShortNumbers(strings.Split(s, "."))
}

// areShortNumbers reports whether each group is a number of one or two digits. Longer numbers
// may be parts of a serial number.
func areShortNumbers(groups []string) bool {
	const maxDigits = 2
	for _, group := range groups {
		if !IsDigits(group) || len(group) > maxDigits {
			return false
		}
	}
	return true
}

// noSerial has the words for a missing serial number, reduced to their letters and digits.
var noSerial = []string{
	"blank", "default", "defaultserial", "defaultstring", "demo", "dummy", "empty", "example", "invalid",
	"iserial", "iserialnumber", "none", "noserial", "noserialnumber", "notapplicable", "notavailable",
	"notdefined", "notset", "notspecified", "null", "oem", "sample", "serial", "serialno", "serialnum",
	"serialnumber", "string", "systemserialnumber", "test", "tobefilled", "tobefilledbyoem", "undefined",
	"unknown", "usbserial", "xxxserial",
}

// sequences are the sequences in which placeholders count.
var sequences = []string{
	"0123456789",
	"1234567890",
	"0123456789abcdef",
	"123456789abcdef0",
	"abcdefghijklmnopqrstuvwxyz",
}

// isCounting reports whether s counts up from the start of a sequence, repeatedly, or down
// to its start.
func isCounting(s string) bool {
	reversed := []rune(s)
	slices.Reverse(reversed)
	down := string(reversed)
	for _, sequence := range sequences {
		repeated := strings.Repeat(sequence, len(s)/len(sequence)+1)
		if strings.HasPrefix(repeated, s) || strings.HasPrefix(repeated, down) {
			return true
		}
	}
	return false
}

// isCountingRepeated reports whether s counts with each character repeated. One more character may
// follow: "AAAABBBBCCCC1".
func isCountingRepeated(s string) bool {
	runes := []rune(s)
	return countsRepeated(runes) || countsRepeated(runes[:len(runes)-1])
}

func countsRepeated(s []rune) bool {
	once := slices.Compact(slices.Clone(s))
	isRepeated := len(once) >= 3 && len(once)*2 <= len(s)
	return isRepeated && isCounting(string(once))
}
