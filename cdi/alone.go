package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/device"
)

// AllDevices is the name of the entry that is all devices of a resource at once,
// as other makers of CDI specs call it: "example.com/zigbee=all".
const AllDevices = "all"

// BuildAlone is Build for where the spec is all that a container gets, since
// there is nobody who answers Allocate calls: every offer is handed over by name,
// its environment is in its entry, and the entry AllDevices is all of them in one
// container. CDI has no annotations of containers.
//
// left is why a device has no entry, by ID; that of AllDevices is why its devices
// can't be in one container. The spec is nil if there is no entry. A device whose
// own ID is AllDevices is that entry.
func BuildAlone(resource string, offers []device.Offer, exists func(hostPath string) error) (spec *specs.Spec, left map[string]error) {
	left = map[string]error{}
	spec = &specs.Spec{Kind: resource}
	var good []device.Offer
	for _, o := range offers {
		if o.Problem != "" {
			continue // that is why
		}
		d, err := entryAlone(resource, o, exists)
		if err != nil {
			left[o.ID] = err
			continue
		}
		spec.Devices, good = append(spec.Devices, d), append(good, o)
	}
	if len(good) == 0 {
		return nil, left
	}
	if !slices.ContainsFunc(good, func(o device.Offer) bool { return o.ID == AllDevices }) {
		if all, err := united(resource, good, spec.Devices); err != nil {
			left[AllDevices] = err
		} else {
			spec.Devices = append(spec.Devices, all)
		}
	}
	done, err := finish(spec)
	if err != nil {
		for _, o := range good {
			left[o.ID] = err
		}
		return nil, left
	}
	return done, left
}

// entryAlone is the entry of one device with all that it brings.
func entryAlone(resource string, o device.Offer, exists func(hostPath string) error) (specs.Device, error) {
	if len(o.CDIDevices) > 0 {
		return specs.Device{}, fmt.Errorf("a CDI spec can't pass along CDI device %q of the host: ask the container runtime for that name", o.CDIDevices[0])
	}
	edits, err := Edits(o, exists)
	if err != nil {
		return specs.Device{}, err
	}
	// Where the device is among those of a container is not known.
	env, err := environment([]device.Offer{o}, func(int, int) map[string]string { return nil })
	if err != nil {
		return specs.Device{}, err
	}
	return checked(resource, o.ID, withEnv(edits, env))
}

// united is the entry of all devices, of which each has its own in entries.
func united(resource string, offers []device.Offer, entries []specs.Device) (specs.Device, error) {
	// What can't be in one container is the same for whoever asks.
	answer, err := Answer(resource, offers, Options{})
	if err != nil {
		return specs.Device{}, err
	}
	var all specs.ContainerEdits
	for _, d := range slices.SortedFunc(slices.Values(entries), func(a, b specs.Device) int { return cmp.Compare(a.Name, b.Name) }) {
		e := d.ContainerEdits
		all.DeviceNodes = add(all.DeviceNodes, e.DeviceNodes)
		all.NetDevices = add(all.NetDevices, e.NetDevices)
		all.Mounts = add(all.Mounts, e.Mounts)
		all.Hooks = add(all.Hooks, e.Hooks)
		all.AdditionalGIDs = add(all.AdditionalGIDs, e.AdditionalGIDs)
	}
	return checked(resource, AllDevices, withEnv(all, answer.Env))
}

// add appends what is not there yet: companions and what the configuration says
// of every device are given once.
func add[T any](have, more []T) []T {
	for _, m := range more {
		if !slices.ContainsFunc(have, func(h T) bool { return reflect.DeepEqual(h, m) }) {
			have = append(have, m)
		}
	}
	return have
}

// withEnv returns edits with variables, sorted by their names.
func withEnv(edits specs.ContainerEdits, env map[string]string) specs.ContainerEdits {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		edits.Env = append(edits.Env, name+"="+env[name])
	}
	return edits
}

// checked is the entry of a device, checked as a runtime will check it.
func checked(resource, name string, edits specs.ContainerEdits) (specs.Device, error) {
	if _, err := QualifiedName(resource, name); err != nil {
		return specs.Device{}, err
	}
	if reflect.DeepEqual(edits, specs.ContainerEdits{}) {
		return specs.Device{}, errors.New("brings nothing into a container")
	}
	if err := (&cdiapi.ContainerEdits{ContainerEdits: &edits}).Validate(); err != nil {
		return specs.Device{}, fmt.Errorf("no edits for CDI: %w", err)
	}
	return specs.Device{Name: name, ContainerEdits: edits}, nil
}
