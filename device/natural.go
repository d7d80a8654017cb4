package device

import (
	"cmp"
	"strings"
)

// CompareNatural orders names as people count: runs of digits by their value,
// so that "ttyUSB2" is before "ttyUSB10", all else by its bytes. It is zero
// for equal strings only.
func CompareNatural(a, b string) int {
	// What both begin with decides nothing, but for digits of a longer run.
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) {
		same--
	}
	x, y := a[same:], b[same:]
	for x != "" && y != "" {
		if !isDigit(x[0]) || !isDigit(y[0]) {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		var m, n string
		m, x = cutDigits(x)
		n, y = cutDigits(y)
		if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// cutDigits takes the digits off the front of s and drops leading zeros.
func cutDigits(s string) (digits, rest string) {
	end := 0
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return strings.TrimLeft(s[:end], "0"), s[end:]
}

// CompareAddress orders PCI addresses as they are numbered: domains of five
// digits after those of four, all else by its hexadecimal digits.
func CompareAddress(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
