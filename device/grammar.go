package device

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"
)

// The characters of IDs: alnum starts and ends a field, inner is allowed in between.
const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum   = decimal + lower + upper
	inner   = alnum + "_-."
)

// consists reports whether s is not empty and has only these characters.
func consists(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }

// bounded reports whether s consists of characters, and starts and ends with a letter
// or digit.
func bounded(s, characters string) bool {
	return consists(s, characters) && strings.Trim(s, "_-.:") == s
}

// ValidID reports whether id is in the grammar of IDs and no longer than
// MaxID.
func ValidID(id string) bool {
	return len(id) <= MaxID && bounded(id, inner+":") && !strings.Contains(id, "::")
}

// The hash part: a mark and hashLen characters of five bits each, HashLen together.
const (
	hashMark = "-x"
	hashLen  = 10
	HashLen  = len(hashMark) + hashLen
)

// HashPart returns the mark and the hash of a replaced text, HashLen characters.
func HashPart(exact string) string {
	sum := sha256.Sum256([]byte(exact))
	return hashMark + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:hashLen])
}

// replaced returns a field: the readable part within the grammar, and the hash of
// exact.
func replaced(readable, exact string) string {
	readable = sanitize(readable)
	if readable == "" {
		readable = "x"
	}
	return readable + HashPart(exact)
}

// field returns s if it can be a field of an ID, otherwise its replacement.
func field(s string) string {
	if isClean(s) {
		return s
	}
	return replaced(s, s)
}

// acpiField is field, but keeps the name of an ACPI device.
func acpiField(s string) string {
	if isACPIName(s) {
		return s
	}
	return field(s)
}

// fit cuts an ID to limit characters, which is more than HashLen.
func fit(id string, limit int) string {
	if len(id) <= limit {
		return id
	}
	return strings.TrimRight(id[:limit-HashLen], ":_-.") + HashPart(id)
}

// isClean reports whether s can be an unmodified field. A text like a replacement
// cannot, since it would be ambiguous.
func isClean(s string) bool { return bounded(s, inner) && !hasHash(s) }

// hasHash reports whether s ends like a hash part.
func hasHash(s string) bool {
	i := len(s) - HashLen
	if i < 0 || s[i:i+len(hashMark)] != hashMark {
		return false
	}
	return consists(s[i+len(hashMark):], decimal+"abcdefghijklmnopqrstuv")
}

// sanitize reduces s to the grammar of a field, possibly to nothing.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(inner, r) {
			return r
		}
		return '_'
	}, s)
	return strings.Trim(s, "_-.")
}

// IsPCIAddress reports whether s is domain:bus:device.function as formatted by the
// kernel. Behind some controllers a domain has more than four digits.
func IsPCIAddress(s string) bool {
	i := len(s) - len(":3b:00.0")
	return i >= 4 && s[i] == ':' && s[i+3] == ':' && s[i+6] == '.' &&
		isHex(s[:i]) && isHex(s[i+1:i+3]) && isHex(s[i+4:i+6]) && isDigits(s[i+7:])
}

// isACPIName reports whether s is the kernel's name of a device of the ACPI tables: the
// device's ID, three or four letters and four digits, and its number, "ARMH0011:00"
// (acpi_device_set_name in drivers/acpi/scan.c). It is the only kind of name with a
// colon that is unambiguous.
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

// MaxNetName is the maximum length of the name of a network interface: IFNAMSIZ without
// the terminating zero (include/uapi/linux/if.h).
const MaxNetName = 15

// ValidNetName reports whether the kernel accepts the name of a network interface
// (dev_valid_name in net/core/dev.c), and it has no control characters.
func ValidNetName(name string) bool {
	return name != "" && len(name) <= MaxNetName && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) })
}
