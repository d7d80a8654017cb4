package matchers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
)

// builder makes the offers of one resource.
type builder struct {
	ix    *index
	r     *config.Resource
	forms device.Forms
	opts  Options
	// globs of the companions that have one; they have no variables, so that
	// what they select is the same for all devices.
	globs map[*config.Companion]globbed
}

func newBuilder(ix *index, r *config.Resource, forms device.Forms, opts Options) *builder {
	b := &builder{ix: ix, r: r, forms: forms, opts: opts, globs: map[*config.Companion]globbed{}}
	for i := range r.With {
		if c := &r.With[i]; c.Glob != "" {
			b.globs[c] = b.glob(c)
		}
	}
	return b
}

// offering is an offer in the making.
type offering struct {
	*builder
	scope
	offer    device.Offer
	problems []string
	// taken says what of the offer is at which path in the container.
	taken map[string]part
}

// part is a node or a mount of an offer.
type part struct {
	source string
	node   *device.Node // nil for a mount
}

// offer resolves everything about a device that does not depend on the
// container that asks. What can't be resolved is the offer's problem: it is
// listed, and the problem says why it can't be handed over. Beside it is what
// to look at before it may be.
func (b *builder) offer(s selected) (device.Offer, health.Check) {
	o := &offering{builder: b, taken: map[string]part{}}
	id := o.identify(s)
	o.offer = device.Offer{
		ID:       id,
		Hardware: hardwarePath(s.hardware),
		Slots:    max(b.r.Count, 1),
		NUMA:     b.numa(s.hardware),
		CDI:      b.r.Container.CDI,
	}
	o.scope = scope{b: b, id: id, numa: o.offer.NUMA, s: s}
	for _, p := range s.picks {
		o.addNode(p)
	}
	if s.group != nil {
		o.addVFIO()
	}
	for i := range b.r.With {
		o.addCompanion(&b.r.With[i])
	}
	for i := range b.r.Container.Mounts {
		o.addMount(&b.r.Container.Mounts[i])
	}
	o.offer.Env = o.entries("container.env", b.r.Container.Env)
	o.offer.Annotations = o.entries("container.annotations", b.r.Container.Annotations)
	check := o.check()
	o.offer.Problem = strings.Join(o.problems, "; ")
	return o.offer, check
}

func (o *offering) problem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(o.problems, text) {
		o.problems = append(o.problems, text)
	}
}

// identify names a device as its resource wants it. Where that asks for a
// serial number that does not tell the device apart, it goes by its port.
func (o *offering) identify(s selected) string {
	h := s.hardware
	form := o.forms.Of(h)
	switch o.r.Identity {
	case config.IdentityPort:
		form = device.PortForm
	case config.IdentitySerial:
		switch {
		case h == nil:
			o.problem("%s has no serial number, which identity = %q wants", s.picks[0].node.Path, o.r.Identity)
		case usbValue(h, "serial") == "":
			o.problem("%s has no serial number, which identity = %q wants", describe(h), o.r.Identity)
		case device.PlaceholderSerial(h.USB.Serial):
			o.problem("%s has no serial number of its own, which identity = %q wants: %q is what many devices have", describe(h), o.r.Identity, h.USB.Serial)
		case form != device.SerialForm:
			o.problem("%s has the serial number %q of another device, which identity = %q can't tell from it", describe(h), h.USB.Serial, o.r.Identity)
		}
	}
	if s.single {
		return device.NodeID(s.picks[0].node, form)
	}
	return device.HardwareID(h, form)
}

func (b *builder) numa(h *device.Hardware) []int {
	switch {
	case !b.r.NUMA.Auto:
		return slices.Clone(b.r.NUMA.Nodes)
	case h != nil && h.NUMA >= 0:
		return []int{h.NUMA}
	}
	return nil
}

// addNode puts one of the device's own nodes into the offer.
func (o *offering) addNode(p pick) {
	permissions := p.match.Permissions
	if permissions == "" {
		permissions = o.r.Container.Permissions
	}
	text := p.match.ContainerPath
	if len(text) == 0 {
		text = o.r.Container.Path
	}
	at, err := o.inContainer(text, p.node.Path, []pick{p})
	if err != nil {
		o.problem("path of %s in the container: %v", p.node.Path, err)
		return
	}
	if o.take(at, part{p.node.Path, p.node}) {
		o.paths = append(o.paths, at)
		o.offer.Nodes = append(o.offer.Nodes, offered(p.node, o.key(p.node), at, permissions))
	}
}

// key names a node within its device. A device of several functions of an
// IOMMU group has nodes whose keys within their own hardware are the same.
func (o *offering) key(n *device.Node) string {
	if n.Hardware == o.s.hardware || isGroupNode(n) {
		return o.ix.key(n)
	}
	return device.NodeID(n, o.forms.Of(n.Hardware))
}

// inContainer is where something goes in the container: its path on the host
// where nothing is said, and below a path that ends with "/".
func (o *offering) inContainer(text device.Text, hostPath string, picks []pick) (device.Text, error) {
	if len(text) == 0 {
		return device.Literal(hostPath), nil
	}
	at, err := o.path(text, picks)
	if err != nil {
		return nil, err
	}
	if last := text[len(text)-1]; last.Var == "" && strings.HasSuffix(last.Literal, "/") {
		at = append(at, device.Part{Literal: path.Base(hostPath)}).Expand(func(string) (string, bool) { return "", false })
	}
	return at, nil
}

// addMount puts one of container.mounts into the offer.
func (o *offering) addMount(m *config.Mount) {
	host, err := o.path(m.HostPath, o.s.picks)
	if err != nil {
		o.problem("host_path of a mount: %v", err)
		return
	}
	at, err := o.path(m.ContainerPath, o.s.picks)
	if err != nil {
		o.problem("container_path of mount %s: %v", host, err)
		return
	}
	mount := device.Mount{HostPath: host.String(), ContainerPath: at.String(), ReadOnly: m.ReadOnly, Optional: m.Optional}
	if !mount.Optional && !o.exists(mount.HostPath) {
		o.problem("mount %s is missing", mount.HostPath)
	}
	o.mount(mount)
}

func (o *offering) mount(m device.Mount) {
	if o.take(device.Literal(m.ContainerPath), part{source: "mount " + m.HostPath}) {
		o.offer.Mounts = append(o.offer.Mounts, m)
	}
}

// exists reports whether there is something at a path of the host.
func (b *builder) exists(hostPath string) bool {
	return b.ix.at[hostPath] != nil || b.ix.dirs[hostPath] || b.opts.Exists == nil || b.opts.Exists(hostPath)
}

// take takes a path in the container and reports whether it was free. The
// same thing twice at one path is one; two things are a problem: kubelet and
// runtimes would keep one of them and not tell.
func (o *offering) take(at device.Text, p part) bool {
	place := at.String()
	have, ok := o.taken[place]
	switch {
	case !ok:
		o.taken[place] = p
		return true
	case have.source != p.source:
		o.problem("%s and %s would both be at %s in the container%s", have.source, p.source, place, o.ix.tellApart(have.node, p.node))
	}
	return false
}

// tellApart says how a match selects one of two nodes and not the other.
func (ix *index) tellApart(a, b *device.Node) string {
	if a == nil || b == nil {
		return ""
	}
	if strings.HasPrefix(a.Path, "/dev/bus/usb/") {
		a, b = b, a // nobody means the bus node
	}
	stem := strings.TrimRight(a.Path, "0123456789")
	switch {
	case a.Interface >= 0 && a.Interface != b.Interface && b.Interface >= 0:
		return fmt.Sprintf(`: usb.interface = "%d" selects %s alone, and a path that ends with "/" keeps both`, a.Interface, a.Path)
	case stem != strings.TrimRight(b.Path, "0123456789"):
		return fmt.Sprintf(`: glob = %q selects %s alone, and a path that ends with "/" keeps both`, stem+"*", a.Path)
	case len(ix.links[a]) > 0:
		return fmt.Sprintf(`: glob = %q selects %s alone, and a path that ends with "/" keeps both`, ix.links[a][0], a.Path)
	}
	return `: a path that ends with "/", or that has "${kernel}" in it, keeps both`
}

// entries fills in the environment or the annotations. There are as many as
// the configuration has, whatever went wrong.
func (o *offering) entries(what string, entries []device.Entry) []device.Entry {
	var out []device.Entry
	for _, e := range entries {
		key, err := o.entry(e.Key)
		if err != nil {
			o.problem("%s: %v", what, err)
		} else if strings.Contains(key.String(), "=") {
			o.problem("%s: %q can't be a name", what, key)
		}
		value, err := o.entry(e.Value)
		if err != nil {
			o.problem("%s.%s: %v", what, e.Key, err)
		}
		out = append(out, device.Entry{Key: key, Value: value, PerDevice: e.PerDevice})
	}
	return out
}

// offered is a node as it is handed over.
func offered(n *device.Node, key string, at device.Text, permissions string) device.OfferedNode {
	return device.OfferedNode{
		HostPath: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor,
		Key: key, Path: at, Permissions: permissions, Follow: n.Hardware != nil,
	}
}
