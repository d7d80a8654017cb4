package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// Options say what Answer needs to know of the host.
type Options struct {
	// LinkPath is where the link of a followed node is. Where it is nil,
	// followed nodes are handed over by their paths of the moment.
	LinkPath func(id, key string) string
	// Exists reports why a path of the host can't be handed over: that of a
	// node, of its link, of a mount, or the directory in /sys/class/net of an
	// interface that moves. Where it is nil, all is there.
	Exists func(hostPath string) error
	// CDIExists reports whether one of the host's own CDI devices is there, by
	// its qualified name. Where it is nil, all are.
	CDIExists func(name string) bool
}

// Answer says what one container gets that was allocated these devices of a
// resource. Order and repeats of offers don't matter: the kubelet names
// devices in random order, and several slots of one device count once. What
// an answer names existed when it was made; anything else is an error that
// names the device, since the kubelet uses the answer for as long as the pod
// lives, and a runtime that misses the source of a mount makes a directory
// there.
func Answer(resource string, offers []device.Offer, opts Options) (device.Answer, error) {
	offers = slices.SortedStableFunc(slices.Values(offers), func(a, b device.Offer) int { return cmp.Compare(a.ID, b.ID) })
	offers = slices.CompactFunc(offers, func(a, b device.Offer) bool { return a.ID == b.ID })

	b := builder{resource: resource, opts: opts, taken: map[string]owner{}, nets: map[string]owner{}}
	for i, o := range offers {
		if err := b.add(o, i, len(offers)); err != nil {
			return device.Answer{}, fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	var err error
	if b.answer.Env, err = environment(offers, position); err != nil {
		return device.Answer{}, err
	}
	if b.answer.Annotations, err = expand("annotations", offers, func(o device.Offer) []device.Entry { return o.Annotations }, position); err != nil {
		return device.Answer{}, err
	}
	return b.answer, nil
}

// builder gathers an answer.
type builder struct {
	resource string
	opts     Options
	answer   device.Answer
	taken    map[string]owner // by container path
	nets     map[string]owner // by the interface's name in the container
}

// owner is what a path or a name in the container is taken by.
type owner struct{ id, source string }

// add hands over the device at index of count.
func (b *builder) add(o device.Offer, index, count int) error {
	if o.Problem != "" {
		return fmt.Errorf("can't be handed over: %s", o.Problem)
	}
	if o.Moved {
		return errors.New("can't be handed over: its network interface is in a container already")
	}
	vars := position(index, count)
	if byName(o) {
		vars = nil // the spec was written without
		name, err := QualifiedName(b.resource, o.ID)
		if err != nil {
			return err
		}
		b.answer.CDI = append(b.answer.CDI, name)
	}
	g, err := resolve(o, vars, b.opts.Exists)
	if err != nil {
		return err
	}
	for _, n := range g.nodes {
		if err := b.node(o, n); err != nil {
			return err
		}
	}
	for _, n := range g.nets {
		if err := b.net(o, n); err != nil {
			return err
		}
	}
	for _, m := range g.mounts {
		if err := b.mount(o, m); err != nil {
			return err
		}
	}
	for _, name := range o.CDIDevices {
		if b.opts.CDIExists != nil && !b.opts.CDIExists(name) {
			return fmt.Errorf("CDI device %q is in no spec of the host", name)
		}
		if !slices.Contains(b.answer.CDI, name) {
			b.answer.CDI = append(b.answer.CDI, name)
		}
	}
	return nil
}

// net checks an interface that moves into the container by the device's CDI
// name.
func (b *builder) net(o device.Offer, n device.OfferedNet) error {
	if !o.CDI {
		return fmt.Errorf("interface %q: only a CDI name moves it", n.HostName)
	}
	if have, ok := b.nets[n.Name]; ok {
		return fmt.Errorf("would bring interface %q into the container, and so does device %q: ask for one, or give each a name of its own with a variable such as ${net.name} in net_name", n.Name, have.id)
	}
	for _, have := range b.nets {
		if have.source == n.HostName {
			return fmt.Errorf("would bring interface %q into the container, and so does device %q", n.HostName, have.id)
		}
	}
	b.nets[n.Name] = owner{o.ID, n.HostName}
	if err := b.exists("/sys/class/net/" + n.HostName); err != nil {
		return fmt.Errorf("interface %q: %w", n.HostName, err)
	}
	return nil
}

func (b *builder) node(o device.Offer, n givenNode) error {
	if again, err := b.take(o, n.path, n.HostPath); again || err != nil {
		return err
	}
	if err := b.exists(n.HostPath); err != nil {
		return fmt.Errorf("node %q: %w", n.HostPath, err)
	}
	if byName(o) {
		return nil
	}
	from := n.HostPath
	if n.Follow && b.opts.LinkPath != nil {
		from = b.opts.LinkPath(o.ID, n.Key)
		if err := b.exists(from); err != nil {
			return fmt.Errorf("link %q of node %q: %w", from, n.HostPath, err)
		}
	}
	b.answer.Nodes = append(b.answer.Nodes, device.AnswerNode{HostPath: from, ContainerPath: n.path, Permissions: n.Permissions})
	return nil
}

func (b *builder) mount(o device.Offer, m device.Mount) error {
	if again, err := b.take(o, m.ContainerPath, "mount "+m.HostPath); again || err != nil {
		return err
	}
	if err := b.exists(m.HostPath); err != nil {
		return fmt.Errorf("mount %q: %w", m.HostPath, err)
	}
	if !byName(o) {
		b.answer.Mounts = append(b.answer.Mounts, m)
	}
	return nil
}

// take takes a path in the container. The same thing again, such as the
// companion of a second device, is given once. Two things at one path are an
// error: kubelet and runtimes would keep one and not tell.
func (b *builder) take(o device.Offer, containerPath, source string) (again bool, err error) {
	have, ok := b.taken[containerPath]
	switch {
	case !ok:
		b.taken[containerPath] = owner{o.ID, source}
		return false, nil
	case have.source == source:
		return true, nil
	case have.id == o.ID:
		return false, fmt.Errorf("%q and %q would both be at %q in the container", have.source, source, containerPath)
	}
	return false, fmt.Errorf("would be at %q in the container, and so is device %q: ask for one, or give each a path of its own with ${index}, ${kernel} or a trailing %q", containerPath, have.id, "/")
}

func (b *builder) exists(hostPath string) error {
	if b.opts.Exists == nil {
		return nil
	}
	return b.opts.Exists(hostPath)
}

// environment is the environment of a container that has these devices.
func environment(offers []device.Offer, at func(index, count int) map[string]string) (map[string]string, error) {
	return expand("env", offers, func(o device.Offer) []device.Entry { return o.Env }, at)
}

// expand completes the environment or the annotations of a container. A key
// that differs from device to device gives an entry for each. Where several
// devices have one key, what their values name of the device is joined in the
// order of IDs, and anything else is the same for all. at gives the variables of
// the device at index among count.
func expand(what string, offers []device.Offer, list func(device.Offer) []device.Entry, at func(index, count int) map[string]string) (map[string]string, error) {
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
		out[key] = j.String()
	}
	return out, nil
}

// joined is what one key has of several devices.
type joined struct {
	from   int // place of the entry in its list
	entry  device.Entry
	values []string
}

func (j *joined) String() string {
	return j.entry.Prefix + strings.Join(j.values, cmp.Or(j.entry.Separator, ",")) + j.entry.Suffix
}
