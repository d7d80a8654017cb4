package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// kind is the kind of the values that a pattern is compared with.
type kind struct {
	mode pattern.Kind
	// want describes the valid patterns, for messages.
	want string
	// integers is set if TOML integers are accepted, because the values are decimal
	// numbers. Elsewhere the integer 0x10de would silently become "4318".
	integers bool
	// digits of a hexadecimal number; 0 for other kinds.
	digits int
	// check returns the rule that an alternative of a pattern violates, or an empty rule.
	check func(a pattern.Alternative) (rule, hint string)
}

// form returns the form of a pattern of the kind, or a list of patterns.
func (k kind) form() formOf {
	if k.integers {
		return integersForm
	}
	return stringsForm
}

// parsePattern parses one pattern of a kind. If s is invalid, it returns the rule that s violates, whose
// text continues a sentence that begins with s; otherwise the rule is empty. It limits the size of all
// patterns of the configuration.
func (r *reader) parsePattern(k kind, s string) (p pattern.Values, rule, hint string) {
	if r.patterns > maxPatterns {
		return p, tooManyPatterns, ""
	}
	p, err := pattern.Parse(k.mode, s)
	r.patterns += p.Size()
	if r.patterns > maxPatterns {
		return p, tooManyPatterns, ""
	}
	if errors.Is(err, pattern.ErrEmpty) {
		if k.mode != pattern.Path {
			hint = `"!*" selects devices without a value`
		}
		return p, err.Error() + ": want " + k.want, hint
	}
	if err != nil {
		return p, err.Error(), ""
	}
	if k.check == nil {
		return p, "", ""
	}
	// A negated pattern must have the same form: a misspelled one would exclude nothing. The first
	// violation is enough for one message.
	for _, alternative := range p.Positive().Alternatives() {
		rule, hint = k.check(alternative)
		if rule != "" {
			break
		}
	}
	return p, rule, hint
}

// values reads v as a condition of the kind: a string or a list of strings.
func (v value) values(k kind) pattern.Values {
	var all []pattern.Values
	if v.isEmpty() {
		v.report("the list is empty: want at least one pattern", "")
	}
	for _, e := range v.items() {
		e.unnamed = e.index > 0 // the message quotes the pattern
		// The limit is already reported, once for the whole configuration.
		if v.r.patterns > maxPatterns {
			break
		}
		p, ok := e.pattern(k)
		if ok {
			all = append(all, p)
		}
	}
	return pattern.Join(all...)
}

// pattern reads v as one pattern of the kind.
// ok is false if v is invalid, which is then reported.
func (v value) pattern(k kind) (p pattern.Values, ok bool) {
	if k.integers {
		v = v.decimal()
	}
	if n, isInt := v.raw.(int64); isInt && k.digits > 0 {
		v.mistyped(k.want, baseHint(n, k.digits, hexadecimalBase))
		return p, false
	}
	s := v.checked(k.want, func(s string) (rule, hint string) {
		p, rule, hint = v.r.parsePattern(k, s)
		return rule, hint
	})
	return p, s != ""
}

// tooManyPatterns is the rule for a pattern beyond maxPatterns.
var tooManyPatterns = fmt.Sprintf("exceeds the limit of %d KiB for all patterns of a configuration, with their alternatives spelled out", maxPatterns>>10)

// glob reads v as one pattern of paths that is not negated.
// It returns the empty condition if v is invalid.
func (v value) glob(k kind) pattern.Values {
	var glob pattern.Values
	v.checked(`a pattern such as "/dev/snd/*"`, func(s string) (rule, hint string) {
		// Braces have a meaning in patterns, so that a variable would be parsed as something else.
		if strings.Contains(s, "${") {
			return "has a variable, which a pattern cannot contain", "path may contain variables"
		}
		p, rule, hint := v.r.parsePattern(k, s)
		if p.Negative() {
			return negated, ""
		}
		if rule == "" {
			glob = p
		}
		return rule, hint
	})
	return glob
}

// negated is the rule for a pattern that must select something.
const negated = `begins with "!", but a negated pattern selects nothing`

// anyText accepts any text: names of drivers, serial numbers and values of attributes.
var anyText = kind{want: "a string or a list of strings"}

const hexDigits = "0123456789abcdef"

// hexadecimal accepts a number of hexadecimal digits, or several separated by ":". key is the name of
// a key for IDs, where many people write only the first number. It may be empty.
func hexadecimal(numbers, digits int, rule, want, key string) kind {
	// A part may have wildcards: it is valid if it can match a number of this length.
	isOther := func(s string) bool {
		p, err := pattern.Parse(pattern.Hex, s)
		return err != nil || !p.Alternatives()[0].Fits(digits, hexDigits)
	}
	k := kind{
		mode: pattern.Hex,
		want: want,
		check: func(a pattern.Alternative) (broken, hint string) {
			written := a.String()
			// Parse ignores space around a number, but it would compare the inner space.
			if strings.ContainsAny(written, " \t") {
				return "contains a space: want " + want, idHint(written, numbers, isOther)
			}
			parts := strings.Split(written, ":")
			isValid := !slices.ContainsFunc(parts, isOther)
			if isValid && len(parts) == numbers {
				return "", ""
			}
			// This is the default hint. A vendor in place of an ID has a better one.
			hint = cmp.Or(idHint(written, numbers, isOther), "generic-dp devices --all lists hardware with its IDs")
			if isValid && len(parts) == 1 && key != "" {
				hint = fmt.Sprintf("%s = %s selects all devices of this vendor", key, quote(written+":*"))
			}
			return rule + ": want " + want, hint
		},
	}
	// Only a single number can be a TOML integer, which baseHint explains.
	if numbers == 1 {
		k.digits = digits
	}
	return k
}

// lookalikes are characters that people write in place of a hexadecimal digit: other letters, and Cyrillic
// ones, which look the same.
var lookalikes = strings.NewReplacer("o", "0", "O", "0", "l", "1", "I", "1", "а", "a", "А", "a", "в", "b", "В", "b", "с", "c", "С", "c", "е", "e", "Е", "e", "О", "0", "о", "0")

// idHint suggests the ID that a misspelled one probably means: with other separators, spaces or
// characters. isOther reports whether a part of it is invalid. The hint is empty if there is no valid ID.
func idHint(written string, numbers int, isOther func(part string) bool) string {
	parts := strings.FieldsFunc(lookalikes.Replace(written), func(r rune) bool {
		return strings.ContainsRune(" \t:-_./", r)
	})
	// The spaces are within the only number.
	if numbers == 1 && len(parts) > 1 {
		parts = []string{strings.Join(parts, "")}
	}
	meant := strings.Join(parts, ":")
	isInvalid := len(parts) != numbers || slices.ContainsFunc(parts, isOther)
	if isInvalid || meant == written {
		return ""
	}
	return didYouMean(meant)
}

// base is a base in which TOML integers can be written, besides decimal.
type base struct {
	// format of an integer with a number of digits: IDs and modes have leading zeros.
	format string
	prefix string
}

var (
	hexadecimalBase = base{"%0*x", "0x"}
	octalBase       = base{"%0*o", "0o"}
)

// baseHint returns how to write a bare integer as a string of this many digits. TOML reads
// 0x10de and 4318 as the same number, so that both may be meant.
func baseHint(n int64, digits int, b base) string {
	// No ID and no mode has a sign.
	if n < 0 {
		return ""
	}
	decimal := fmt.Sprintf("%0*d", digits, n)
	other := fmt.Sprintf(b.format, digits, n)
	decimalFits := len(decimal) <= digits
	otherFits := len(other) <= digits
	switch {
	case !decimalFits && !otherFits:
		return ""
	// Both notations are the same text, or only one of them is short enough.
	case !decimalFits || decimal == other:
		return "write it in quotes: " + quote(other)
	case !otherFits:
		return "write it in quotes: " + quote(decimal)
	}
	return fmt.Sprintf("TOML reads %s%s and %d as the same number: write %q or %q", b.prefix, other, n, other, decimal)
}

// pciClass accepts a prefix of a PCI class code. It has three bytes (PCI Local Bus
// Specification, "Class Code"), and sysfs shows all of them.
var pciClass = kind{
	mode: pattern.HexPrefix,
	want: `two, four or six digits such as "03" or "0302"`,
	check: func(a pattern.Alternative) (string, string) {
		// A prefix ends with a whole byte. Half a byte would select unrelated classes.
		for _, digits := range []int{2, 4, 6} {
			if a.Fits(digits, hexDigits) {
				return "", ""
			}
		}
		return `is not a prefix of a PCI class: want two, four or six hexadecimal digits such as "03" or "0302"`, ""
	},
}

// address accepts addresses of PCI functions without a suffix. suffix completes the text to an
// address before it is checked. A pattern with wildcards is not checked, since it may match an
// address.
func address(what, suffix, example string) kind {
	want := fmt.Sprintf("an address such as %q", example)
	return kind{
		mode: pattern.Hex,
		want: want,
		check: func(a pattern.Alternative) (rule, hint string) {
			s, whole := a.Literal()
			if !whole || device.IsPCIAddress(s+suffix) {
				return "", ""
			}
			// lspci leaves out the domain 0000.
			withDomain := "0000:" + s
			if device.IsPCIAddress(withDomain + suffix) {
				hint = didYouMean(withDomain)
			}
			return "is not " + what + ": want " + want, hint
		},
	}
}

// oneOf accepts one of some words, and patterns that match at least one of them.
func oneOf(words []string) kind {
	want := "one of " + list(words)
	return kind{
		want: want,
		check: func(a pattern.Alternative) (string, string) {
			if slices.ContainsFunc(words, a.Match) {
				return "", ""
			}
			return "is not " + want, ""
		},
	}
}

const (
	// devDir is the directory of device nodes. Paths in the configuration are the host's,
	// wherever its /dev is mounted in the container of the program.
	devDir = "/dev/"
	sysDir = "/sys/"
)

// nodeGlob accepts paths of device nodes.
var nodeGlob = kind{
	mode: pattern.Path,
	want: `a path below /dev or a pattern such as "/dev/ttyUSB*", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		written := a.String()
		if pattern.IsRegexp(written) {
			return notRegexp, regexpHint(written)
		}
		// The shape has "*" in place of the wildcards, so that only the literal parts are checked.
		return pathBelowDev(written, a.Shape())
	},
}

// notRegexp is the rule for a path that is written as a regular expression. As a glob it would
// select nothing, without a message.
const notRegexp = `is a regular expression: want a path or a glob such as "/dev/ttyUSB*"`

// regexpHint suggests the glob that a regular expression means.
func regexpHint(s string) string {
	glob := pattern.FromRegexp(s)
	if glob == "" {
		return ""
	}
	return "the equivalent glob is " + quote(glob)
}

// mountGlob accepts paths of files and directories to mount.
var mountGlob = kind{
	mode: pattern.Path,
	want: "an absolute path or pattern",
	check: func(a pattern.Alternative) (rule, hint string) {
		return absolutePath(a.String(), a.Shape())
	},
}

// existsGlob accepts paths below /dev and /sys, because only these are watched for changes.
var existsGlob = kind{
	mode: pattern.Path,
	want: `a path or pattern such as "/dev/kfd" or "/sys/module/nvidia", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		shape := a.Shape()
		rule, hint = absolutePath(a.String(), shape)
		isWatched := strings.HasPrefix(shape, devDir) || strings.HasPrefix(shape, sysDir)
		if rule == "" && !isWatched {
			rule = `is not below /dev or /sys: want a path such as "/dev/kfd" or "/sys/module/nvidia"`
		}
		return rule, hint
	},
}

// cdiName accepts qualified names of CDI devices, and patterns of them.
var cdiName = kind{
	want: `a qualified name or a pattern such as "nvidia.com/gpu=*", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		s, whole := a.Literal()
		if whole && !parser.IsQualifiedName(s) {
			return notQualified, ""
		}
		// A pattern is only checked for characters that no qualified name has.
		if !consists(a.Shape(), alnum+"._:-/=*") {
			return notQualified, ""
		}
		return "", ""
	},
}

// notQualified is the rule for names of CDI devices (CDI specification, "Kind" and "Name").
const notQualified = `is not the qualified name of a CDI device: want VENDOR/CLASS=NAME, such as "nvidia.com/gpu=0"`
