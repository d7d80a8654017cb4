package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

const (
	// maxNames is the maximum number of names that one with variables may make: each is
	// a server and a registration.
	maxNames = 64
	// maxName is the maximum length of a name after its domain in the API server.
	maxName = 63
)

// byName groups the devices of a resource by name. Devices without a valid name
// are left out and noted.
func (m *run) byName(r *config.Resource, devices []candidate) map[string][]*candidate {
	found := map[string][]*candidate{}
	if len(r.NameText) == 0 {
		found[r.Name] = nil // also without devices
	}
	left := map[string][]*candidate{} // by the reason
	for i := range devices {
		c := &devices[i]
		name, err := m.nameOf(r, c)
		if other := m.named[name]; err == nil && other != nil && other != r {
			err = fmt.Errorf("the name %q is that of %s", name, other.Place)
		}
		if err != nil {
			left[err.Error()] = append(left[err.Error()], c)
			continue
		}
		found[name] = append(found[name], c)
	}
	var texts []string
	for why, list := range left {
		texts = append(texts, fmt.Sprintf("left out: %s: %s", andMore(list[0].describe(), len(list)), why))
	}
	slices.Sort(texts)
	for _, text := range texts {
		m.fault(r.Place, "", "%s", text)
	}
	if len(found) > maxNames {
		names := slices.Sorted(maps.Keys(found))
		m.fault(r.Place, "names maps several values to one name",
			"name %q makes %d names: want at most %d; %q and those behind it are left out", r.Name, len(names), maxNames, names[maxNames])
		for _, name := range names[maxNames:] {
			delete(found, name)
		}
	}
	return found
}

// nameOf is the name of the resource of a device, with its domain.
func (m *run) nameOf(r *config.Resource, c *candidate) (string, error) {
	if len(r.NameText) == 0 {
		return r.Name, nil
	}
	text, err := m.builder(r, c, "").single(r.NameText, c)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", r.Name, err)
	}
	value := text.String()
	name := legalName(nicerName(r, value))
	if name == "" {
		return "", fmt.Errorf("name %q: nothing is left of %q that a name may have", r.Name, value)
	}
	return domainOf(r) + name, nil
}

// nicerName is the name to use instead of a result, which may be the result itself.
func nicerName(r *config.Resource, result string) string {
	for _, n := range r.Names {
		if n.Result.Match(result) {
			return n.Name
		}
	}
	return result
}

// domainOf is the domain of a resource with a "/".
func domainOf(r *config.Resource) string {
	domain, _, _ := strings.Cut(r.Name, "/")
	return domain + "/"
}

// legalName makes the part of a resource name after the domain: at most 63 letters,
// digits, "-", "_" and ".", with a letter or digit first and last. It is empty if none
// is left.
func legalName(s string) string {
	s = strings.TrimLeft(legalCharacters(s), "-_.")
	return strings.TrimRight(s[:min(len(s), maxName)], "-_.")
}

func legalCharacters(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, s)
}

// Makes reports whether a complete name may result from the variables in the
// name of a resource: a name without devices still belongs to it.
func Makes(r *config.Resource, name string) bool {
	rest, ok := strings.CutPrefix(name, domainOf(r))
	if len(r.NameText) == 0 || !ok || rest == "" || legalName(rest) != rest {
		return false
	}
	for _, nicer := range r.Names {
		if legalName(nicer.Name) == rest {
			return true
		}
	}
	var shape strings.Builder
	for _, p := range r.NameText {
		if p.Var != "" {
			shape.WriteByte('*')
		}
		shape.WriteString(legalCharacters(p.Literal))
	}
	// A long name may have been cut anywhere.
	for s := strings.Trim(shape.String(), "-_."); s != ""; s = s[:len(s)-1] {
		if p, err := pattern.Parse(pattern.Text, s); err == nil && p.Match(rest) {
			return true
		}
		if len(rest) < maxName {
			break
		}
	}
	return false
}
