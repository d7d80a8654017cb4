package cdi

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sort"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Spec is one CDI spec: the content of one file. Edits are the container edits of one
// of its devices. Node and Mount are parts of edits.
type (
	Spec  = specs.Spec
	Edits = specs.ContainerEdits
	Node  = specs.DeviceNode
	Mount = specs.Mount
)

// AllDevices is the name of the entry with all devices of a resource, like in other CDI
// specs: "example.com/zigbee=all".
const AllDevices = "all"

// qualifiedName is the CDI name of a device for container runtimes,
// "example.com/gpu=0000:3b:00.0". It is an error if that is invalid, such as for a
// resource whose name starts with a digit.
func qualifiedName(resource, id string) (string, error) {
	name := resource + "=" + id
	if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
		return "", fmt.Errorf("no name for CDI: %w", err)
	}
	return name, nil
}

// Build makes the CDI spec of the resource, whose kind is the resource's name and
// whose devices are the offers that are injected by name; nil if there are none. failed
// is why a device has no entry, by ID; the spec is valid without it.
//
// If the resource is CDIOnly, every offer is injected by name, its environment is in its
// entry, and the entry AllDevices has all of them, unless failed has the reason. CDI has no
// annotations of containers. A device with the ID AllDevices is that entry.
func (r *Resource) Build(offers []device.Offer) (spec *Spec, failed map[string]error) {
	failed = map[string]error{}
	var devices []specs.Device
	add := func(name string, offers []device.Offer, at func(index, count int) variables) bool {
		edits, err := r.edits(name, offers, at)
		if err != nil {
			failed[name] = err
			return false
		}
		devices = append(devices, specs.Device{Name: name, ContainerEdits: edits})
		return true
	}
	var good []device.Offer
	for _, o := range offers {
		if o.Problem != "" || !r.CDIOnly && !o.AlsoCDI && !inSpec(o) {
			continue
		}
		// The position of the device in a container is not known.
		if add(o.ID, []device.Offer{o}, func(int, int) variables { return nil }) {
			good = append(good, o)
		}
	}
	named := slices.ContainsFunc(good, func(o device.Offer) bool { return o.ID == AllDevices })
	if r.CDIOnly && len(good) > 0 && !named {
		sort.Slice(good, func(i, j int) bool { return good[i].ID < good[j].ID })
		if _, err := r.combine(good); err != nil {
			failed[AllDevices] = err
		} else {
			add(AllDevices, good, position)
		}
	}
	return newSpec(r.Name, devices), failed
}

// newSpec is the spec of devices in the order of their names, without duplicates; nil
// if there are none. Its version is the lowest that has all used fields, which most
// runtimes can read.
func newSpec(kind string, devices []specs.Device) *Spec {
	if len(devices) == 0 {
		return nil
	}
	devices = slices.Clone(devices)
	sort.SliceStable(devices, func(i, j int) bool { return devices[i].Name < devices[j].Name })
	devices = slices.CompactFunc(devices, func(a, b specs.Device) bool { return a.Name == b.Name })
	spec := &Spec{Kind: kind, Devices: devices}
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // never fails
	return spec
}

// checkEntry returns why a runtime would not accept an entry.
func (r *Resource) checkEntry(name string, edits Edits) error {
	if _, err := qualifiedName(r.Name, name); err != nil {
		return err
	}
	if reflect.DeepEqual(edits, Edits{}) {
		return errors.New("brings nothing into a container")
	}
	if err := (&cdiapi.ContainerEdits{ContainerEdits: &edits}).Validate(); err != nil {
		return fmt.Errorf("no edits for CDI: %w", err)
	}
	return nil
}

// edits are the container edits of an entry, for one device or several that fit together.
// A path that only an Allocate call could complete is an error. at has the variables of
// the device at index among count.
func (r *Resource) edits(name string, offers []device.Offer, at func(index, count int) variables) (e Edits, err error) {
	for _, o := range offers {
		if o.AlsoCDI {
			o.Mounts = nil // the response mounts them
		}
		if r.CDIOnly && len(o.CDIDevices) > 0 {
			return Edits{}, fmt.Errorf("a CDI spec can't pass along CDI device %q of the host: ask the container runtime for that name", o.CDIDevices[0])
		}
		if o, err = r.resolve(o, nil); err != nil {
			return Edits{}, err
		}
		e.DeviceNodes = union(e.DeviceNodes, deviceNodes(o))
		for _, n := range o.Nets {
			e.NetDevices = append(e.NetDevices, &specs.LinuxNetDevice{HostInterfaceName: n.HostName, Name: n.Name})
		}
		e.Mounts = union(e.Mounts, bindMounts(o.Mounts))
		for _, h := range o.Hooks {
			hook := &specs.Hook{
				HookName: h.Name,
				Path:     h.Path,
				Args:     h.Args,
				Env:      h.Env,
			}
			if h.Timeout > 0 {
				hook.Timeout = &h.Timeout
			}
			e.Hooks = union(e.Hooks, []*specs.Hook{hook})
		}
		e.AdditionalGIDs = union(e.AdditionalGIDs, o.AdditionalGIDs)
	}
	if r.CDIOnly {
		env, err := expand("env", offers, envOf, at)
		if err != nil {
			return Edits{}, err
		}
		e.Env = environ(env)
	}
	if offers[0].Moved && reflect.DeepEqual(e, Edits{}) {
		// An entry must have edits. Runtimes skip the group 0.
		e.AdditionalGIDs = []uint32{0}
	}
	if err := r.checkEntry(name, e); err != nil {
		return Edits{}, err
	}
	if dir := offers[0].HealthDir; dir != "" && r.CDIOnly && r.HealthDir != nil {
		var ids []string
		for _, o := range offers {
			ids = append(ids, o.ID)
		}
		e.Mounts = append(e.Mounts, bindMounts([]device.Mount{{HostPath: r.HealthDir(ids), ContainerPath: dir, ReadOnly: true}})...)
	}
	return e, nil
}

// deviceNodes are the nodes of a resolved offer. They have their numbers, so that the
// runtime need not find them.
func deviceNodes(o device.Offer) (nodes []*specs.DeviceNode) {
	for _, n := range o.Nodes {
		node := &specs.DeviceNode{
			Path:        n.Path.String(),
			HostPath:    n.HostPath,
			Type:        string(n.Type),
			Major:       int64(n.Major),
			Minor:       int64(n.Minor),
			Permissions: n.Permissions,
		}
		if o.Owner != nil {
			node.UID = o.Owner.UID
			node.GID = o.Owner.GID
			if o.Owner.Mode != nil {
				mode := os.FileMode(*o.Owner.Mode)
				node.FileMode = &mode
			}
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// bindMounts gives mounts the options that the CRI gives to an Allocate response's.
func bindMounts(mounts []device.Mount) (binds []*specs.Mount) {
	for _, m := range mounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		binds = append(binds, &specs.Mount{
			HostPath:      m.HostPath,
			ContainerPath: m.ContainerPath,
			Options:       []string{"rbind", "rprivate", access},
		})
	}
	return binds
}

// union appends elements that are missing, such as companions.
func union[T any](have, more []T) []T {
	for _, m := range more {
		if !slices.ContainsFunc(have, func(h T) bool {
			return reflect.DeepEqual(h, m)
		}) {
			have = append(have, m)
		}
	}
	return have
}

// environ formats variables for CDI, sorted.
func environ(env map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
