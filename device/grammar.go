package device

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"
)

// The characters of IDs: alnum begins and ends a field, inner is what may be in
// between.
const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum   = decimal + lower + upper
	inner   = alnum + "_-."
)

// consists reports whether s is not empty and has no characters but these.
func consists(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }

// bounded reports whether s consists of characters, of which letters and digits
// are first and last.
func bounded(s, characters string) bool {
	return consists(s, characters) && strings.Trim(s, "_-.:") == s
}

// ValidID reports whether id is in the grammar of IDs and no longer than
// MaxID.
func ValidID(id string) bool {
	return len(id) <= MaxID && bounded(id, inner+":") && !strings.Contains(id, "::")
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
func isClean(s string) bool { return bounded(s, inner) && !hasHash(s) }

// hasHash reports whether s ends in what could be a hash part.
func hasHash(s string) bool {
	i := len(s) - partLen
	if i < 0 || s[i:i+len(hashMark)] != hashMark {
		return false
	}
	return consists(s[i+len(hashMark):], decimal+"abcdefghijklmnopqrstuv")
}

// sanitize returns what is left of s in the grammar of one field; it may be
// nothing.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(inner, r) {
			return r
		}
		return '_'
	}, s)
	return strings.Trim(s, "_-.")
}

// IsPCIAddress reports whether s is domain:bus:device.function as the kernel
// writes it. A domain has more than four digits behind some controllers.
func IsPCIAddress(s string) bool {
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
	return ok && (len(id) == 7 || len(id) == 8) && consists(id, decimal+upper) && len(number) == 2 && number[0] <= '9' && isHex(number)
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

func isDigits(s string) bool { return consists(s, decimal) }

func isHex(s string) bool { return consists(s, decimal+"abcdef") }

// MaxNetName is the longest name of a network interface: IFNAMSIZ without the
// zero at the end (include/uapi/linux/if.h).
const MaxNetName = 15

// ValidNetName reports whether the kernel takes a name for a network interface
// (dev_valid_name in net/core/dev.c), and it has no control characters.
func ValidNetName(name string) bool {
	return name != "" && len(name) <= MaxNetName && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) })
}
