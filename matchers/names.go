package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// maxNames is the maximum number of names that a name with variables may make: each of them is a
// server and a registration with the kubelet.
const maxNames = 64

// byName groups the devices of a resource by name. Devices without a valid name are left out.
func (m *run) byName(r *config.Resource, devices []candidate) map[string][]*candidate {
	byName := make(map[string][]*candidate)
	if len(r.NameText) == 0 {
		byName[r.Name] = make([]*candidate, 0, len(devices)) // also without devices
	}
	for i := range devices {
		c := &devices[i]
		name, err := m.nameOf(r, c)
		if err != nil {
			m.dropFault(r, c, err.Error())
			continue
		}
		byName[name] = append(byName[name], c)
	}
	m.limitNames(r, byName)
	return byName
}

// limitNames removes names beyond maxNames.
func (m *run) limitNames(r *config.Resource, byName map[string][]*candidate) {
	if len(byName) <= maxNames {
		return
	}
	names := slices.Sorted(maps.Keys(byName))
	why := fmt.Sprintf("name %q makes %d names: at most %d are allowed, and names maps several values to one name", r.Name, len(names), maxNames)
	// The first names in alphabetical order stay, whatever the order of the devices.
	for _, name := range names[maxNames:] {
		for _, c := range byName[name] {
			m.dropFault(r, c, why)
		}
		delete(byName, name)
	}
}

// nameOf returns the name of the resource of a device, with its domain.
func (m *run) nameOf(r *config.Resource, c *candidate) (string, error) {
	if len(r.NameText) == 0 {
		return r.Name, nil
	}
	// The builder has no name yet, so that ${resource} and the ID of a pool have no value.
	text, err := m.builder(r, c, "").single(r.NameText, c)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", r.Name, err)
	}
	value := text.String()
	last := device.LegalName(m.nicerName(r, value))
	if last == "" {
		return "", fmt.Errorf("name %q: %q has no character that a name may have", r.Name, value)
	}
	name := domainOf(r) + last
	// Fixed names of later resources are also there, see inactive.
	other := m.named[name]
	if other != nil && other != r {
		return "", fmt.Errorf("%s has the name %q", other.Place, name)
	}
	return name, nil
}

// nicerName returns the name that the configuration maps a result to, or the result.
func (m *run) nicerName(r *config.Resource, result string) string {
	for _, n := range r.Names {
		if !m.isLate(n.Result) && n.Result.Match(result) {
			return n.Name
		}
	}
	return result
}

// domainOf returns the domain of a resource, with the "/" that follows it.
func domainOf(r *config.Resource) string {
	domain, _, _ := strings.Cut(r.Name, "/")
	return domain + "/"
}

// Makes reports whether the variables in the name of a resource can make a complete name. Then
// the name belongs to the resource even if it has no devices.
//
// Several resources may be able to make the same name. The agent calls it for names in its
// ledger, to find the resource of a name that has no device at present.
func Makes(r *config.Resource, name string) bool {
	last, hasDomain := strings.CutPrefix(name, domainOf(r))
	if len(r.NameText) == 0 || !hasDomain {
		return false
	}
	// No device can make such a name.
	if last == "" || device.LegalName(last) != last {
		return false
	}
	isNicer := slices.ContainsFunc(r.Names, func(n config.NicerName) bool {
		return n.Name == last
	})
	if isNicer {
		return true
	}
	shape := shapeOf(r.NameText)
	if matchesShape(shape, last) {
		return true
	}
	if len(last) < device.MaxName {
		return false
	}
	// A long name may have been cut anywhere after the first variable.
	beginning, _, _ := strings.Cut(shape, "*")
	return strings.HasPrefix(last, beginning)
}

// shapeOf returns a pattern of the names that a text makes.
func shapeOf(text device.Text) string {
	var shape strings.Builder
	for _, p := range text {
		if p.Var != "" {
			shape.WriteByte('*')
		}
		shape.WriteString(device.LegalCharacters(p.Literal))
	}
	// device.LegalName trims the same characters of a name.
	return strings.Trim(shape.String(), "-_.")
}

// matchesShape reports whether a name matches the pattern of shapeOf. A shape that is no valid
// pattern matches nothing.
func matchesShape(shape, name string) bool {
	p, err := pattern.Parse(pattern.Text, shape)
	return err == nil && p.Match(name)
}
