package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// Spec is one CDI spec, the content of one file. Edits are the container edits of one of its
// devices. The other types are parts of edits.
type (
	Spec  = specs.Spec
	Edits = specs.ContainerEdits
	Node  = specs.DeviceNode
	Mount = specs.Mount
)

// AllDevices is the name of the entry with all devices of a resource, as in the CDI specs of
// other programs: "example.com/zigbee=all".
const AllDevices = "all"

// qualifiedName is the CDI name of a device for container runtimes, such as
// "example.com/gpu=0000:3b:00.0". The error says why the name is invalid, for example because the
// name of the resource begins with a digit.
func qualifiedName(resource, id string) (string, error) {
	name := resource + "=" + id
	if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
		return "", fmt.Errorf("no name for CDI: %w", err)
	}
	return name, nil
}

// Build returns the CDI spec of the resource: its kind is the name of the resource, and its
// devices are the offers that are injected by name. It is nil if there are none. failed has the
// reason for each device without an entry, by its ID. The spec is valid without these devices.
//
// If the resource is CDIOnly, every offer is injected by name, its environment is in its entry,
// and the entry AllDevices has all offers, unless failed has a reason for AllDevices. CDI has no
// annotations of containers. A device with the ID AllDevices replaces the entry of that name.
func (r *Resource) Build(offers []device.Offer) (spec *Spec, failed map[string]error) {
	failed = map[string]error{}
	var devices []specs.Device
	var good []device.Offer // with an entry
	for _, o := range offers {
		isByName := r.CDIOnly || o.AlsoCDI || inSpec(o)
		if o.Problem != "" || !isByName {
			continue
		}
		edits, err := r.edits(o.ID, []device.Offer{o}, false)
		if err != nil {
			failed[o.ID] = err
			continue
		}
		devices = append(devices, specs.Device{Name: o.ID, ContainerEdits: edits})
		good = append(good, o)
	}
	hasAll := slices.ContainsFunc(good, func(o device.Offer) bool {
		return o.ID == AllDevices
	})
	if r.CDIOnly && len(good) > 0 && !hasAll {
		edits, err := r.editsOfAll(good)
		if err != nil {
			failed[AllDevices] = err
		} else {
			devices = append(devices, specs.Device{Name: AllDevices, ContainerEdits: edits})
		}
	}
	return newSpec(r.Name, devices), failed
}

// editsOfAll are the edits of all devices. It is an error if they do not fit into one container.
func (r *Resource) editsOfAll(offers []device.Offer) (Edits, error) {
	order.Sort(offers, func(a, b device.Offer) int {
		return cmp.Compare(a.ID, b.ID)
	})
	if _, err := r.combine(offers); err != nil {
		return Edits{}, err
	}
	return r.edits(AllDevices, offers, true)
}

// newSpec returns the spec of devices, which it sorts by name, or nil if there are no devices. Its version is the lowest that has all used fields, because old runtimes
// reject specs of later versions.
func newSpec(kind string, devices []specs.Device) *Spec {
	if len(devices) == 0 {
		return nil
	}
	order.Stable(devices, func(a, b specs.Device) int {
		return cmp.Compare(a.Name, b.Name)
	})
	spec := &Spec{
		Kind:    kind,
		Devices: devices,
	}
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // never fails
	return spec
}

// checkEntry returns why a runtime would reject an entry, nil if it would not.
func (r *Resource) checkEntry(name string, edits Edits) error {
	if _, err := qualifiedName(r.Name, name); err != nil {
		return err
	}
	if reflect.DeepEqual(edits, Edits{}) {
		return errors.New("contains nothing to inject")
	}
	checked := cdiapi.ContainerEdits{ContainerEdits: &edits}
	if err := checked.Validate(); err != nil {
		return fmt.Errorf("no edits for CDI: %w", err)
	}
	return nil
}

// edits returns the container edits of an entry. A path that only an Allocate call could complete
// is an error. isWhole is set if a container has all of these devices.
func (r *Resource) edits(name string, offers []device.Offer, isWhole bool) (Edits, error) {
	var e Edits
	for _, o := range offers {
		if err := r.addEdits(&e, o); err != nil {
			return Edits{}, err
		}
	}
	if r.CDIOnly {
		env, err := expand("env", offers, envOf, isWhole)
		if err != nil {
			return Edits{}, err
		}
		e.Env = environ(env)
	}
	isEmpty := reflect.DeepEqual(e, Edits{})
	if offers[0].NetsInContainer && isEmpty {
		// Without edits the whole file would be invalid. Runtimes ignore group 0.
		e.AdditionalGIDs = []uint32{0}
	}
	if err := r.checkEntry(name, e); err != nil {
		return Edits{}, err
	}
	if r.CDIOnly && r.HealthDir != nil {
		mounts := HealthMounts(offers, r.HealthDir)
		e.Mounts = append(e.Mounts, bindMounts(mounts)...)
	}
	return e, nil
}

// addEdits adds the edits of one offer.
func (r *Resource) addEdits(e *Edits, o device.Offer) error {
	if o.AlsoCDI {
		o.Mounts = nil // the Allocate response has them
	}
	if r.CDIOnly && len(o.CDIDevices) > 0 {
		return fmt.Errorf("a CDI spec can't pass along CDI device %q of the host: ask the container runtime for that name", o.CDIDevices[0])
	}
	o, err := r.resolve(o, place{})
	if err != nil {
		return err
	}
	own := EditsOf(o)
	e.DeviceNodes = union(e.DeviceNodes, own.DeviceNodes)
	e.NetDevices = append(e.NetDevices, own.NetDevices...)
	e.Mounts = union(e.Mounts, own.Mounts)
	e.Hooks = union(e.Hooks, own.Hooks)
	return nil
}

// EditsOf returns the edits of one offer, without environment. Variables that depend on the whole
// container stay as they are.
func EditsOf(o device.Offer) Edits {
	e := Edits{
		DeviceNodes: deviceNodes(o),
		Mounts:      bindMounts(o.Mounts),
		Hooks:       hooks(o),
	}
	for _, n := range o.Nets {
		e.NetDevices = append(e.NetDevices, &specs.LinuxNetDevice{
			HostInterfaceName: n.HostName,
			Name:              cmp.Or(n.Name, n.HostName), // EditsOf also describes offers as they are
		})
	}
	return e
}

// hooks are the hooks of an offer. A hook without a timeout runs for as long as it wants.
func hooks(o device.Offer) []*specs.Hook {
	var all []*specs.Hook
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
		all = append(all, hook)
	}
	return all
}

// deviceNodes are the nodes of an offer. They have their numbers, so that the runtime
// does not look them up.
func deviceNodes(o device.Offer) []*specs.DeviceNode {
	var nodes []*specs.DeviceNode
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

// bindMounts returns mounts with the options that runtimes use for the mounts of an Allocate
// response.
func bindMounts(mounts []device.Mount) []*specs.Mount {
	var binds []*specs.Mount
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

// union appends the elements of more that are missing in have. Devices may share elements, such
// as a companion.
func union[T any](have, more []T) []T {
	for _, m := range more {
		isPresent := slices.ContainsFunc(have, func(h T) bool {
			return reflect.DeepEqual(h, m)
		})
		if !isPresent {
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
