package matchers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// addLists adds the attributes that are lists of values. The API server refuses a device with too
// many values: a configured list without room is a problem, and a list of the hardware is left out.
func (b *builder) addLists(all map[string]device.Typed) {
	for _, a := range b.r.Attributes {
		if a.List == nil {
			continue
		}
		list, err := b.list(a)
		if err != nil {
			b.problem("attributes.%s: %v", a.Name, err)
			continue
		}
		// Devices without a value have no such attribute, like a single value.
		if list == nil {
			continue
		}
		if have := b.countValues(all); have+len(list) > device.MaxAttributeValues {
			b.problem("attributes.%s: the device has %d values with it: a device in a ResourceSlice has at most %d",
				a.Name, have+len(list), device.MaxAttributeValues)
			continue
		}
		all[a.Name] = device.Typed{Type: a.Type, List: list}
	}
	b.addPlaces(all)
}

// addPlaces adds the places of a device that is in several places. A constraint then finds devices
// that have one of them in common. A single NUMA node is published as a number, see dra.Device.
func (b *builder) addPlaces(all map[string]device.Typed) {
	var numa []string
	for _, node := range b.offer.NUMA {
		numa = append(numa, strconv.Itoa(node))
	}
	var roots []string
	for _, h := range b.c.members() {
		root := rootOf(h)
		if root != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	add := func(name string, t device.AttributeType, list []string) {
		if len(list) < 2 {
			return
		}
		// The single value remains for API servers without lists.
		single := all[name]
		all[name] = device.Typed{Type: t, Text: single.Text, List: list}
		if b.countValues(all) > device.MaxAttributeValues {
			all[name] = single
		}
	}
	add(numaNode, device.IntType, numa)
	add(pcieRoot, device.StringType, roots)
}

// countValues counts the values of attributes like the API server, with the attributes that every
// device has: resource, id, and a single NUMA node.
func (b *builder) countValues(all map[string]device.Typed) int {
	n := 2
	if len(b.offer.NUMA) == 1 {
		n++
	}
	for _, v := range all {
		if v.List != nil {
			n += len(v.List)
		} else if v.Text != "" {
			n++
		}
	}
	return n
}

// list returns the values of a list, without repeats. It is nil if the device has no value. The
// parts of a pool or a group have their own values.
func (b *builder) list(a config.Attribute) ([]string, error) {
	parts := b.c.parts
	if len(parts) == 0 {
		parts = []candidate{*b.c}
	}
	var list []string
	for _, text := range a.List {
		for i := range parts {
			found, err := b.each(text, &parts[i])
			var missing noValue
			if errors.As(err, &missing) && !missing.unread {
				continue
			}
			if err != nil {
				return nil, err
			}
			list, err = appendTyped(list, a.Type, found)
			if err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// appendTyped appends values of a type to a list that does not have them. The list is limited while
// it grows, because a pool may have thousands of parts.
func appendTyped(list []string, t device.AttributeType, values []device.Text) ([]string, error) {
	for _, v := range values {
		text := v.String()
		typed, err := device.ParseTyped(t, text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		isRepeated := slices.Contains(list, typed.Text)
		if isRepeated || typed.Text == "" {
			continue
		}
		if len(list) == device.MaxAttributeValues {
			return nil, fmt.Errorf("the list has more than %d values, the maximum of a device in a ResourceSlice", len(list))
		}
		list = append(list, typed.Text)
	}
	return list, nil
}

// each fills in a text once for each value of its variables, of which one may have several values.
func (b *builder) each(t device.Text, of *candidate) ([]device.Text, error) {
	several := ""
	values := []device.Text{nil}
	for _, name := range t.Vars() {
		found, err := b.values(name, of)
		if err != nil {
			return nil, err
		}
		if len(found) < 2 || name == several {
			continue
		}
		// Which values belong together is not known.
		if several != "" {
			return nil, fmt.Errorf("${%s} and ${%s} have several values each: only one variable of a text may", several, name)
		}
		several = name
		values = found
	}
	var all []device.Text
	for _, value := range values {
		filled, err := expand(t, func(name string) (device.Text, error) {
			if name == several {
				return value, nil
			}
			// There is one value, see above.
			found, err := b.values(name, of)
			if err != nil {
				return nil, err
			}
			return found[0], nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, filled)
	}
	return all, nil
}
