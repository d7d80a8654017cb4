package device

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// AttributeType is the type of an attribute by which claims select. CEL compares numbers and
// versions by their value, and strings only for equality.
type AttributeType string

// The types. StringType is the default.
const (
	StringType  AttributeType = ""
	IntType     AttributeType = "int"
	BoolType    AttributeType = "bool"
	VersionType AttributeType = "version"
)

// Typed is the value of an attribute by which claims select.
type Typed struct {
	Type AttributeType
	// Text is a number in decimal, "true" or "false", or a semantic version.
	Text string
}

// ParseTyped returns the value that a text of the host stands for. The error continues the quoted
// text.
func ParseTyped(t AttributeType, text string) (Typed, error) {
	trimmed := strings.TrimSpace(text)
	switch t {
	case IntType:
		return parseInt(trimmed)
	case BoolType:
		return parseBool(trimmed)
	case VersionType:
		return parseVersion(trimmed)
	}
	return Typed{Text: text}, nil
}

// parseInt parses a decimal number, or a hexadecimal one with the prefix that the kernel writes.
func parseInt(text string) (Typed, error) {
	base := 10
	digits, isHex := strings.CutPrefix(text, "0x")
	if isHex {
		base = 16
	}
	n, err := strconv.ParseInt(digits, base, 64)
	if err != nil {
		return Typed{}, fmt.Errorf(`is not an int: want a decimal number such as "40", or a hexadecimal one such as "0x28", of at most 64 bits`)
	}
	return Typed{Type: IntType, Text: strconv.FormatInt(n, 10)}, nil
}

// Words of sysfs for booleans: numbers, "Y" and "N" of module parameters (param_get_bool in
// kernel/params.c), and words of drivers.
var (
	trueWords  = []string{"1", "y", "yes", "true", "on", "enabled"}
	falseWords = []string{"0", "n", "no", "false", "off", "disabled"}
)

func parseBool(text string) (Typed, error) {
	word := strings.ToLower(text)
	isTrue := slices.Contains(trueWords, word)
	if !isTrue && !slices.Contains(falseWords, word) {
		return Typed{}, fmt.Errorf("is not a bool: want one of %s, or %s", strings.Join(trueWords, ", "), strings.Join(falseWords, ", "))
	}
	return Typed{Type: BoolType, Text: strconv.FormatBool(isTrue)}, nil
}

// maxVersion is the maximum length of a version (DeviceAttributeMaxValueLength in
// k8s.io/api/resource/v1).
const maxVersion = 64

// versionParts are one to three numbers, and what follows them in a semantic version. An identifier
// of a pre-release that is a number has no leading zero (semver.org, 9).
var versionParts = sync.OnceValue(func() *regexp.Regexp {
	const (
		number     = `[0-9]+`
		preRelease = `(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)`
		build      = `[0-9a-zA-Z-]+`
	)
	return regexp.MustCompile(`^v?(` + number + `)(?:\.(` + number + `))?(?:\.(` + number + `))?` +
		`((?:-` + preRelease + `(?:\.` + preRelease + `)*)?` +
		`(?:\+` + build + `(?:\.` + build + `)*)?)$`)
})

// parseVersion parses a semantic version. The API server accepts no other version, and hardware
// often reports two numbers or leading zeros: "2.00" is "2.0.0".
func parseVersion(text string) (Typed, error) {
	parts := versionParts().FindStringSubmatch(text)
	if parts == nil {
		return Typed{}, fmt.Errorf(`is not a version: want one to three numbers such as "2.10" or "2.10.3-rc.1"`)
	}
	var numbers []string
	for _, number := range parts[1:4] {
		number = strings.TrimLeft(number, "0")
		if number == "" {
			number = "0"
		}
		numbers = append(numbers, number)
	}
	version := strings.Join(numbers, ".") + parts[4]
	if len(version) > maxVersion {
		return Typed{}, fmt.Errorf("is not a version: want at most %d characters", maxVersion)
	}
	return Typed{Type: VersionType, Text: version}, nil
}
