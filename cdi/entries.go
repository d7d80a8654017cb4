package cdi

import (
	"cmp"
	"fmt"
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
// once. kind is the key of the configuration, for errors.
func expand(
	kind string,
	offers []device.Offer,
	list func(device.Offer) []device.Entry,
	at positions,
) (map[string]string, error) {
	entries := joinedEntries{}
	for i, o := range offers {
		vars := withAmounts(at(i, len(offers)), &offers[i])
		for index, e := range list(o) {
			if err := entries.add(e, index, vars); err != nil {
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

// add adds the entry at index in the list of a device. The error continues the key of the
// configuration.
func (all joinedEntries) add(e device.Entry, index int, vars variables) error {
	key, err := complete(e.Key, vars)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	// Variables of the device may have made the key invalid.
	if key == "" || strings.ContainsAny(key, "=\x00") {
		return fmt.Errorf(": %q can't be a name", key)
	}
	value, err := complete(e.Value, vars)
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
