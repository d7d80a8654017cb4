package matchers

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// builder makes the offer of a device.
type builder struct {
	*run
	r    *config.Resource
	c    *candidate
	name string // of the resource; empty while its variables are filled in
	id   string
	// former is the ID that the version before gave it, empty if that is the same.
	former string

	offer    device.Offer
	check    device.Check
	problems []string
	untold   int // problems beyond maxProblems
	// taken are the nodes and mounts by path in the container, paths are those
	// of the device's own by path on the host: ${container_path}.
	taken map[string]part
	paths map[string]device.Text
	texts int // length of environment and annotations
}

// part is a node or a mount of an offer; node is nil for a mount.
type part struct {
	source string
	node   *device.Node
}

func (m *run) builder(r *config.Resource, c *candidate, name string) *builder {
	b := &builder{run: m, r: r, c: c, name: name, taken: map[string]part{}, paths: map[string]device.Text{}}
	b.id, b.former = b.identify()
	return b
}

// offer resolves everything about a device that does not depend on the container;
// name is that of the resource. A device that can't be resolved is offered with a
// Problem: it is listed, and can't be allocated.
func (m *run) offer(r *config.Resource, c *candidate, name string) *builder {
	b := m.builder(r, c, name)
	b.offer = device.Offer{
		ID:       b.id,
		Former:   b.former,
		Hardware: hardwarePath(c.hardware),
		Slots:    max(r.Count, 1),
		Pool:     c.pool,
		NUMA:     b.numa(),
		CDI:      r.Container.CDI,
		Owner:    r.Container.Owner,
		Hooks:    r.Container.Hooks, AdditionalGIDs: r.Container.AdditionalGIDs,
		HealthDir: r.Container.HealthDir, HealthHold: r.Container.HealthHold,
	}
	if h := c.hardware; h != nil && h.USB != nil {
		b.offer.Product = strings.TrimSpace(h.USB.ProductName)
	}
	for _, h := range c.united {
		b.offer.Members = append(b.offer.Members, h.Path)
	}
	b.checkSerial()
	for _, p := range c.picks {
		if p.node.Net != nil {
			b.addNet(p)
		} else {
			b.addNode(p)
		}
	}
	for _, p := range c.paths {
		b.addPath(p)
	}
	if len(c.groups) > 0 {
		b.addVFIO()
	}
	for i := range r.With {
		b.addCompanion(&r.With[i])
	}
	for i := range r.Container.Mounts {
		b.addCompanion(&r.Container.Mounts[i])
	}
	b.offer.AlsoCDI = b.CDI && r.Container.AutoCDI && slices.ContainsFunc(b.offer.Nodes, isInterface)
	b.addCDIDevices()
	b.offer.Env = b.entries("container.env", r.Container.Env, b.Allow.CheckEnv)
	b.offer.Annotations = b.entries("container.annotations", r.Container.Annotations, config.CheckAnnotation)
	if r.API == config.APIDRA {
		b.offer.Attributes = b.attributes()
	}
	b.check = b.healthCheck()
	b.offer.Problem = strings.Join(b.problems, "; ")
	if b.untold > 0 {
		b.offer.Problem += fmt.Sprintf("; and %d more", b.untold)
	}
	return b
}

// maxProblems is the maximum number of problems of a device that are told. A configuration may
// have a thousand variables without a value, for each of a thousand devices.
const maxProblems = 8

func (b *builder) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(b.problems, text) {
		return
	}
	if len(b.problems) == maxProblems {
		b.untold++
		return
	}
	b.problems = append(b.problems, text)
}

// identify makes the ID of the device, and its former ID if that differs. The ID is
// empty if it depends on the name of the resource, and b.name is empty.
func (b *builder) identify() (id, former string) {
	c, form := b.c, b.forms.Of(b.c.hardware)
	if b.r.Identity == config.IdentityPort {
		form = device.PortForm
	}
	switch {
	case (c.pool || c.virtual != nil) && b.name == "":
		return "", ""
	case c.pool:
		return device.PoolID(b.name), ""
	case c.virtual != nil:
		return device.VirtualID(b.name, c.virtual.Name), ""
	case c.value != "":
		id = device.GroupID(b.r.GroupBy, c.value)
	case c.cdi != nil:
		// After an edit of identity, a container may hold it by the other ID.
		id, former = device.CDIDeviceID(c.cdi.Name), device.CDIDeviceName(c.cdi.Name)
		if b.r.Identity == config.IdentityName {
			id, former = former, id
		}
	case len(c.paths) > 0:
		id = device.PathID(c.paths[0].path)
	case c.single:
		id, former = b.nodeIDAs(c.picks[0].node, form), device.FormerNodeID(c.picks[0].node, form)
	default:
		id, former = device.HardwareID(c.hardware, form), device.FormerHardwareID(c.hardware, form)
	}
	if b.r.Shared && b.name != "" {
		id = device.SharedID(b.name, id)
		if former != "" {
			former = device.SharedID(b.name, former)
		}
	}
	return id, former
}

// checkSerial reports a device without a usable serial number where the resource
// has identity = "serial". Its ID is that of its port.
func (b *builder) checkSerial() {
	c, h := b.c, b.c.hardware
	if b.r.Identity != config.IdentitySerial || c.pool || c.value != "" || c.single && len(c.picks) == 0 {
		return
	}
	switch {
	case h == nil:
		b.problem("%s has no serial number, which identity = %q wants", c.picks[0].node.Path, b.r.Identity)
	case h.USB == nil || strings.TrimSpace(h.USB.Serial) == "":
		b.problem("%s has no serial number, which identity = %q wants", describe(h), b.r.Identity)
	case device.PlaceholderSerial(h.USB.Serial):
		b.problem("%s has no serial number of its own, which identity = %q wants: %q is what many devices have", describe(h), b.r.Identity, h.USB.Serial)
	case b.forms.Of(h) != device.SerialForm:
		b.problem("%s has the serial number %q of another device, which identity = %q can't tell from it", describe(h), h.USB.Serial, b.r.Identity)
	}
}

// numa lists the NUMA nodes of the device to report.
func (b *builder) numa() []int {
	if !b.r.NUMA.Auto {
		return slices.Clone(b.r.NUMA.Nodes)
	}
	var nodes []int
	add := func(node int) {
		if node >= 0 && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	for _, h := range b.c.members() {
		add(h.NUMA)
	}
	for _, p := range b.c.picks {
		for _, node := range p.node.NUMA {
			add(node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// addNode adds one of the device's own nodes.
func (b *builder) addNode(p pick) {
	at, ok := b.inContainer("path of "+p.node.Path+" in the container", b.containerPath(p.match.Match), p.node.Path, b.c.forNode(p))
	if !ok {
		return
	}
	if b.permits(p.node.Path, b.danger(p.node), p.match.Dangerous, "its match") && b.reserve(at, part{p.node.Path, p.node}) {
		b.paths[p.node.Path] = at
		b.offer.Nodes = append(b.offer.Nodes, b.offered(p.node, b.keyOf(p.node), at, b.permissions(p)))
	}
}

// containerPath is the path in the container of nodes and mounts of a match;
// empty is the host path.
func (b *builder) containerPath(m *config.Match) device.Text {
	if len(m.ContainerPath) > 0 {
		return m.ContainerPath
	}
	return b.r.Container.Path
}

// permissions are those of one of the device's own nodes.
func (b *builder) permissions(p pick) string {
	return cmp.Or(p.match.Permissions, b.r.Container.Permissions)
}

// keyOf names a node within its device. In a pool or a group, nodes of different
// hardware may have the same key, so that they go by ID.
func (b *builder) keyOf(n *device.Node) string {
	united := b.c.pool || b.c.value != ""
	if !united && (n.Hardware == b.c.hardware || len(b.c.groups) > 0 && isGroupNode(n)) {
		return b.key(n)
	}
	return b.nodeID(n)
}

// nodeID is the whole ID of a node.
func (m *run) nodeID(n *device.Node) string {
	id, ok := m.ids[n]
	if !ok {
		id = m.nodeIDAs(n, m.forms.Of(n.Hardware))
		m.ids[n] = id
	}
	return id
}

// inContainer is a path in the container: by default the host path, and below a
// path that ends with "/".
func (b *builder) inContainer(what string, text device.Text, hostPath string, of *candidate) (at device.Text, ok bool) {
	if len(text) == 0 {
		return device.Literal(hostPath), true
	}
	if at, ok = b.path(what, text, of); !ok {
		return nil, false
	}
	if last := text[len(text)-1]; last.Var == "" && strings.HasSuffix(last.Literal, "/") {
		at = join([]device.Text{at, device.Literal(path.Base(hostPath))}, "")
	}
	return at, true
}

// reserve reserves a path in the container and reports whether it was free. Two
// things at one path are a problem: kubelet and runtimes silently keep one.
func (b *builder) reserve(at device.Text, p part) bool {
	if !utf8.ValidString(p.source) {
		b.problem("the path %q is not UTF-8: the kubelet takes no other", p.source)
	}
	place := at.String()
	have, ok := b.taken[place]
	switch {
	case !ok:
		b.taken[place] = p
		return true
	case have.source != p.source:
		b.problem("%s and %s would both be at %s in the container%s", have.source, p.source, place, b.distinguishingSelector(have.node, p.node))
	}
	return false
}

// distinguishingSelector suggests a selector for one of two nodes.
func (m *run) distinguishingSelector(a, b *device.Node) string {
	if a == nil || b == nil {
		return ""
	}
	if strings.HasPrefix(a.Path, "/dev/bus/usb/") {
		a, b = b, a // nobody means the bus node
	}
	selector := ""
	stem := strings.TrimRight(a.Path, "0123456789")
	switch {
	case a.Subsystem == "video4linux" && b.Subsystem == a.Subsystem && a.Index >= 0 && a.Index != b.Index:
		selector = fmt.Sprintf(`attr.index = "%d"`, a.Index)
	case a.Interface >= 0 && a.Interface != b.Interface && b.Interface >= 0:
		selector = fmt.Sprintf(`usb.interface = "%d"`, a.Interface)
	case stem != strings.TrimRight(b.Path, "0123456789"):
		selector = fmt.Sprintf(`glob = %q`, stem+"*")
	case len(m.links()[a]) > 0:
		selector = fmt.Sprintf(`glob = %q`, m.links()[a][0])
	default:
		return `: a path that ends with "/", or that has "${kernel}" in it, keeps both`
	}
	return fmt.Sprintf(`: %s selects %s alone, and a path that ends with "/" keeps both`, selector, a.Path)
}

// entries fills in environment or annotations. Their number is that of the
// configuration, also with problems.
func (b *builder) entries(what string, entries []device.Entry, check func(key device.Text) error) []device.Entry {
	var out []device.Entry
	for _, e := range entries {
		if b.texts > maxTexts {
			b.problem("%s: %v", what, errTooLong)
			out = append(out, device.Entry{})
			continue
		}
		key, err := b.single(e.Key, b.c)
		if err != nil {
			b.problem("%s: %v", what, err)
		} else if strings.Contains(key.String(), "=") {
			b.problem("%s: %q can't be a name", what, key)
		} else if err := check(key); err != nil {
			b.problem("%s: %v", what, err)
		}
		value, err := b.joined(e.Value, e.Separator)
		if err != nil {
			b.problem("%s.%s: %v", what, e.Key, err)
		} else if !utf8.ValidString(value.String()) {
			b.problem("%s.%s: %q is not UTF-8: the kubelet takes no other", what, e.Key, value)
		}
		b.texts += key.LiteralSize() + value.LiteralSize()
		e.Key, e.Value = key, value
		out = append(out, e)
	}
	return out
}

// offered makes the OfferedNode of a node.
func (b *builder) offered(n *device.Node, key string, at device.Text, permissions string) device.OfferedNode {
	return device.OfferedNode{
		HostPath: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor,
		Key: key, Path: at, Permissions: permissions, Follow: n.Hardware != nil && !b.r.Container.NoFollow,
	}
}

// standard is the domain of attributes common to all drivers.
const standard = "resource.kubernetes.io/"

// attributes are the device's attributes for claims, by name: the hardware's, then the
// configured ones.
func (b *builder) attributes() map[string]string {
	all := map[string]string{}
	if h := b.c.hardware; h != nil {
		switch {
		case h.USB != nil:
			all["vendor"], all["product"], all["serial"], all["port"] = h.USB.Vendor, h.USB.Product, strings.TrimSpace(h.USB.Serial), device.Place(h)
			all["driver"] = b.interfaceDriver(h.USB.Interfaces)
		case h.PCI != nil:
			all["vendor"], all["product"], all["driver"] = h.PCI.Vendor, h.PCI.Device, h.PCI.Driver
			if device.IsPCIAddress(h.PCI.Address) {
				all[standard+"pciBusID"] = h.PCI.Address
			}
		}
		if _, rest, ok := strings.Cut(h.Path, "devices/pci"); ok {
			root, _, _ := strings.Cut(rest, "/")
			all[standard+"pcieRoot"] = "pci" + root
		}
	}
	for _, a := range b.r.Attributes {
		value, err := b.single(a.Value, b.c)
		var missing noValue
		if errors.As(err, &missing) && !missing.unread {
			continue // devices without a value have no such attribute
		}
		if err != nil {
			b.problem("attributes.%s: %v", a.Name, err)
			continue
		}
		all[a.Name] = value.String()
	}
	return all
}

// interfaceDriver is the driver of the interfaces that have nodes of the device; empty if
// there are several, or none.
func (b *builder) interfaceDriver(interfaces []device.USBInterface) (driver string) {
	for _, i := range interfaces {
		used := slices.ContainsFunc(b.c.picks, func(p pick) bool { return p.node.Interface == i.Number })
		switch {
		case !used || i.Driver == driver:
		case driver != "":
			return ""
		default:
			driver = i.Driver
		}
	}
	return driver
}
