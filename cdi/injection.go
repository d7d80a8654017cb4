// Package cdi converts offers to injections, in the terms of the Container Device
// Interface. A device is injected either by the nodes and mounts of an Allocate
// response, or by a qualified name that the runtime looks up in a CDI spec at every
// start of the container. Both resolve an offer with the same function and cannot
// disagree.
//
// A stale spec entry would inject the next device with that number into the wrong
// container: entries of removed devices are removed first, and a file that cannot be
// rewritten without them is deleted.
//
// Foreign specs, those of other programs, may be on a mount that hangs: nobody waits twice
// for them, see ForeignSpecs.
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
	// Node returns why a runtime that opens path, the node's own or that of its
	// link, would not find the node.
	Node(path string, n device.OfferedNode) error
	// Path returns why a path does not exist: the source of a mount, or the
	// directory in /sys/class/net of an interface.
	Path(path string) error
	// CDI returns why a runtime does not resolve the qualified name of a CDI device.
	CDI(name string) error
}

// Resource injects the devices of one resource. Safe for concurrent use.
type Resource struct {
	Name string
	// Link returns the path of a followed node's link; nil injects nodes by their
	// current paths.
	Link func(id, key string) string
	Host Host
	// CDIOnly: there is no kubelet, so that a container gets only the CDI spec. HealthDir
	// is the directory on the host that says whether the devices with these sorted IDs
	// are healthy; an Allocate response has it from its caller.
	CDIOnly   bool
	HealthDir func(ids []string) string
}

// Injection is one listed device. The response for a container that has this device
// alone is built once, for the first such container.
type Injection struct {
	Offer *device.Offer

	once  sync.Once
	alone *contents
	err   error
}

// Blocks reports whether Respond may block: mounts and specs may be on a remote file
// system. Nodes and links are not: they are below /dev and in the run directory.
func (i *Injection) Blocks() bool { return len(i.Offer.Mounts)+len(i.Offer.CDIDevices) > 0 }

// Respond returns the response for one container with these devices, which are sorted
// by ID and unique. Everything that the response names exists, else the error names the
// device: the kubelet uses a response for the life of the pod, and a runtime creates a
// directory for the missing source of a mount.
func (r *Resource) Respond(devices []*Injection) (device.Response, error) {
	var c *contents
	var err error
	if len(devices) == 1 && !slices.ContainsFunc(devices[0].Offer.Mounts, isOptional) {
		d := devices[0]
		d.once.Do(func() {
			d.alone, d.err = r.combine([]device.Offer{*d.Offer})
		})
		c = d.alone
		err = d.err
	} else {
		offers := make([]device.Offer, len(devices))
		for i, d := range devices {
			offers[i] = *d.Offer
		}
		c, err = r.combine(offers)
	}
	if err == nil {
		err = r.check(c.offers)
	}
	if err != nil {
		return device.Response{}, err
	}
	return c.response, nil
}

func isOptional(m device.Mount) bool { return m.Optional }

// contents are what one container gets of some devices.
type contents struct {
	response device.Response
	offers   []device.Offer    // resolved
	taken    map[string]source // by path in the container, or name of an interface; nil once complete
}

// source is the source of something in a container.
type source struct{ id, host string }

// combine combines several devices for one container.
func (r *Resource) combine(offers []device.Offer) (*contents, error) {
	c := &contents{taken: map[string]source{}}
	for i, o := range offers {
		if err := r.add(c, o, position(i, len(offers))); err != nil {
			return nil, fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	c.taken = nil // the rest may be kept for as long as the device is listed
	var err error
	if c.response.Env, err = expand("env", offers, envOf, position); err == nil {
		c.response.Annotations, err = expand("annotations", offers, annotationsOf, position)
	}
	return c, err
}

func envOf(o device.Offer) []device.Entry         { return o.Env }
func annotationsOf(o device.Offer) []device.Entry { return o.Annotations }

func (r *Resource) add(c *contents, o device.Offer, vars variables) error {
	if o.Problem != "" {
		return fmt.Errorf("can't be injected: %s", o.Problem)
	} else if o.Moved {
		return errors.New("can't be injected: its network interface is in a container already")
	}
	byName := inSpec(o)
	if byName {
		vars = nil // the spec was written without them
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
		again, err := c.take(o.ID, n.Path.String(), n.HostPath)
		if err != nil {
			return err
		}
		if !again && !byName {
			c.response.Nodes = append(c.response.Nodes, device.InjectedNode{HostPath: r.nodePath(o, n), ContainerPath: n.Path.String(), Permissions: n.Permissions})
		}
	}
	for _, n := range o.Nets {
		if err := c.addNet(o, n); err != nil {
			return err
		}
	}
	for _, m := range o.Mounts {
		again, err := c.take(o.ID, m.ContainerPath, "mount "+m.HostPath)
		if err != nil {
			return err
		}
		if !again && !byName {
			c.response.Mounts = append(c.response.Mounts, m)
		}
	}
	if o.HealthDir != "" {
		if _, err := c.take(o.ID, o.HealthDir, "container.health_dir"); err != nil {
			return err
		}
	}
	return nil
}

// Names are the CDI names that bring a device into a container: its own, if it is in the
// spec, and those of the host.
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
func (c *contents) addNet(o device.Offer, n device.OfferedNet) error {
	if !o.CDI {
		return fmt.Errorf("interface %q: only a CDI name moves it", n.HostName)
	}
	for _, key := range []string{"interface " + n.Name, "host's interface " + n.HostName} {
		if have, ok := c.taken[key]; ok {
			return fmt.Errorf("would bring %s into the container, and so does device %q: ask for one, or give each a name of its own with a variable such as ${net.name} in net_name",
				key, have.id)
		}
		c.taken[key] = source{id: o.ID}
	}
	return nil
}

// take reserves a path in the container. The same source again, such as the
// companion of a second device, is injected once. Two sources at one path are an
// error: kubelet and runtimes would keep one silently.
func (c *contents) take(id, containerPath, host string) (again bool, err error) {
	have, ok := c.taken[containerPath]
	switch {
	case !ok:
		c.taken[containerPath] = source{id, host}
		return false, nil
	case have.host == host:
		return true, nil
	case have.id == id:
		return false, fmt.Errorf("%q and %q would both be at %q in the container", have.host, host, containerPath)
	}
	return false, fmt.Errorf("would be at %q in the container, and so is device %q: ask for one, or give each a path of its own with ${index}, ${kernel} or a trailing %q",
		containerPath, have.id, "/")
}

// check returns an error for the first thing that resolved offers lack on the host.
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

// inSpec reports whether a device is injected by its CDI name. A device without edits,
// or with optional mounts only, can't be in a spec (an entry without edits makes the
// whole file invalid) and is injected directly. This must not depend on which mounts
// exist, or spec and response could disagree.
func inSpec(o device.Offer) bool {
	return o.CDI && (len(o.Nodes)+len(o.Nets)+len(o.Hooks)+len(o.AdditionalGIDs) > 0 || o.Moved ||
		slices.ContainsFunc(o.Mounts, func(m device.Mount) bool { return !m.Optional }))
}

// variables are the variables that depend on the container; nil knows none.
type variables func(name string) (value string, ok bool)

// position has the variables of the device at index among count devices of one
// container.
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

// resolve completes paths and names in the container and drops optional mounts whose
// source does not exist. It also drops interfaces that have moved into a container:
// they stay in the network namespace of its pod, where a runtime does not find them
// when the container restarts.
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
	if o.Nets = slices.Clone(o.Nets); o.Moved {
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

// complete fills in the last variables of a text.
func complete(t device.Text, vars variables) (string, error) {
	if vars != nil {
		t = t.Expand(vars)
	}
	if open := t.Vars(); len(open) > 0 {
		return "", fmt.Errorf("%q has no value for ${%s} here", t, open[0])
	}
	return t.String(), nil
}

// expand completes the environment or the annotations of a container. A key that
// differs between devices is an entry for each. A key that several devices share
// joins the values that depend on the device, in the order of IDs; other values are
// the same for all. at has the variables of the device at index among count.
func expand(
	what string,
	offers []device.Offer,
	list func(device.Offer) []device.Entry,
	at func(index, count int) variables,
) (map[string]string, error) {
	type joined struct {
		from   int // place of the entry in its list
		entry  device.Entry
		values []string
	}
	all := map[string]*joined{}
	for i, o := range offers {
		vars := at(i, len(offers))
		for j, e := range list(o) {
			key, err := complete(e.Key, vars)
			if err == nil && (key == "" || strings.ContainsAny(key, "=\x00")) {
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
		out[key] = j.entry.Prefix + strings.Join(j.values, cmp.Or(j.entry.Separator, ",")) + j.entry.Suffix
	}
	return out, nil
}
