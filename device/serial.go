package device

import (
	"slices"
	"strings"
	"unicode"
)

// PlaceholderSerial reports whether s is no serial number, but what a maker
// left in its place, so that any number of devices may have it. The rules
// look at letters and digits only, whatever their case, and not at a label in
// front ("SN0001", "0x0001"):
//
//   - fewer than three characters: "", "0", "1.0"
//   - one character repeated: "00000000", "ffffff", "00:00:00:00:00:00"
//   - zeros and a one at the end: "0001", "00000001"
//   - counting up from 0, 1 or a, decimal, hexadecimal or by letters, however
//     often: "123456", "0123456789ABCDEF", "12345678901234567890", "ABCDEFGH"
//   - counting down to 0 or 1: "87654321", "9876543210"
//   - a PCI address, which is what the kernel gives its root hubs: "0000:00:14.0"
//   - words that say that there is none: "None", "N/A", "Default string",
//     "Serial Number", "To be filled by O.E.M."
//
// A serial that several devices share without any of these marks is told by
// their being there together, not here.
func PlaceholderSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if isPCIAddress(s) {
		return true
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, s)
	if slices.Contains(noSerial, s) {
		return true
	}
	for _, label := range []string{"serialnumber", "serial", "sn", "0x"} {
		if rest, ok := strings.CutPrefix(s, label); ok {
			s = rest
			break
		}
	}
	runes := []rune(s)
	return len(runes) < 3 ||
		strings.Trim(s, string(runes[0])) == "" ||
		strings.TrimLeft(s, "0") == "1" ||
		counts(s)
}

// noSerial holds the words, reduced to their letters and digits.
var noSerial = []string{
	"blank", "default", "defaultserial", "defaultstring", "demo", "dummy", "empty", "example", "invalid",
	"iserial", "iserialnumber", "none", "noserial", "noserialnumber", "notapplicable", "notavailable",
	"notdefined", "notset", "notspecified", "null", "oem", "sample", "serial", "serialno", "serialnum",
	"serialnumber", "string", "systemserialnumber", "test", "tobefilled", "tobefilledbyoem", "undefined",
	"unknown", "usbserial", "xxxserial",
}

// countings holds what serials count along.
var countings = []string{"0123456789", "1234567890", "0123456789abcdef", "123456789abcdef0", "abcdefghijklmnopqrstuvwxyz"}

// counts reports whether s counts up from the start of one of the countings,
// beginning anew at its end, or down to its start.
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
