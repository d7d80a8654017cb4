package cdi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// joinedEntry is one variable or annotation of a container, with the values of the devices that
// set it.
type joinedEntry struct {
	device.Entry
	// index is the index of the entry in the list of its device. The devices of a resource
	// have the same lists.
	index  int
	values []string
}

// text is the value in the container.
func (j *joinedEntry) text() string {
	separator := cmp.Or(j.Separator, ",")
	joined := strings.Join(j.values, separator)
	return j.Prefix + joined + j.Suffix
}

// joinedEntries are the environment or the annotations of one container, by their keys.
type joinedEntries map[string]*joinedEntry

// expand completes the environment or the annotations of a container, which list returns for a
// device. Keys that differ between devices are separate entries. If several devices share a key,
// values that depend on the device are joined in the order of the IDs, and other values appear
// once. kind is the key of the configuration, for errors. isWhole is set if the container has exactly
// these devices: otherwise their places in it are not known.
func expand(kind string, offers []device.Offer, list func(device.Offer) []device.Entry, isWhole bool) (map[string]string, error) {
	entries := joinedEntries{}
	for i := range offers {
		o := &offers[i]
		at := place{offer: o}
		if isWhole {
			at.index = i
			at.count = len(offers)
		}
		for index, e := range list(*o) {
			// The place of a device is not known in a spec for any container.
			if !isWhole && dependsOnPlace(e) {
				continue
			}
			if err := entries.add(e, index, at); err != nil {
				return nil, fmt.Errorf("device %q: %s%w", o.ID, kind, err)
			}
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	texts := make(map[string]string, len(entries))
	for key, entry := range entries {
		texts[key] = entry.text()
	}
	return texts, nil
}

// dependsOnPlace reports whether an entry depends on the place of the device in its container.
func dependsOnPlace(e device.Entry) bool {
	return slices.ContainsFunc([]string{device.IndexVar, device.CountVar}, func(name string) bool {
		return e.Key.Has(name) || e.Value.Has(name)
	})
}

// add adds the entry at index in the list of a device. The error continues the key of the
// configuration.
func (all joinedEntries) add(e device.Entry, index int, at place) error {
	key, err := at.complete(e.Key)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	// Variables of the device may have made the key invalid.
	if key == "" || strings.ContainsAny(key, "=\x00") {
		return fmt.Errorf(": %q can't be a name", key)
	}
	value, err := at.complete(e.Value)
	if err != nil {
		return fmt.Errorf(" %q: %w", key, err)
	}
	have := all[key]
	if have == nil {
		all[key] = &joinedEntry{
			Entry:  e,
			index:  index,
			values: []string{value},
		}
		return nil
	}
	if have.index != index {
		return fmt.Errorf(" %q is set twice", key)
	}
	dependsOnDevice := e.PerDevice || e.Value.Has(device.IndexVar)
	if dependsOnDevice {
		have.values = append(have.values, value)
	}
	return nil
}

// place is the place of a device in a container.
type place struct {
	// offer is nil if its capacities do not matter.
	offer *device.Offer
	// index is the index among the count devices of the container. count is 0 if the place is not
	// known: a spec serves any container.
	index int
	count int
}

// variable returns the value of a variable that depends on the container.
func (p place) variable(name string) (value string, ok bool) {
	capacity, isCapacity := strings.CutPrefix(name, device.CapacityPrefix)
	switch {
	case isCapacity && p.offer != nil:
		return amount(p.offer, capacity)
	case p.count == 0:
		return "", false
	case name == device.IndexVar:
		return strconv.Itoa(p.index), true
	case name == device.CountVar:
		return strconv.Itoa(p.count), true
	}
	return "", false
}

// complete fills in the remaining variables of a text.
func (p place) complete(t device.Text) (string, error) {
	t = t.Expand(p.variable)
	if open := t.Vars(); len(open) > 0 {
		return "", fmt.Errorf("%q has no value for ${%s} here", t, open[0])
	}
	return t.String(), nil
}

// amount returns what the container of a device gets of a capacity, as a plain number. A claim that
// was allocated before the device had the capacity gets nothing.
func amount(o *device.Offer, capacity string) (number string, ok bool) {
	whole, isConfigured := o.Capacity[capacity]
	if !isConfigured {
		return "", false
	}
	text := whole.Value
	if o.Amounts != nil {
		text = o.Amounts[capacity]
	}
	if text == "" {
		return "0", true
	}
	q, err := device.ParseQuantity(text)
	if err != nil {
		return "", false
	}
	return q.Number(), true
}
