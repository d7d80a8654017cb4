package config

import (
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
	// check returns the rule that an alternative of a pattern violates.
	check func(a pattern.Alternative) error
}

// parsePattern parses one pattern of a kind. If s is invalid, it returns the rule that s violates. It limits
// the size of all patterns of the configuration.
func (r *reader) parsePattern(k kind, s string) (pattern.Values, error) {
	if r.patterns > maxPatterns {
		return pattern.Values{}, errTooManyPatterns
	}
	p, err := pattern.Parse(k.mode, s)
	r.patterns += p.Size()
	if r.patterns > maxPatterns {
		return p, errTooManyPatterns
	}
	if errors.Is(err, pattern.ErrEmpty) {
		hint := `"!*" selects devices without a value`
		if k.mode == pattern.Path {
			hint = ""
		}
		return p, broken(err.Error()+": want "+k.want, hint)
	}
	if err != nil || k.check == nil {
		return p, err
	}
	// A negated pattern must have the same form: a misspelled one would exclude nothing. The first
	// violation is enough for one message.
	for _, alternative := range p.Positive().Alternatives() {
		err = k.check(alternative)
		if err != nil {
			break
		}
	}
	return p, err
}

// values reads v as a condition of the kind: a string or a list of strings.
func (v value) values(k kind) pattern.Values {
	var all []pattern.Values
	if v.isEmpty() {
		v.report("the list is empty: want at least one pattern")
	}
	for _, e := range v.items() {
		e.place = v.place // the message quotes the pattern
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
	s := v.checked(k.want, func(s string) (err error) {
		p, err = v.r.parsePattern(k, s)
		return err
	})
	return p, s != ""
}

// errTooManyPatterns is the rule for a pattern beyond maxPatterns.
var errTooManyPatterns = fmt.Errorf("exceeds the limit of %d KiB for all patterns of a configuration, with their alternatives spelled out", maxPatterns>>10)

// isPattern reports whether a text has wildcards. A literal "${" is none.
func isPattern(text device.Text) bool {
	return slices.ContainsFunc(text, func(p device.Part) bool {
		literal := strings.ReplaceAll(p.Literal, "${", "")
		return strings.ContainsAny(literal, `*?[{\`)
	})
}

// glob returns the pattern of text, which is what v says, with wildcards in place of its variables. It must not be
// negated. isOfDev is set if it is for paths below /dev.
func (v value) glob(text device.Text, isOfDev bool) (glob pattern.Values) {
	// The text is already reported.
	if len(text) == 0 {
		return glob
	}
	k := mountGlob
	if isOfDev {
		k = nodeGlob
	}
	v.checked(k.want, func(string) (err error) {
		glob, err = v.r.parsePositive(k, text.Expand(anyValue).String())
		return err
	})
	return glob
}

// anyValue returns a pattern of the values of a variable, which are not empty: most of them have no "/".
func anyValue(name string) (string, bool) {
	v, known := variableNamed(name)
	if strings.HasPrefix(v.sample, devDir) {
		return devDir + "**/?*", known
	}
	// A "*" before the next wildcard would be "**".
	return "?*", known
}

// parsePositive parses one pattern of paths that must select something.
func (r *reader) parsePositive(k kind, s string) (pattern.Values, error) {
	p, err := r.parsePattern(k, s)
	if p.Negative() {
		err = errNegated
	}
	return p, err
}

// errNegated is the rule for a pattern that must select something.
var errNegated = errors.New(`begins with "!", but a negated pattern selects nothing`)

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
	return kind{
		mode: pattern.Hex,
		want: want,
		check: func(a pattern.Alternative) error {
			written := a.String()
			parts := strings.Split(written, ":")
			// Parse ignores space around a number, but it would compare the inner space.
			hasSpace := strings.ContainsAny(written, " \t")
			isValid := !hasSpace && !slices.ContainsFunc(parts, isOther)
			if isValid && len(parts) == numbers {
				return nil
			}
			hint := "generic-dp devices --all lists hardware with its IDs"
			if isValid && len(parts) == 1 && key != "" {
				hint = fmt.Sprintf("%s = %s selects all devices of this vendor", key, quote(written+":*"))
			}
			return broken(rule+": want "+want, hint)
		},
	}
}

// pciClass accepts a prefix of a PCI class code. It has three bytes (PCI Local Bus
// Specification, "Class Code"), and sysfs shows all of them.
var pciClass = kind{
	mode: pattern.HexPrefix,
	want: `two, four or six digits such as "03" or "0302"`,
	check: func(a pattern.Alternative) error {
		// A prefix ends with a whole byte. Half a byte would select unrelated classes.
		for _, digits := range []int{2, 4, 6} {
			if a.Fits(digits, hexDigits) {
				return nil
			}
		}
		return broken(`is not a prefix of a PCI class: want two, four or six hexadecimal digits such as "03" or "0302"`)
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
		check: func(a pattern.Alternative) error {
			s, whole := a.Literal()
			if !whole || device.IsPCIAddress(s+suffix) {
				return nil
			}
			// lspci leaves out the domain 0000.
			hint := ""
			withDomain := "0000:" + s
			if device.IsPCIAddress(withDomain + suffix) {
				hint = didYouMean(withDomain)
			}
			return broken("is not "+what+": want "+want, hint)
		},
	}
}

// oneOf accepts one of some words, and patterns that match at least one of them.
func oneOf(words []string) kind {
	want := "one of " + list(words)
	return kind{
		want: want,
		check: func(a pattern.Alternative) error {
			if slices.ContainsFunc(words, a.Match) {
				return nil
			}
			return broken("is not " + want)
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
	check: func(a pattern.Alternative) error {
		written := a.String()
		// The shape has "*" in place of the wildcards, so that only the literal parts are checked.
		return pathBelowDev(written, a.Shape())
	},
}

// mountGlob accepts paths of files and directories to mount.
var mountGlob = kind{
	mode: pattern.Path,
	want: "an absolute path or pattern",
	check: func(a pattern.Alternative) error {
		return absolutePath(a.String(), a.Shape())
	},
}

// existsGlob accepts paths below /dev and /sys, because only these are watched for changes.
var existsGlob = kind{
	mode: pattern.Path,
	want: `a path or pattern such as "/dev/kfd" or "/sys/module/nvidia", or a list of them`,
	check: func(a pattern.Alternative) error {
		shape := a.Shape()
		err := absolutePath(a.String(), shape)
		isWatched := strings.HasPrefix(shape, devDir) || strings.HasPrefix(shape, sysDir)
		if err == nil && !isWatched {
			err = broken(`is not below /dev or /sys: want a path such as "/dev/kfd" or "/sys/module/nvidia"`)
		}
		return err
	},
}

// cdiName accepts qualified names of CDI devices, and patterns of them.
var cdiName = kind{
	want: `a qualified name or a pattern such as "nvidia.com/gpu=*", or a list of them`,
	check: func(a pattern.Alternative) error {
		s, whole := a.Literal()
		if whole && !parser.IsQualifiedName(s) {
			return errNotQualified
		}
		// A pattern is only checked for characters that no qualified name has.
		if !consists(a.Shape(), alnum+"._:-/=*") {
			return errNotQualified
		}
		return nil
	},
}

// errNotQualified is the rule for names of CDI devices (CDI specification, "Kind" and "Name").
var errNotQualified = errors.New(`is not the qualified name of a CDI device: want VENDOR/CLASS=NAME, such as "nvidia.com/gpu=0"`)
