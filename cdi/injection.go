// Package cdi converts offers to injections, in the terms of the Container Device Interface. A
// device is injected in one of two ways: by the nodes and mounts of an Allocate response, or by
// a qualified name that the runtime looks up in a CDI spec at every start of the container. Both
// ways resolve an offer with the same function and therefore agree.
//
// A stale spec entry would inject the next device with that number into the wrong container. So
// entries of removed devices are removed first, and a file that cannot be rewritten without them
// is deleted.
//
// Foreign specs are the specs of other programs. They may be on a mount that hangs: ForeignSpecs
// waits for such a mount only once.
package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Host checks that everything to inject exists.
type Host interface {
	// Node returns why a runtime that opens path would not find the node, nil if it would.
	// path is the path of the node or of its link.
	Node(path string, n device.OfferedNode) error
	// Path returns why a path does not exist, nil if it does: the source of a mount, or the
	// directory of an interface in /sys/class/net.
	Path(path string) error
	// CDI returns why a runtime does not resolve the qualified name of a CDI device, nil if
	// it does.
	CDI(name string) error
}

// Resource injects the devices of one resource. It is safe for concurrent use.
type Resource struct {
	Name string
	// Link returns the path of the link to a followed node. If it is nil, nodes are injected
	// by their current paths.
	Link func(id, key string) string
	Host Host
	// CDIOnly is set if there is no kubelet, so that a container gets only what the CDI spec
	// has.
	CDIOnly bool
	// HealthDir returns the directory on the host that says whether a device is healthy. It is
	// for specs: the caller of Respond adds the directories to the response.
	HealthDir func(id string) string
}

// Respond returns the response for one container with these devices, which are sorted by ID and
// unique. It checks that everything exists that the response names: the kubelet uses a response
// for the life of the pod, and a runtime creates a directory for the missing source of a mount.
// The error names the device.
func (r *Resource) Respond(offers []device.Offer) (device.Response, error) {
	found, err := r.combine(offers)
	if err != nil {
		return device.Response{}, err
	}
	for _, o := range found.offers {
		if err := r.check(o); err != nil {
			return device.Response{}, fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	found.response.Places = map[string]string{}
	for place, source := range found.sources {
		if path.IsAbs(place) {
			place = "path " + place
		}
		found.response.Places[place] = source.host
	}
	return found.response, nil
}

// HealthMounts returns the mounts of the health directories of the devices of a container, which are
// sorted by ID and belong to one resource. A single device has its directory at container.health_dir.
// Several devices have theirs below it, by index. hostDir returns the directory of a device on the host.
func HealthMounts(offers []device.Offer, hostDir func(id string) string) []device.Mount {
	var mounts []device.Mount
	for i, o := range offers {
		// All devices of a resource have the same directory in the container.
		containerPath := o.HealthDir
		if containerPath == "" {
			return nil
		}
		if len(offers) > 1 {
			containerPath = path.Join(containerPath, strconv.Itoa(i))
		}
		mounts = append(mounts, device.Mount{
			HostPath:      hostDir(o.ID),
			ContainerPath: containerPath,
			ReadOnly:      true,
		})
	}
	return mounts
}

// injected is what one container gets of some devices.
type injected struct {
	response device.Response
	// offers are the resolved offers of the devices.
	offers []device.Offer
	// sources has the source of each place in the container: of a path, or of the name of an
	// interface.
	sources map[string]source
}

// source is the source of something in a container: a device, and its path on the host.
type source struct{ id, host string }

// combine combines several devices for one container.
func (r *Resource) combine(offers []device.Offer) (*injected, error) {
	c := &injected{
		sources: map[string]source{},
	}
	for i, o := range offers {
		if err := r.add(c, o, place{index: i, count: len(offers)}); err != nil {
			return nil, fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	// Variables and annotations are the same, whether nodes are injected by name or not.
	var err error
	c.response.Env, err = expand("env", offers, envOf, true)
	if err != nil {
		return nil, err
	}
	c.response.Annotations, err = expand("annotations", offers, annotationsOf, true)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// envOf is the environment of an offer, for expand.
func envOf(o device.Offer) []device.Entry {
	return o.Env
}

// annotationsOf are the annotations of an offer, for expand.
func annotationsOf(o device.Offer) []device.Entry {
	return o.Annotations
}

// add adds a device to what a container gets. A device that is injected by name adds only the
// name to the response, but reserves its paths.
func (r *Resource) add(c *injected, o device.Offer, at place) error {
	if o.Problem != "" {
		return fmt.Errorf("can't be injected: %s", o.Problem)
	}
	if o.NetsInContainer {
		return errors.New("can't be injected: its network interface is in a container already")
	}
	byName := inSpec(o)
	if byName {
		at = place{} // the spec does not know it
	}
	names, err := r.Names(&o)
	if err != nil {
		return err
	}
	c.response.CDI = union(c.response.CDI, names)
	o, err = r.resolve(o, at)
	if err != nil {
		return err
	}
	c.offers = append(c.offers, o)
	for _, n := range o.Nodes {
		containerPath := n.Path.String()
		isKnown, err := c.reserve(o.ID, containerPath, n.HostPath)
		if err != nil {
			return err
		}
		if isKnown || byName {
			continue
		}
		c.response.Nodes = append(c.response.Nodes, device.InjectedNode{
			HostPath:      r.nodePath(o, n),
			ContainerPath: containerPath,
			Permissions:   n.Permissions,
		})
	}
	for _, n := range o.Nets {
		if err := c.addNet(o, n); err != nil {
			return err
		}
	}
	for _, m := range o.Mounts {
		isKnown, err := c.reserve(o.ID, m.ContainerPath, "mount "+m.HostPath)
		if err != nil {
			return err
		}
		if !isKnown && !byName {
			c.response.Mounts = append(c.response.Mounts, m)
		}
	}
	if o.HealthDir == "" {
		return nil
	}
	_, err = c.reserve(o.ID, o.HealthDir, "health of "+r.Name)
	return err
}

// Names are the CDI names that inject a device: its own name, if it is in the spec, and the names
// of CDI devices of the host.
func (r *Resource) Names(o *device.Offer) ([]string, error) {
	if !inSpec(*o) && !o.AlsoCDI {
		return o.CDIDevices, nil
	}
	name, err := qualifiedName(r.Name, o.ID)
	return append([]string{name}, o.CDIDevices...), err
}

// nodePath is the path of a node for the runtime.
func (r *Resource) nodePath(o device.Offer, n device.OfferedNode) string {
	if n.Follow && r.Link != nil && !inSpec(o) {
		return r.Link(o.ID, n.Key)
	}
	return n.HostPath
}

// addNet adds an interface, which a CDI name moves into the container.
func (c *injected) addNet(o device.Offer, n device.OfferedNet) error {
	if !o.CDI {
		return fmt.Errorf("interface %q: only a CDI name moves it", n.HostName)
	}
	// The name in the container and the interface of the host must each be unique.
	names := []string{
		"interface " + n.Name,
		"host's interface " + n.HostName,
	}
	for _, key := range names {
		if have, isReserved := c.sources[key]; isReserved {
			return fmt.Errorf("%s would be in the container twice, device %q injects it as well: request one device, or set a name for each with a variable such as ${net.name} in net_name",
				key, have.id)
		}
		c.sources[key] = source{o.ID, n.HostName + " as " + n.Name}
	}
	return nil
}

// reserve reserves a path in the container. It reports whether the path is already reserved for
// the same source, such as a companion that two devices share: it is injected once. Two sources
// at one path are an error, because kubelet and runtimes would silently ignore one of them. Two sources of
// one device are its Problem.
func (c *injected) reserve(id, containerPath, host string) (bool, error) {
	have, isReserved := c.sources[containerPath]
	if !isReserved {
		c.sources[containerPath] = source{id, host}
		return false, nil
	}
	if have.host == host {
		return true, nil
	}
	return false, fmt.Errorf("would be at %q in the container, like device %q: request one device, or set a path for each with ${index}, ${kernel} or a trailing %q",
		containerPath, have.id, "/")
}

// check returns an error for the first missing node, interface, mount or CDI device of a resolved
// offer. The kernel has a directory for each interface, whatever its type.
func (r *Resource) check(o device.Offer) error {
	for _, n := range o.Nodes {
		path := r.nodePath(o, n)
		if err := r.Host.Node(path, n); err != nil {
			return err
		}
	}
	for _, n := range o.Nets {
		dir := "/sys/class/net/" + n.HostName
		if err := r.Host.Path(dir); err != nil {
			return fmt.Errorf("interface %q: %w", n.HostName, err)
		}
	}
	for _, m := range o.Mounts {
		if err := r.Host.Path(m.HostPath); err != nil {
			return fmt.Errorf("mount %q: %w", m.HostPath, err)
		}
	}
	for _, name := range o.CDIDevices {
		if err := r.Host.CDI(name); err != nil {
			return fmt.Errorf("CDI device %q: %w", name, err)
		}
	}
	return nil
}

// inSpec reports whether a device is injected by its CDI name. An entry without edits makes the
// whole file invalid, so a device without edits, or with only optional mounts, is injected
// directly. The answer must not depend on which mounts exist: otherwise spec and response could
// disagree.
func inSpec(o device.Offer) bool {
	if !o.CDI {
		return false
	}
	edits := len(o.Nodes)
	edits += len(o.Nets)
	edits += len(o.Hooks)
	if edits > 0 || o.NetsInContainer {
		return true
	}
	return slices.ContainsFunc(o.Mounts, func(m device.Mount) bool {
		return !m.Optional
	})
}

// resolve completes paths and names in the container, and drops optional mounts whose source does
// not exist. It also drops interfaces that have moved into a container: they stay in the network
// namespace of its pod, where a runtime does not find them when the container restarts.
func (r *Resource) resolve(o device.Offer, at place) (device.Offer, error) {
	o.Nodes = slices.Clone(o.Nodes)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		containerPath, err := at.complete(n.Path)
		if err != nil {
			return o, fmt.Errorf("path of %q in the container: %w", n.HostPath, err)
		}
		n.Path = device.Literal(path.Clean(cmp.Or(containerPath, n.HostPath)))
	}
	o.Nets = slices.Clone(o.Nets)
	if o.NetsInContainer {
		o.Nets = nil
	}
	for i := range o.Nets {
		o.Nets[i].Name = cmp.Or(o.Nets[i].Name, o.Nets[i].HostName)
	}
	o.Mounts = r.presentMounts(o.Mounts)
	return o, nil
}

// presentMounts drops optional mounts whose source does not exist.
func (r *Resource) presentMounts(mounts []device.Mount) []device.Mount {
	var present []device.Mount
	for _, m := range mounts {
		isMissing := m.Optional && r.Host.Path(m.HostPath) != nil
		if isMissing {
			continue
		}
		m.ContainerPath = path.Clean(m.ContainerPath)
		present = append(present, m)
	}
	return present
}
