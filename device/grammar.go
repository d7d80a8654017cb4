package device

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"
)

// ValidID reports whether id is in the grammar of IDs and no longer than
// MaxID.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxID || !isAlnum(id[0]) || !isAlnum(id[len(id)-1]) {
		return false
	}
	for i := range len(id) {
		if !isInner(id[i]) && id[i] != ':' {
			return false
		}
	}
	return !strings.Contains(id, "::")
}

// The hash part: a mark and hashLen characters of five bits each.
const (
	hashMark = "-x"
	hashLen  = 10
	partLen  = len(hashMark) + hashLen
)

// hashPart returns the mark and the hash of what had to be changed.
func hashPart(exact string) string {
	sum := sha256.Sum256([]byte(exact))
	return hashMark + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:hashLen])
}

// replaced returns one field: readable as far as the grammar holds it, and
// the hash of exact.
func replaced(readable, exact string) string {
	readable = sanitize(readable)
	if readable == "" {
		readable = "x"
	}
	return readable + hashPart(exact)
}

// field returns s if it can be a field of an ID, else its replacement.
func field(s string) string {
	if isClean(s) {
		return s
	}
	return replaced(s, s)
}

// fit cuts an ID to limit characters, which are more than partLen.
func fit(id string, limit int) string {
	if len(id) <= limit {
		return id
	}
	return strings.TrimRight(id[:limit-partLen], ":_-.") + hashPart(id)
}

// isClean reports whether s can be a field as it is. What looks like a
// replacement can't, lest it be taken for one.
func isClean(s string) bool {
	if s == "" || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isInner(s[i]) {
			return false
		}
	}
	return !hasHash(s)
}

// hasHash reports whether s ends in what could be a hash part.
func hasHash(s string) bool {
	i := len(s) - partLen
	if i < 0 || s[i:i+len(hashMark)] != hashMark {
		return false
	}
	return strings.Trim(s[i+len(hashMark):], "0123456789abcdefghijklmnopqrstuv") == ""
}

// sanitize returns what is left of s in the grammar of one field; it may be
// nothing.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && isInner(byte(r)) {
			return r
		}
		return '_'
	}, s)
	return strings.Trim(s, "_-.")
}

// isPCIAddress reports whether s is domain:bus:device.function as the kernel
// writes it. A domain has more than four digits behind some controllers.
func isPCIAddress(s string) bool {
	i := len(s) - len(":3b:00.0")
	return i >= 4 && s[i] == ':' && s[i+3] == ':' && s[i+6] == '.' &&
		isHex(s[:i]) && isHex(s[i+1:i+3]) && isHex(s[i+4:i+6]) && isDigits(s[i+7:])
}

// isACPIName reports whether s is a name that the kernel makes for a device
// of the ACPI tables: the device's ID, three or four letters and four digits,
// and its number, "ARMH0011:00" (acpi_device_set_name in
// drivers/acpi/scan.c). It is the one kind of name that holds a colon and
// still can't be mistaken.
func isACPIName(s string) bool {
	id, number, ok := strings.Cut(s, ":")
	if !ok || len(id) < 7 || len(id) > 8 || len(number) != 2 || number[0] > '9' || !isHex(number) {
		return false
	}
	for i := range len(id) {
		if !isAlnum(id[i]) || 'a' <= id[i] && id[i] <= 'z' {
			return false
		}
	}
	return true
}

// isChain reports whether s is a chain of ports, "1.4".
func isChain(s string) bool {
	for port := range strings.SplitSeq(s, ".") {
		if !isDigits(port) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool { return isLetter(c) || isDigit(c) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// isInner reports whether c can be inside a field.
func isInner(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

// ValidNetName reports whether the kernel takes a name for a network interface
// (dev_valid_name in net/core/dev.c).
func ValidNetName(name string) bool {
	const longest = 15 // IFNAMSIZ without the zero at the end
	return name != "" && len(name) <= longest && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/:") && !strings.ContainsFunc(name, unicode.IsSpace)
}
