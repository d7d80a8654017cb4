package device

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"unicode"
)

// The characters of IDs. A field starts and ends with a letter or digit (alnum), and has
// characters of inner in between.
const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum   = decimal + lower + upper
	inner   = alnum + "_-."
)

// consists reports whether s is not empty and has only these characters.
func consists(s, characters string) bool {
	return s != "" && strings.Trim(s, characters) == ""
}

// isBounded reports whether s consists of characters, and starts and ends with a letter
// or digit.
func isBounded(s, characters string) bool {
	return consists(s, characters) && strings.Trim(s, "_-.:") == s
}

// ValidID reports whether id has the syntax of IDs and is no longer than MaxID.
func ValidID(id string) bool {
	if len(id) > MaxID || strings.Contains(id, "::") {
		return false
	}
	return isBounded(id, inner+":")
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
	hash := base32.HexEncoding.EncodeToString(sum[:])
	return hashMark + strings.ToLower(hash[:hashLen])
}

// MaxName is the maximum length of the part of a resource name after the domain, and of a label
// (IsQualifiedName in k8s.io/apimachinery/pkg/util/validation).
const MaxName = 63

// CutName returns a name of ASCII characters, or MaxName characters in place of a longer one. The
// end of a cut name is a hash of the whole, so that names with one beginning stay distinct.
func CutName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return CutPart(name) + HashPart(name)
}

// LegalName makes the part of a resource name after the domain: at most MaxName letters, digits, "-",
// "_" and ".", with a letter or digit first and last. It is empty if no letter or digit is left.
func LegalName(s string) string {
	return CutName(strings.Trim(LegalCharacters(s), "-_."))
}

// LegalCharacters replaces each character that a name may not have by "-" (qualifiedNameExtCharFmt in
// k8s.io/apimachinery/pkg/util/validation).
func LegalCharacters(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(inner, r) {
			return r
		}
		return '-'
	}, s)
}

// CutPart returns the part of a long name that CutName keeps.
func CutPart(name string) string { return name[:MaxName-HashLen] }

// replaced returns a field: the valid characters of readable, and the hash of exact.
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

// acpiField is like field, but keeps the name of an ACPI device.
func acpiField(s string) string {
	if isACPIName(s) {
		return s
	}
	return field(s)
}

// fit cuts an ID to limit characters. The limit must be more than HashLen.
func fit(id string, limit int) string {
	if len(id) <= limit {
		return id
	}
	return strings.TrimRight(id[:limit-HashLen], ":_-.") + HashPart(id)
}

// isClean reports whether s can be a field without a change. A text that looks like a replacement
// cannot, because it would be ambiguous.
func isClean(s string) bool { return isBounded(s, inner) && !hasHash(s) }

// areClean reports whether every part can be a field without a change.
func areClean(parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool {
		return !isClean(p)
	})
}

// hasHash reports whether s ends like a hash part.
func hasHash(s string) bool {
	const base32Hex = decimal + "abcdefghijklmnopqrstuv"
	start := len(s) - HashLen
	if start < 0 {
		return false
	}
	hash, hasMark := strings.CutPrefix(s[start:], hashMark)
	return hasMark && consists(hash, base32Hex)
}

// sanitize reduces s to the characters of a field. The result may be empty.
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
// kernel. Below some controllers a domain has more than four digits.
func IsPCIAddress(s string) bool {
	domain, rest, _ := strings.Cut(s, ":")
	bus, rest, _ := strings.Cut(rest, ":")
	slot, function, _ := strings.Cut(rest, ".")
	hasLengths := len(domain) >= 4 && len(bus) == 2 && len(slot) == 2
	isHexadecimal := isHex(domain) && isHex(bus) && isHex(slot)
	isFunction := len(function) == 1 && IsDigits(function)
	return hasLengths && isHexadecimal && isFunction
}

// isACPIName reports whether s is the kernel's name of a device of the ACPI tables: the
// device's ID, three or four letters and four digits, and its number, "ARMH0011:00"
// (acpi_device_set_name in drivers/acpi/scan.c). No other kind of name with a colon is
// unambiguous.
func isACPIName(s string) bool {
	id, number, _ := strings.Cut(s, ":")
	isID := len(id) == 7 || len(id) == 8
	if !isID || len(number) != 2 {
		return false
	}
	return consists(id, decimal+upper) && IsDigits(number[:1]) && isHex(number[1:])
}

// isChain reports whether s is a chain of ports, "1.4".
func isChain(s string) bool {
	for port := range strings.SplitSeq(s, ".") {
		if !IsDigits(port) {
			return false
		}
	}
	return true
}

// IsDigits reports whether s consists of one or more decimal digits.
func IsDigits(s string) bool { return consists(s, decimal) }

// IsUID reports whether s can be the UID of an object, and a part of a name. The API server makes
// UUIDs, but does not promise a format.
func IsUID(s string) bool { return consists(s, alnum+"-") }

// IsRootHubName reports whether name is the kernel's name of a root hub, "usb1" (usb_alloc_dev in
// drivers/usb/core/usb.c). The names of all other devices are the names of their ports.
func IsRootHubName(name string) bool {
	number, hasPrefix := strings.CutPrefix(name, "usb")
	return hasPrefix && IsDigits(number)
}

func isHex(s string) bool { return consists(s, decimal+"abcdef") }

// MaxNetName is the maximum length of the name of a network interface: IFNAMSIZ without
// the terminating zero (include/uapi/linux/if.h).
const MaxNetName = 15

// ValidNetName reports whether the kernel accepts the name of a network interface
// (dev_valid_name in net/core/dev.c). It also excludes names with control characters.
func ValidNetName(name string) bool {
	switch name {
	case "", ".", "..":
		return false
	}
	return len(name) <= MaxNetName && !strings.ContainsFunc(name, isInvalidInNetName)
}

func isInvalidInNetName(r rune) bool {
	isSeparator := r == '/' || r == ':' || unicode.IsSpace(r)
	return isSeparator || unicode.IsControl(r)
}
