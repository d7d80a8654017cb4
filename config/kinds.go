package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// kind is a kind of values of patterns.
type kind struct {
	mode pattern.Kind
	// want describes the values, for messages.
	want string
	// integers is set if TOML integers are accepted: decimal numbers. Elsewhere 0x10de
	// would become 4318.
	integers bool
	// digits of a hexadecimal number; 0 for others.
	digits int
	// check returns the rule that an alternative of a pattern violates, or empty.
	check func(a pattern.Alternative) (rule, hint string)
}

// form is the form of a value of the kind, or a list of them.
func (k kind) form() form {
	if k.integers {
		return oneOrMore(form{"type": []string{"string", "integer"}})
	}
	return stringsForm()
}

// parse parses one pattern of the kind. The rule is empty, or the one that s violates.
func (k kind) parse(s string) (p pattern.Values, rule, hint string) {
	p, err := pattern.Parse(k.mode, s)
	switch {
	case errors.Is(err, pattern.ErrEmpty):
		if k.mode != pattern.Path {
			hint = `"!*" selects devices without a value`
		}
		return p, err.Error() + ": want " + k.want, hint
	case err != nil:
		return p, err.Error(), ""
	case k.check == nil:
		return p, "", ""
	}
	for _, a := range p.Positive().Alternatives() {
		if rule, hint = k.check(a); rule != "" {
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
		e.unnamed = e.index > 0 // the message names it
		if n, isInt := e.raw.(int64); isInt && k.integers {
			e.raw = strconv.FormatInt(n, 10)
		}
		if n, isInt := e.raw.(int64); isInt && k.digits > 0 {
			e.mistyped(k.want, baseHint(n, k.digits, 16, "0x"))
			continue
		}
		s, ok := e.string(k.want, func(s string) bool {
			_, rule, _ := k.parse(s)
			return rule == ""
		})
		if !ok {
			continue
		}
		if v.r.alternatives > maxAllAlternatives {
			break
		}
		p, rule, hint := k.parse(s)
		if v.r.alternatives += len(p.Positive().Alternatives()); v.r.alternatives > maxAllAlternatives {
			rule = fmt.Sprintf("exceeds the limit of %d patterns and alternatives in a configuration", maxAllAlternatives)
			hint = ""
		}
		if rule == "" {
			all = append(all, p)
		} else {
			e.report(quote(s)+" "+rule, hint)
		}
	}
	return pattern.Join(all...)
}

// glob reads v as one positive pattern of paths.
func (v value) glob(k kind) (glob pattern.Values) {
	v.checked(`a pattern such as "/dev/snd/*"`, func(s string) (rule, hint string) {
		p, rule, hint := k.parse(s)
		switch {
		case strings.Contains(s, "${"):
			return "has a variable, which a pattern cannot contain", "path may contain variables"
		case p.Negative():
			return `begins with "!", but a negated pattern selects nothing`, ""
		case rule == "":
			glob = p
		}
		return rule, hint
	})
	return glob
}

// anyText accepts any text.
var anyText = kind{want: "a string or a list of strings"}

const hexDigits = "0123456789abcdef"

// hexadecimal accepts numbers of this many hexadecimal digits, separated by ":".
func hexadecimal(numbers, digits int, rule, want string) kind {
	fits := func(s string) bool {
		p, err := pattern.Parse(pattern.Hex, s)
		return err == nil && p.Alternatives()[0].Fits(digits, hexDigits)
	}
	k := kind{mode: pattern.Hex, want: want, check: func(a pattern.Alternative) (string, string) {
		parts := strings.Split(a.String(), ":")
		if len(parts) == numbers && !slices.ContainsFunc(parts, func(s string) bool {
			return !fits(s)
		}) {
			return "", ""
		}
		return rule + ": want " + want, "generic-dp devices --all lists hardware with its IDs"
	}}
	if numbers == 1 {
		k.digits = digits
	}
	return k
}

// baseHint says how to write a bare integer of a base: 0x10de and 4318 are the same to TOML.
func baseHint(n int64, digits, base int, prefix string) string {
	pad := func(s string) string {
		return strings.Repeat("0", max(0, digits-len(s))) + s
	}
	decimal := pad(strconv.FormatInt(n, 10))
	other := pad(strconv.FormatInt(n, base))
	switch {
	case n < 0 || len(other) > digits && len(decimal) > digits:
		return ""
	case len(decimal) > digits || decimal == other:
		return "write it in quotes: " + quote(other)
	case len(other) > digits:
		return "write it in quotes: " + quote(decimal)
	}
	return fmt.Sprintf("TOML reads %s%s and %d as the same number: write %q or %q", prefix, other, n, other, decimal)
}

// attributes are the attributes of hardware, with the kinds of their values.
var attributes = sync.OnceValue(attributeKinds)

type attribute struct {
	device.Attribute
	kind kind
}

func attributeKinds() (all []attribute) {
	for _, a := range device.Attributes() {
		k := anyText
		such := fmt.Sprintf("such as %q", a.Example)
		switch a.Kind {
		case device.PairValue:
			vendor, _, _ := strings.Cut(a.Example, ":")
			k = hexadecimal(
				2,
				4,
				"is not a "+strings.ToUpper(a.Table)+" ID",
				fmt.Sprintf("%s, four digits each, %s or %q", a.Help, such, vendor+":*"),
			)
		case device.IDValue:
			k = hexadecimal(1, 4, "is not a hexadecimal ID", "four digits "+such)
		case device.ByteValue:
			k = hexadecimal(1, 2, "is not a hexadecimal number", "two digits "+such)
		case device.ClassValue:
			k = pciClass
		case device.AddressValue:
			k = address("a PCI address", "", a.Example)
		case device.SlotValue:
			k = address("a PCI slot", ".0", a.Example)
		case device.NumberValue:
			k = kind{mode: pattern.Number, integers: true, want: `a number, or numbers and ranges such as "0,2-7"`}
		case device.WordValue:
			k = oneOf(a.Words)
		}
		all = append(all, attribute{a, k})
	}
	return all
}

// pciClass accepts a prefix of a class code.
var pciClass = kind{
	mode: pattern.HexPrefix, want: `two, four or six digits such as "03" or "0302"`,
	check: func(a pattern.Alternative) (string, string) {
		if a.Fits(2, hexDigits) || a.Fits(4, hexDigits) || a.Fits(6, hexDigits) {
			return "", ""
		}
		return `is not a prefix of a PCI class: want two, four or six hexadecimal digits such as "03" or "0302"`, ""
	},
}

// address accepts addresses of PCI functions without a suffix.
func address(what, suffix, example string) kind {
	fits := func(s string) bool {
		return device.IsPCIAddress(s + suffix)
	}
	want := fmt.Sprintf("one such as %q", example)
	return kind{mode: pattern.Hex, want: want, check: func(a pattern.Alternative) (rule, hint string) {
		s, whole := a.Literal()
		if !whole || fits(s) {
			return "", ""
		}
		if meant := "0000:" + s; fits(meant) { // as lspci writes it
			hint = didYouMean(meant)
		}
		return "is not " + what + ": want " + want, hint
	}}
}

// oneOf accepts one of some words.
func oneOf(words []string) kind {
	want := "one of " + list(words)
	return kind{want: want, check: func(a pattern.Alternative) (string, string) {
		if slices.ContainsFunc(words, a.Match) {
			return "", ""
		}
		return "is not " + want, ""
	}}
}

// devDir is the directory of device nodes. Paths are the host's, wherever its /dev is
// mounted.
const devDir = "/dev/"

// Kinds of paths. Only /dev and /sys are watched for changes (exists).
var (
	nodeGlob = kind{
		mode: pattern.Path, want: `a path below /dev or a pattern such as "/dev/ttyUSB*", or a list of them`,
		check: func(a pattern.Alternative) (rule, hint string) {
			return pathBelowDev(a.String(), a.Shape())
		},
	}
	mountGlob = kind{
		mode: pattern.Path, want: "an absolute path or pattern",
		check: func(a pattern.Alternative) (rule, hint string) {
			return absolutePath(a.String(), a.Shape())
		},
	}
	existsGlob = kind{
		mode: pattern.Path, want: `a path or pattern such as "/dev/kfd" or "/sys/module/nvidia", or a list of them`,
		check: func(a pattern.Alternative) (rule, hint string) {
			rule, hint = absolutePath(a.String(), a.Shape())
			if rule == "" && !strings.HasPrefix(a.Shape(), devDir) && !strings.HasPrefix(a.Shape(), "/sys/") {
				rule = `is not below /dev or /sys: want a path such as "/dev/kfd" or "/sys/module/nvidia"`
			}
			return rule, hint
		},
	}
)

// cdiName selects CDI devices of the host by their qualified names.
var cdiName = kind{
	want: `a qualified name or a pattern such as "nvidia.com/gpu=*", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		if s, whole := a.Literal(); whole && !parser.IsQualifiedName(s) || !consists(a.Shape(), alnum+"._:-/=*") {
			rule = notQualified
		}
		return rule, ""
	},
}

const notQualified = `is not the qualified name of a CDI device: want VENDOR/CLASS=NAME, such as "nvidia.com/gpu=0"`
