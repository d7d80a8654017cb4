package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/device"
)

// Spec is one CDI spec: the content of one file.
type Spec = specs.Spec

// QualifiedName is the name that a container runtime is given for a device,
// "example.com/gpu=0000:3b:00.0". It is an error if that can't be one, such
// as that of a resource whose name begins with a digit.
func QualifiedName(resource, id string) (string, error) {
	name := resource + "=" + id
	if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
		return "", fmt.Errorf("no name for CDI: %w", err)
	}
	return name, nil
}

// Build makes the CDI spec of a resource, whose kind is the resource's name
// and whose devices are those offers that are to be handed over by name and
// can be: the others have no entry, and their containers don't start. It is
// nil if there are none. exists says which optional mounts are there, as for
// Edits. A device that can't be in a spec is left out and reported; the spec
// is good without it.
func Build(resource string, offers []device.Offer, exists func(hostPath string) error) (*specs.Spec, error) {
	spec := &specs.Spec{Kind: resource}
	var errs []error
	for _, o := range offers {
		if !byName(o) || o.Problem != "" {
			continue
		}
		d, err := entry(resource, o, exists)
		if err != nil {
			errs = append(errs, fmt.Errorf("resource %q: device %q: %w", resource, o.ID, err))
			continue
		}
		spec.Devices = append(spec.Devices, d)
	}
	if len(spec.Devices) == 0 {
		return nil, errors.Join(errs...)
	}
	spec, err := finish(spec)
	return spec, errors.Join(append(errs, err)...)
}

// entry is the entry of one device, checked as a runtime will check it.
func entry(resource string, o device.Offer, exists func(hostPath string) error) (specs.Device, error) {
	edits, err := Edits(o, exists)
	if err != nil {
		return specs.Device{}, err
	}
	return checked(resource, o.ID, edits)
}

// finish returns a copy of spec with its devices in the order of their names,
// each once, and the lowest version that has all that it uses, which the most
// runtimes can read.
func finish(spec *specs.Spec) (*specs.Spec, error) {
	out := *spec
	out.Devices = slices.SortedStableFunc(slices.Values(spec.Devices), func(a, b specs.Device) int { return cmp.Compare(a.Name, b.Name) })
	out.Devices = slices.CompactFunc(out.Devices, func(a, b specs.Device) bool { return a.Name == b.Name })
	version, err := specs.MinimumRequiredVersion(&out)
	if err != nil {
		return nil, fmt.Errorf("version of the CDI spec %q: %w", spec.Kind, err)
	}
	out.Version = version
	return &out, nil
}

// encode writes a spec as the content of its file: equal specs have equal
// files.
func encode(spec *specs.Spec) ([]byte, error) {
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the CDI spec %q: %w", spec.Kind, err)
	}
	return append(data, '\n'), nil
}
