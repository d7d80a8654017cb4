package device

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// PlaceholderSerial reports whether s is not a serial number but a manufacturer's
// placeholder, which any number of devices may have. The rules consider only letters
// and digits, ignoring case, and no label in front ("SN0001", "0x0001"):
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
//   - a version of the product, alone or after a word for it: "01.00.00", "1.10", "REV8",
//     "Rev. B", "v1.2"
//   - a PCI address, which the kernel gives its root hubs: "0000:00:14.0"
//   - words for a missing serial: "None", "N/A", "Default string",
//     "Serial Number", "To be filled by O.E.M."
//
// Other shared serials show only when several devices are present, and are handled
// elsewhere.
func PlaceholderSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if IsPCIAddress(s) || isVersion(s) {
		return true
	}
	s = strings.Map(lettersAndDigits, s)
	if slices.Contains(noSerial, s) {
		return true
	}
	for _, label := range []string{"serialnumber", "serial", "sn", "0x"} {
		if rest, ok := strings.CutPrefix(s, label); ok {
			s = rest
			break
		}
	}
	return isPattern(s)
}

// lettersAndDigits drops all other characters.
func lettersAndDigits(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) {
		return r
	}
	return -1
}

// isPattern reports whether s follows one of the rules without words.
func isPattern(s string) bool {
	const shortest = 3
	runes := []rune(s)
	if len(runes) < shortest {
		return true
	}
	isOneCharacter := strings.Trim(s, string(runes[0])) == ""
	isCounting := counts(s) || countsRepeated(runes) || countsRepeated(runes[:len(runes)-1])
	return isOneCharacter || isCounting || isZerosAndOne(s) || dated(s)
}

// isZerosAndOne reports whether s is zeros and a final one, repeatedly: "001000001".
func isZerosAndOne(s string) bool {
	isBinary := strings.Trim(s, "01") == ""
	hasRun := strings.Contains(s, "11")
	return isBinary && !hasRun && s[0] == '0' && strings.HasSuffix(s, "1")
}

// dated reports whether s is a date, followed by nothing that identifies one device.
func dated(s string) bool {
	const layout = "20060102"
	if len(s) < len(layout) {
		return false
	}
	date, err := time.Parse(layout, s[:len(layout)])
	isOfUSB := err == nil && date.Year() >= 1990 && date.Year() < 2060
	rest := s[len(layout):]
	return isOfUSB && (strings.HasSuffix(rest, "00000") || isPattern(rest))
}

// versionWords precede a version. A longer word comes before its start.
var versionWords = []string{"version", "ver", "revision", "rev", "firmware", "fw", "hw", "v"}

// isVersion reports whether s is a version, which all devices of a model have: cameras report
// "01.00.00" (04f2:b7c0, 05c8:082f, 30c9:0084), others "01.00.00.00" (06cb:0701) and "REV8"
// (b58e:9e84). A number without dots needs a word before it.
func isVersion(s string) bool {
	for _, word := range versionWords {
		rest, hasWord := strings.CutPrefix(s, word)
		if hasWord {
			return isNamedVersion(strings.TrimLeft(rest, " .:_-"))
		}
	}
	const most = 4
	groups := strings.Split(s, ".")
	return len(groups) > 1 && len(groups) <= most && areShortNumbers(groups)
}

// isNamedVersion reports whether the text after a word such as "rev" is a version: a letter, or
// numbers with dots between them.
func isNamedVersion(s string) bool {
	if len(s) == 1 && unicode.IsLetter(rune(s[0])) {
		return true
	}
	return areShortNumbers(strings.Split(s, "."))
}

// areShortNumbers reports whether each group is a number of one or two digits. Longer ones
// may be parts of a serial number.
func areShortNumbers(groups []string) bool {
	const longest = 2
	for _, group := range groups {
		if !isDigits(group) || len(group) > longest {
			return false
		}
	}
	return true
}

// noSerial holds the words, reduced to their letters and digits.
var noSerial = []string{
	"blank", "default", "defaultserial", "defaultstring", "demo", "dummy", "empty", "example", "invalid",
	"iserial", "iserialnumber", "none", "noserial", "noserialnumber", "notapplicable", "notavailable",
	"notdefined", "notset", "notspecified", "null", "oem", "sample", "serial", "serialno", "serialnum",
	"serialnumber", "string", "systemserialnumber", "test", "tobefilled", "tobefilledbyoem", "undefined",
	"unknown", "usbserial", "xxxserial",
}

// countings are the sequences that placeholders count along.
var countings = []string{"0123456789", "1234567890", "0123456789abcdef", "123456789abcdef0", "abcdefghijklmnopqrstuvwxyz"}

// counts reports whether s counts up from the start of a sequence, repeatedly, or down
// to its start.
func counts(s string) bool {
	down := []rune(s)
	slices.Reverse(down)
	for _, c := range countings {
		repeated := strings.Repeat(c, len(s)/len(c)+1)
		if strings.HasPrefix(repeated, s) || strings.HasPrefix(repeated, string(down)) {
			return true
		}
	}
	return false
}

// countsRepeated reports whether s counts with each character repeated.
func countsRepeated(s []rune) bool {
	once := slices.Compact(slices.Clone(s))
	return len(once) >= 3 && len(once)*2 <= len(s) && counts(string(once))
}
