package matchers

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
)

const (
	// maxNames is how many names the variables of one may make: each is a
	// server and a registration of its own.
	maxNames = 64
	// maxName is how long a name may be behind its domain, as the API server
	// wants it.
	maxName = 63
)

// named is devices of a resource that have one name.
type named struct {
	name    string
	devices []*selected
}

// names sorts the devices of a resource by their names. taken says which
// resource has a name already.
func (b *builder) names(devices []selected, taken map[string]*config.Resource) (found []named, notes []Note) {
	if len(b.r.NameText) == 0 {
		one := named{name: b.r.Name}
		for i := range devices {
			one.devices = append(one.devices, &devices[i])
		}
		return []named{one}, nil
	}
	left := map[string][]*selected{} // by the reason
	leave := func(s *selected, format string, args ...any) {
		why := fmt.Sprintf(format, args...)
		left[why] = append(left[why], s)
	}
	at := map[string]int{}
	for i := range devices {
		s := &devices[i]
		name, err := b.nameOf(s)
		if err != nil {
			leave(s, "name %q: %v", b.r.Name, err)
			continue
		}
		if other := taken[name]; other != nil {
			leave(s, "the name %q is that of %s", name, other.Place)
			continue
		}
		n, ok := at[name]
		if !ok {
			n = len(found)
			at[name] = n
			found = append(found, named{name: name})
		}
		found[n].devices = append(found[n].devices, s)
	}
	slices.SortFunc(found, func(a, b named) int { return strings.Compare(a.name, b.name) })
	for why, list := range left {
		notes = append(notes, Note{Place: b.r.Place, Text: fmt.Sprintf("left out: %s: %s", andMore(list[0].describe(), len(list)), why), Error: true})
	}
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Compare(a.Text, b.Text) })
	if more := len(found) - maxNames; more > 0 {
		notes = append(notes, Note{
			Place: b.r.Place,
			Text:  fmt.Sprintf("name %q makes %d names: want at most %d; %q and those behind it are left out", b.r.Name, len(found), maxNames, found[maxNames].name),
			Hint:  "names maps several values to one name",
			Error: true,
		})
		found = found[:maxNames]
	}
	return found, notes
}

// nameOf is the name of the resource that a device is of, with its domain.
func (b *builder) nameOf(s *selected) (string, error) {
	c := &scope{b: b, s: s, id: b.identify(s, ""), numa: b.numa(s.members())}
	text, err := c.one(b.r.NameText, s.subject())
	if err != nil {
		return "", err
	}
	value := text.String()
	name := legalName(cmp.Or(b.r.Names[value], value))
	if name == "" {
		return "", fmt.Errorf("nothing is left of %q that a name may have", value)
	}
	return domainOf(b.r) + name, nil
}

// domainOf is what the names of a resource begin with, with its "/".
func domainOf(r *config.Resource) string {
	domain, _, _ := strings.Cut(r.Name, "/")
	return domain + "/"
}

// legalName makes what is behind the domain of a resource's name of a text: at
// most 63 letters, digits, "-", "_" and ".", of which letters and digits are
// first and last. It is empty where there is neither.
func legalName(s string) string {
	s = strings.TrimLeft(legalCharacters(s), "-_.")
	return strings.TrimRight(s[:min(len(s), maxName)], "-_.")
}

func legalCharacters(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, s)
}

// Makes reports whether a complete name may be one that the variables in the
// name of a resource make, on this host or another: a name that no device has
// now is still that resource's.
func Makes(r *config.Resource, name string) bool {
	rest, ok := strings.CutPrefix(name, domainOf(r))
	if len(r.NameText) == 0 || !ok || rest == "" || legalName(rest) != rest {
		return false
	}
	for _, nicer := range r.Names {
		if legalName(nicer) == rest {
			return true
		}
	}
	// The pattern is made from its end, where a long name may have been cut.
	pattern := ""
	put := func(e string) {
		if len(rest) == maxName && pattern != "" {
			pattern = "(?:" + pattern + ")?"
		}
		pattern = e + pattern
	}
	for i, p := range slices.Backward(r.NameText) {
		if p.Var != "" {
			put(".*")
			continue
		}
		literal := legalCharacters(p.Literal)
		if i == 0 {
			literal = strings.TrimLeft(literal, "-_.")
		}
		if i == len(r.NameText)-1 {
			literal = strings.TrimRight(literal, "-_.")
		}
		for _, c := range slices.Backward([]byte(literal[:min(len(literal), maxName)])) {
			put(regexp.QuoteMeta(string(rune(c))))
		}
	}
	e, err := regexp.Compile("^" + pattern + "$")
	return err == nil && e.MatchString(rest)
}
