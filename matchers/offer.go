package matchers

import (
	"cmp"
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

func newBuilder(ix *index, r *config.Resource, forms device.Forms) *builder {
	b := &builder{ix: ix, r: r, forms: forms, opts: ix.opts, globs: map[*config.Companion]globbed{}}
	for i := range r.With {
		if c := &r.With[i]; !c.Glob.Empty() {
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
// container that asks; name is that of the resource. What can't be resolved is
// the offer's problem: it is listed, and the problem says why it can't be
// handed over. Beside it is what to look at before it may be.
func (b *builder) offer(s *selected, name string) (device.Offer, health.Check) {
	o := &offering{builder: b, taken: map[string]part{}}
	c := &b.r.Container
	id := b.identify(s, name)
	o.offer = device.Offer{
		ID:    id,
		Slots: max(b.r.Count, 1),
		Pool:  s.pool,
		NUMA:  b.numa(s.members()),
		CDI:   c.CDI,
		Owner: c.Owner,
		Hooks: c.Hooks, AdditionalGIDs: c.AdditionalGIDs,
	}
	if s.hardware != nil {
		o.offer.Hardware = s.hardware.Path
	}
	o.scope = scope{b: b, s: s, name: name, id: id, numa: o.offer.NUMA}
	o.checkSerial()
	for _, p := range s.picks {
		if p.node.Net != nil {
			o.addNet(p)
		} else {
			o.addNode(p)
		}
	}
	for _, p := range s.paths {
		o.addPath(p)
	}
	if len(s.groups) > 0 {
		o.addVFIO()
	}
	for i := range b.r.With {
		o.addCompanion(&b.r.With[i])
	}
	for i := range c.Mounts {
		o.addMount(&c.Mounts[i])
	}
	o.addCDIDevices()
	o.offer.Env = o.entries("container.env", c.Env)
	o.offer.Annotations = o.entries("container.annotations", c.Annotations)
	check := o.check()
	o.offer.Problem = strings.Join(o.problems, "; ")
	return o.offer, check
}

func (o *offering) problem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(o.problems, text) {
		o.problems = append(o.problems, text)
	}
}

// numa is the NUMA nodes to report of a device that is made of hardware.
func (b *builder) numa(hardware []*device.Hardware) []int {
	if !b.r.NUMA.Auto {
		return slices.Clone(b.r.NUMA.Nodes)
	}
	var nodes []int
	for _, h := range hardware {
		if h.NUMA >= 0 && !slices.Contains(nodes, h.NUMA) {
			nodes = append(nodes, h.NUMA)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// addNode puts one of the device's own nodes into the offer.
func (o *offering) addNode(p pick) {
	text := p.match.ContainerPath
	if len(text) == 0 {
		text = o.r.Container.Path
	}
	at, err := o.inContainer(text, p.node.Path, o.s.subjectOf(p))
	if err != nil {
		o.problem("path of %s in the container: %v", p.node.Path, err)
		return
	}
	if !o.mayBeDangerous(p.match) {
		if why := o.danger(p.node); why != "" {
			o.problem("%s is dangerous: %s; %s", p.node.Path, why, dangerousHint)
			return
		}
	}
	if o.take(at, part{p.node.Path, p.node}) {
		o.paths = append(o.paths, at)
		o.offer.Nodes = append(o.offer.Nodes, o.offered(p.node, o.key(p.node), at, o.permissions(p)))
	}
}

// permissions are what a container may do with one of the device's own nodes.
func (b *builder) permissions(p pick) string {
	return cmp.Or(p.match.Permissions, b.r.Container.Permissions)
}

// key names a node within its device. Where that is several functions of an
// IOMMU group, other hardware that belongs together, or a pool, nodes have the
// same keys within their own hardware.
func (o *offering) key(n *device.Node) string {
	united := o.s.pool || o.s.value != ""
	if !united && (n.Hardware == o.s.hardware || len(o.s.groups) > 0 && isGroupNode(n)) {
		return o.ix.key(n)
	}
	return o.nodeID(n)
}

// nodeID is the whole ID of a node.
func (b *builder) nodeID(n *device.Node) string {
	id, ok := b.ix.ids[n]
	if !ok {
		id = device.NodeID(n, b.forms.Of(n.Hardware))
		b.ix.ids[n] = id
	}
	return id
}

// inContainer is where something goes in the container: its path on the host
// where nothing is said, and below a path that ends with "/".
func (o *offering) inContainer(text device.Text, hostPath string, sub *subject) (device.Text, error) {
	if len(text) == 0 {
		return device.Literal(hostPath), nil
	}
	at, err := o.path(text, sub)
	if err != nil {
		return nil, err
	}
	if last := text[len(text)-1]; last.Var == "" && strings.HasSuffix(last.Literal, "/") {
		at = append(at, device.Part{Literal: path.Base(hostPath)}).Expand(func(string) (string, bool) { return "", false })
	}
	return at, nil
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
	case a.Subsystem == "video4linux" && b.Subsystem == a.Subsystem && a.Index >= 0 && a.Index != b.Index:
		return fmt.Sprintf(`: attr.index = "%d" selects %s alone, and a path that ends with "/" keeps both`, a.Index, a.Path)
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
		key, err := o.entry(e.Key, "")
		if err != nil {
			o.problem("%s: %v", what, err)
		} else if strings.Contains(key.String(), "=") {
			o.problem("%s: %q can't be a name", what, key)
		}
		value, err := o.entry(e.Value, e.Separator)
		if err != nil {
			o.problem("%s.%s: %v", what, e.Key, err)
		}
		e.Key, e.Value = key, value
		out = append(out, e)
	}
	return out
}

// offered is a node as it is handed over.
func (o *offering) offered(n *device.Node, key string, at device.Text, permissions string) device.OfferedNode {
	return device.OfferedNode{
		HostPath: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor,
		Key: key, Path: at, Permissions: permissions, Follow: n.Hardware != nil && !o.r.Container.NoFollow,
	}
}
