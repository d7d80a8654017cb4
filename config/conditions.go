package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// maxAllAlternatives is how many alternatives all patterns of a configuration
// may stand for.
const maxAllAlternatives = 100_000

// parse reads one pattern of the kind. The rule is empty, or what s breaks.
func (k kind) parse(s string) (p pattern.Pattern, rule, hint string) {
	p, err := pattern.Parse(k.mode, s)
	switch {
	case errors.Is(err, pattern.ErrEmpty):
		if k.mode != pattern.Path {
			hint = `for what is absent write "!*"`
		}
		return p, err.Error() + ": want " + k.want, hint
	case err != nil:
		return p, err.Error(), ""
	case k.check == nil:
		return p, "", ""
	}
	for _, a := range p.Alternatives() {
		if rule, hint = k.check(a); rule != "" {
			break
		}
	}
	return p, rule, hint
}

// parsePositive is parse of a pattern that may not begin with "!".
func (k kind) parsePositive(s string) (p pattern.Pattern, rule, hint string) {
	p, rule, hint = k.parse(s)
	if strings.HasPrefix(strings.TrimSpace(s), "!") {
		rule, hint = `begins with "!": want a pattern that selects`, ""
	}
	return p, rule, hint
}

// values is v as a condition of the kind: a string or a list of strings.
func (v value) values(k kind) pattern.Values { return pattern.NewValues(v.patterns(k)...) }

// patterns is v as patterns of the kind: a string or a list of strings.
func (v value) patterns(k kind) []pattern.Pattern {
	items, ok := elements(v.raw)
	if !ok {
		items = []any{v.raw}
	}
	if len(items) == 0 {
		v.report("an empty list: want "+k.want, "")
	}
	var out []pattern.Pattern
	for _, raw := range items {
		n, isInt := raw.(int64)
		s, isString := raw.(string)
		switch {
		case isInt && k.bare:
			s = strconv.FormatInt(n, 10)
		case isInt:
			v.of(raw).mistyped(k.want, k.intHint(n))
			continue
		case !isString:
			v.of(raw).mistyped(k.want, "")
			continue
		}
		if v.w.alternatives > maxAllAlternatives {
			break
		}
		p, rule, hint := k.parse(s)
		if v.w.alternatives += len(p.Alternatives()); v.w.alternatives > maxAllAlternatives {
			rule, hint = fmt.Sprintf("is too much: want at most %d patterns and alternatives in a configuration", maxAllAlternatives), ""
		}
		if rule != "" {
			written := quote(s)
			if isInt {
				written = s
			}
			v.report(written+" "+rule, hint)
			continue
		}
		out = append(out, p)
	}
	return out
}

// intHint says how to write what a bare integer may have been: TOML takes
// 0x10de and 4318 for the same.
func (k kind) intHint(n int64) string {
	if k.mode != pattern.Hex && k.mode != pattern.HexPrefix {
		return fmt.Sprintf("write it in quotes: \"%d\"", n)
	}
	if k.hex == 0 || n < 0 {
		return ""
	}
	decimal, hex := fmt.Sprintf("%0*d", k.hex, n), fmt.Sprintf("%0*x", k.hex, n)
	switch {
	case len(hex) > k.hex:
		return ""
	case len(decimal) > k.hex || decimal == hex:
		return fmt.Sprintf("write it in quotes: %q", hex)
	default:
		return fmt.Sprintf("TOML takes %d and %#x for the same: write %q or %q", n, n, decimal, hex)
	}
}
