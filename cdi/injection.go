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
	"strings"
	"sync"

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
	// HealthDir returns the directory on the host that says whether the devices with these
	// sorted IDs are healthy. It is for specs: the caller of Respond adds the directory to
	// the response.
	HealthDir func(ids []string) string
}

// Injection is one listed device. The response for a container that has only this device is
// built once, for the first such container.
type Injection struct {
	Offer *device.Offer

	once sync.Once
	// single is the response for only this device, and err is why there is none.
	single *injected
	err    error
}

// Blocks reports whether Respond may block: mounts and specs may be on a remote file system.
// Nodes and links never are, because they are below /dev and in the run directory.
func (i *Injection) Blocks() bool { return len(i.Offer.Mounts)+len(i.Offer.CDIDevices) > 0 }

// Respond returns the response for one container with these devices, which are sorted by ID and
// unique. It checks that everything exists that the response names: the kubelet uses a response
// for the life of the pod, and a runtime creates a directory for the missing source of a mount.
// The error names the device.
func (r *Resource) Respond(devices []*Injection) (device.Response, error) {
	found, err := r.inject(devices)
	if err == nil {
		err = r.check(found.offers)
	}
	if err != nil {
		return device.Response{}, err
	}
	return found.response, nil
}

// inject returns what a container gets of these devices. The result for a single device is kept,
// unless it depends on which mounts exist.
func (r *Resource) inject(devices []*Injection) (*injected, error) {
	isSingle := len(devices) == 1
	if isSingle && !slices.ContainsFunc(devices[0].Offer.Mounts, isOptional) {
		d := devices[0]
		d.once.Do(func() {
			d.single, d.err = r.combine([]device.Offer{*d.Offer})
		})
		return d.single, d.err
	}
	offers := make([]device.Offer, len(devices))
	for i, d := range devices {
		offers[i] = *d.Offer
	}
	return r.combine(offers)
}

func isOptional(m device.Mount) bool { return m.Optional }

func isRequired(m device.Mount) bool { return !m.Optional }

// injected is what one container gets of some devices.
type injected struct {
	response device.Response
	// offers are the resolved offers of the devices.
	offers []device.Offer
	// sources has the source of each place in the container: of a path, or of the name of an
	// interface. It is nil once the response is complete.
	sources map[string]source
}

// source is the source of something in a container: a device, and its path on the host.
type source struct{ id, host string }

// combine combines several devices for one container.
func (r *Resource) combine(offers []device.Offer) (*injected, error) {
	c := &injected{sources: map[string]source{}}
	for i, o := range offers {
		vars := position(i, len(offers))
		if err := r.add(c, o, vars); err != nil {
			return nil, fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	c.sources = nil // the result may be kept for as long as the device is listed
	var err error
	c.response.Env, err = expand("env", offers, envOf, position)
	if err == nil {
		c.response.Annotations, err = expand("annotations", offers, annotationsOf, position)
	}
	return c, err
}

func envOf(o device.Offer) []device.Entry { return o.Env }

func annotationsOf(o device.Offer) []device.Entry { return o.Annotations }

// add adds a device to what a container gets. A device that is injected by name adds only the
// name to the response, but reserves its paths.
func (r *Resource) add(c *injected, o device.Offer, vars variables) error {
	if o.Problem != "" {
		return fmt.Errorf("can't be injected: %s", o.Problem)
	}
	if o.Moved {
		return errors.New("can't be injected: its network interface is in a container already")
	}
	byName := inSpec(o)
	if byName {
		vars = nil // the spec does not know the position of the device in a container
	}
	names, err := r.Names(&o)
	if err != nil {
		return err
	}
	c.response.CDI = union(c.response.CDI, names)
	o, err = r.resolve(o, vars)
	if err != nil {
		return err
	}
	c.offers = append(c.offers, o)
	for _, n := range o.Nodes {
		isKnown, err := c.reserve(o.ID, n.Path.String(), n.HostPath)
		if err != nil {
			return err
		}
		if !isKnown && !byName {
			c.response.Nodes = append(c.response.Nodes, device.InjectedNode{
				HostPath:      r.nodePath(o, n),
				ContainerPath: n.Path.String(),
				Permissions:   n.Permissions,
			})
		}
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
	_, err = c.reserve(o.ID, o.HealthDir, "container.health_dir")
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
	for _, key := range []string{"interface " + n.Name, "host's interface " + n.HostName} {
		if have, isReserved := c.sources[key]; isReserved {
			return fmt.Errorf("would bring %s into the container, and so does device %q: ask for one, or give each a name of its own with a variable such as ${net.name} in net_name",
				key, have.id)
		}
		c.sources[key] = source{id: o.ID}
	}
	return nil
}

// reserve reserves a path in the container. isKnown is set if the path is already reserved for
// the same source, such as a companion that two devices share: it is injected once. Two sources
// at one path are an error, because kubelet and runtimes would silently ignore one of them.
func (c *injected) reserve(id, containerPath, host string) (isKnown bool, err error) {
	have, isReserved := c.sources[containerPath]
	switch {
	case !isReserved:
		c.sources[containerPath] = source{id, host}
		return false, nil
	case have.host == host:
		return true, nil
	case have.id == id:
		return false, fmt.Errorf("%q and %q would both be at %q in the container", have.host, host, containerPath)
	}
	return false, fmt.Errorf("would be at %q in the container, and so is device %q: ask for one, or give each a path of its own with ${index}, ${kernel} or a trailing %q",
		containerPath, have.id, "/")
}

// check returns an error for the first missing node, interface, mount or CDI device of resolved
// offers.
func (r *Resource) check(offers []device.Offer) error {
	for _, o := range offers {
		for _, n := range o.Nodes {
			if err := r.Host.Node(r.nodePath(o, n), n); err != nil {
				return fmt.Errorf("device %q: %w", o.ID, err)
			}
		}
		for _, n := range o.Nets {
			if err := r.Host.Path("/sys/class/net/" + n.HostName); err != nil {
				return fmt.Errorf("device %q: interface %q: %w", o.ID, n.HostName, err)
			}
		}
		for _, m := range o.Mounts {
			if err := r.Host.Path(m.HostPath); err != nil {
				return fmt.Errorf("device %q: mount %q: %w", o.ID, m.HostPath, err)
			}
		}
		for _, name := range o.CDIDevices {
			if err := r.Host.CDI(name); err != nil {
				return fmt.Errorf("device %q: CDI device %q: %w", o.ID, name, err)
			}
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
	hasEdits := len(o.Nodes)+len(o.Nets)+len(o.Hooks)+len(o.AdditionalGIDs) > 0
	return hasEdits || o.Moved || slices.ContainsFunc(o.Mounts, isRequired)
}

// variables are the variables that depend on the container. nil has none.
type variables func(name string) (value string, ok bool)

// position returns the variables of the device at index among the count devices of one container.
func position(index, count int) variables {
	return func(name string) (string, bool) {
		switch name {
		case device.IndexVar:
			return strconv.Itoa(index), true
		case device.CountVar:
			return strconv.Itoa(count), true
		}
		return "", false
	}
}

// resolve completes paths and names in the container, and drops optional mounts whose source does
// not exist. It also drops interfaces that have moved into a container: they stay in the network
// namespace of its pod, where a runtime does not find them when the container restarts.
func (r *Resource) resolve(o device.Offer, vars variables) (device.Offer, error) {
	o.Nodes = slices.Clone(o.Nodes)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		p, err := complete(n.Path, vars)
		if err != nil {
			return o, fmt.Errorf("path of %q in the container: %w", n.HostPath, err)
		}
		n.Path = device.Literal(path.Clean(cmp.Or(p, n.HostPath)))
	}
	o.Nets = slices.Clone(o.Nets)
	if o.Moved {
		o.Nets = nil
	}
	for i := range o.Nets {
		n := &o.Nets[i]
		n.Name = cmp.Or(n.Name, n.HostName)
		for _, other := range o.Nets[:i] {
			if other.Name == n.Name {
				return o, fmt.Errorf("interfaces %q and %q would both be %q in the container",
					other.HostName, n.HostName, n.Name)
			}
		}
	}
	mounts := o.Mounts
	o.Mounts = nil
	for _, m := range mounts {
		if m.Optional && r.Host.Path(m.HostPath) != nil {
			continue
		}
		m.ContainerPath = path.Clean(m.ContainerPath)
		o.Mounts = append(o.Mounts, m)
	}
	return o, nil
}

// complete fills in the remaining variables of a text.
func complete(t device.Text, vars variables) (string, error) {
	if vars != nil {
		t = t.Expand(vars)
	}
	if open := t.Vars(); len(open) > 0 {
		return "", fmt.Errorf("%q has no value for ${%s} here", t, open[0])
	}
	return t.String(), nil
}

// expand completes the environment or the annotations of a container. Keys that differ between
// devices are separate entries. If several devices share a key, values that depend on the device
// are joined in the order of the IDs, and other values appear once. at returns the variables of
// the device at index among count.
func expand(
	what string,
	offers []device.Offer,
	list func(device.Offer) []device.Entry,
	at func(index, count int) variables,
) (map[string]string, error) {
	type joined struct {
		from   int // index of the entry in the list of its device
		entry  device.Entry
		values []string
	}
	all := map[string]*joined{}
	for i, o := range offers {
		vars := withAmounts(at(i, len(offers)), &offers[i])
		for j, e := range list(o) {
			key, err := complete(e.Key, vars)
			isInvalid := key == "" || strings.ContainsAny(key, "=\x00")
			if err == nil && isInvalid {
				err = fmt.Errorf("%q can't be a name", key)
			}
			if err != nil {
				return nil, fmt.Errorf("device %q: %s: %w", o.ID, what, err)
			}
			value, err := complete(e.Value, vars)
			if err != nil {
				return nil, fmt.Errorf("device %q: %s %q: %w", o.ID, what, key, err)
			}
			have := all[key]
			switch {
			case have == nil:
				all[key] = &joined{from: j, entry: e, values: []string{value}}
			case have.from != j:
				return nil, fmt.Errorf("device %q: %s %q is set twice", o.ID, what, key)
			case e.PerDevice || e.Value.Has(device.IndexVar):
				have.values = append(have.values, value)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(all))
	for key, j := range all {
		separator := cmp.Or(j.entry.Separator, ",")
		out[key] = j.entry.Prefix + strings.Join(j.values, separator) + j.entry.Suffix
	}
	return out, nil
}
