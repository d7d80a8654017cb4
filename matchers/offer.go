package matchers

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// builder makes the offer of a device. It also fills in texts before there is an offer, such as
// the name of the resource and the value of the variable of each.
type builder struct {
	*run
	r *config.Resource
	c *candidate
	// name is the name of the resource. It is empty while its variables are filled in.
	name string
	// id is the ID of the device. It is empty if it depends on a name that is not known yet.
	id string

	// offer is zero if the builder only fills in texts.
	offer device.Offer
	// check is only used if the offer has no Problem.
	check device.Check
	// problems are the reasons why the device cannot be allocated, at most maxProblems of them.
	problems []string
	// omitted is the number of problems beyond maxProblems.
	omitted int
	// conflicts is the number of nodes and mounts at a path that another one has in the container. Only the first
	// conflict is described: twenty nodes at one path would make a text that nobody reads.
	conflicts int
	// conflictAt is the index of its problem.
	conflictAt int
	// reserved has the node or mount at each path in the container.
	reserved map[string]part
	// paths has the paths in the container of the device's own nodes and mounts, by their path
	// on the host, for ${container_path}.
	paths map[string]device.Text
	// texts is the length of environment and annotations.
	texts int
}

// part is a node or a mount of an offer.
type part struct {
	// source is the path on the host, for messages.
	source string
	// node is nil for a mount and for a companion, which no match selects.
	node *device.Node
}

// builder returns a builder without an offer. name is the name of the resource, or empty if it is
// not known yet.
func (m *run) builder(r *config.Resource, c *candidate, name string) *builder {
	b := &builder{
		run:      m,
		r:        r,
		c:        c,
		name:     name,
		reserved: make(map[string]part),
		paths:    make(map[string]device.Text),
	}
	// ${id} is available from here on.
	b.id = b.identify()
	return b
}

// offer resolves everything about a device that does not depend on the container; name is the
// name of the resource. A device that can't be resolved is offered with a Problem: it is listed,
// and can't be allocated.
func (m *run) offer(r *config.Resource, c *candidate, name string) *builder {
	b := m.builder(r, c, name)
	b.offer = device.Offer{
		ID:       b.id,
		Hardware: hardwarePath(c.hardware),
		Slots:    c.slots(),
		Pool:     c.pool,
		NUMA:     b.numa(),

		Shared:    r.Shared,
		Exclusive: r.Exclusive,
		Places:    b.places(),
		Names:     b.names(),

		CDI:   r.Container.CDI,
		Owner: r.Container.Owner,
		Hooks: r.Container.Hooks,

		HealthDir: r.Container.HealthDir,
	}
	h := c.hardware
	if h != nil && h.USB != nil {
		b.offer.Product = strings.TrimSpace(h.USB.ProductName)
	}
	for _, h := range c.united {
		b.offer.Members = append(b.offer.Members, h.Path)
	}
	b.checkSerial()
	// The device's own nodes come before companions: they keep their path in the container if
	// both claim it, and a companion that is one of them is not added again.
	for _, p := range c.picks {
		switch {
		case p.isNet():
			b.addNet(p)
		case p.match.Mount:
			b.addPath(p)
		default:
			b.addNode(p)
		}
	}
	// VFIO needs a second node beside the node of a group or function.
	if c.vfio {
		b.addVFIOContainer()
	}
	for i := range r.With {
		b.addCompanion(&r.With[i])
	}
	// It depends on all nodes and their paths in the container.
	b.offer.AlsoCDI = b.CDI && r.Container.AutoCDI && slices.ContainsFunc(b.offer.Nodes, isInterface)
	if c.cdi != nil {
		b.addCDIDevice(c.cdi)
	}
	// The values may contain ${container_path}, so that all nodes and mounts come first.
	b.offer.Env = b.entries("container.env", r.Container.Env, b.Allow.CheckEnv)
	b.offer.Annotations = b.entries("container.annotations", r.Container.Annotations, config.CheckAnnotation)
	// The device plugin API has no place for them.
	if r.API == config.APIDRA {
		b.offer.Attributes = b.attributes()
		b.offer.Capacity = b.capacity()
	}
	b.offer.Features = b.features()
	b.check = b.healthCheck()
	// A conflict beyond maxProblems has no text to extend: only its count is kept.
	if b.conflicts > 1 && b.conflictAt < len(b.problems) {
		b.problems[b.conflictAt] += fmt.Sprintf(" (and %d more such conflicts)", b.conflicts-1)
	}
	// No step after this one may add a problem.
	b.offer.Problem = strings.Join(b.problems, "; ")
	if b.omitted > 0 {
		b.offer.Problem += fmt.Sprintf("; and %d more", b.omitted)
	}
	return b
}

// maxProblems is the maximum number of problems of a device that it lists. A configuration may
// have a thousand variables without a value, for each of a thousand devices.
const maxProblems = 8

// problem adds a problem of the device, unless it has the same problem already.
func (b *builder) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	// A variable without a value fails in every text that contains it.
	if slices.Contains(b.problems, text) {
		return
	}
	if len(b.problems) == maxProblems {
		b.omitted++
		return
	}
	b.problems = append(b.problems, text)
}

// identify returns the ID of the device. Without a name, the ID is empty if it depends on the
// name of the resource. The ID of a device with hardware does not depend on the kernel's names of
// its nodes, which may change whenever it is plugged in.
func (b *builder) identify() string {
	c := b.c
	// The ID of another resource's pool would be the same without the name.
	needsName := c.pool || c.virtual != nil
	if needsName && b.name == "" {
		return ""
	}
	switch {
	case c.pool:
		return device.PoolID(b.name)
	case c.virtual != nil:
		return device.VirtualID(b.name, c.virtual.Name)
	}
	return b.sharedID(b.ownID())
}

// ownID returns the ID of a device that does not depend on the resource.
func (b *builder) ownID() string {
	c := b.c
	form := b.forms.Of(c.hardware)
	// The configuration asks for the port even if the serial number is usable.
	if b.r.Identity == config.IdentityPort {
		form = device.PortForm
	}
	switch {
	case c.value != "":
		return device.GroupID(b.r.GroupBy, c.value)
	case c.cdi != nil && b.r.Identity == config.IdentityName:
		return device.CDIDeviceName(c.cdi.Name)
	case c.cdi != nil:
		return device.CDIDeviceID(c.cdi.Name)
	case c.single && c.picks[0].match.Mount:
		return device.PathID(c.picks[0].node.Path)
	case c.single:
		return b.nodeIDAs(c.picks[0].node, form)
	}
	return device.HardwareID(c.hardware, form)
}

// sharedID returns the ID of a device whose ID without shared is id.
func (b *builder) sharedID(id string) string {
	isOfferedTwice := b.r.Shared || b.r.Exclusive
	if isOfferedTwice && b.name != "" {
		return device.SharedID(b.name, id)
	}
	return id
}

// checkSerial reports a device without a usable serial number if the resource has
// identity = "serial". The ID of the device is the ID of its port.
func (b *builder) checkSerial() {
	c := b.c
	h := c.hardware
	// The ID of a pool or a group contains no serial number.
	// Paths, CDI devices and virtual devices have none either.
	isOther := c.name != ""
	if b.r.Identity != config.IdentitySerial || c.isCombined() || isOther {
		return
	}
	switch {
	case h == nil || h.USB == nil || strings.TrimSpace(h.USB.Serial) == "":
		b.problem("%s has no serial number, which identity = %q requires", c.describe(), b.r.Identity)
	case device.PlaceholderSerial(h.USB.Serial):
		b.problem("%s has no serial number of its own, which identity = %q requires: many devices have %q", describe(h), b.r.Identity, h.USB.Serial)
	// The ledger has decided that another device keeps the ID with this serial number.
	case b.forms.Of(h) != device.SerialForm:
		b.problem("%s has the serial number %q of another device, which identity = %q can't distinguish from it", describe(h), h.USB.Serial, b.r.Identity)
	}
}

// numa lists the NUMA nodes of the device to report. The result is empty if there is no
// preference.
func (b *builder) numa() []int {
	if !b.r.NUMA.Auto {
		return slices.Clone(b.r.NUMA.Nodes)
	}
	var all []int
	for _, h := range b.c.members() {
		all = append(all, h.NUMA)
	}
	// Nodes without hardware may have a NUMA node of their own, such as memory devices.
	for _, p := range b.c.picks {
		all = append(all, p.node.NUMA...)
	}
	slices.Sort(all)
	var nodes []int
	for _, node := range slices.Compact(all) {
		// The kernel reports -1 if it does not know the node.
		if node >= 0 {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// addNode adds one of the device's own nodes. If the node has no valid path or is not permitted,
// that is a problem, and the node is left out.
func (b *builder) addNode(p pick) {
	hostPath := p.node.Path
	at := device.Literal(hostPath)
	text := b.containerPath(p.match.Match)
	if len(text) > 0 {
		var ok bool
		at, ok = b.inContainer("path of "+hostPath+" in the container", text, hostPath, b.c.forNode(p))
		if !ok {
			return
		}
	}
	if !b.permits(hostPath, b.danger(p.node), p.match.Dangerous, "its match") {
		return
	}
	if !b.reserve(at, part{hostPath, p.node}) {
		return
	}
	// Only nodes that are offered are values of ${container_path}.
	b.paths[hostPath] = at
	node := b.offered(p.node, b.keyOf(p.node), at, b.permissions(p))
	b.offer.Nodes = append(b.offer.Nodes, node)
}

// containerPath returns the path in the container of nodes and mounts of a match. If it is
// empty, the path is the same as on the host.
func (b *builder) containerPath(m *config.Match) device.Text {
	if len(m.ContainerPath) > 0 {
		return m.ContainerPath
	}
	return b.r.Container.Path
}

// permissions returns the permissions of one of the device's own nodes.
func (b *builder) permissions(p pick) string {
	return cmp.Or(p.match.Permissions, b.r.Container.Permissions)
}

// keyOf names a node within its device. In a pool or a group, nodes of different hardware may
// have the same key, so that the ID names them.
func (b *builder) keyOf(n *device.Node) string {
	isOfIOMMUGroup := b.c.vfio && isGroupNode(n)
	isOwn := n.Hardware == b.c.hardware || isOfIOMMUGroup
	if isOwn && !b.c.isCombined() {
		return b.key(n)
	}
	return b.nodeIDAs(n, b.forms.Of(n.Hardware))
}

// inContainer returns a path in the container. That is the host path if text is empty, and a path
// below text if that ends with "/". If the path is not valid, ok is false, and a problem has been
// added. of provides the values of variables.
func (b *builder) inContainer(
	what string,
	text device.Text,
	hostPath string,
	of *candidate,
) (at device.Text, ok bool) {
	if len(text) == 0 {
		return device.Literal(hostPath), true
	}
	at, ok = b.path(what, text, of)
	if !ok {
		return nil, false
	}
	last := text[len(text)-1]
	// A value of a variable that ends with "/" does not count: it is the configuration that
	// decides.
	if last.Var == "" && strings.HasSuffix(last.Literal, "/") {
		name := device.Literal(path.Base(hostPath))
		at = join([]device.Text{at, name}, "")
	}
	return at, true
}

// reserve reserves a path in the container and reports whether it was free. Two things at one
// path are a problem: the kubelet and container runtimes silently keep one of them.
func (b *builder) reserve(at device.Text, p part) bool {
	if !utf8.ValidString(p.source) {
		b.problem("the path %q is not valid UTF-8, which the kubelet requires", p.source)
	}
	// Open variables are the same text in both places. They get the same value in a container.
	place := at.String()
	other, isTaken := b.reserved[place]
	if !isTaken {
		b.reserved[place] = p
		return true
	}
	// The same node or path twice is harmless: a companion may be one of the device's own nodes.
	if other.source == p.source {
		return false
	}
	b.conflicts++
	if b.conflicts == 1 {
		b.conflictAt = len(b.problems)
		b.problem(
			"%s and %s would both be at %s in the container%s",
			other.source,
			p.source,
			place,
			b.distinguishingSelector(other.node, p.node),
		)
	}
	return false
}

// distinguishingSelector suggests a selector for one of two nodes, which are nil for mounts and companions.
// It continues the sentence of the problem.
func (m *run) distinguishingSelector(a, b *device.Node) string {
	if a == nil || b == nil {
		return ": another path in the container for one of them keeps both"
	}
	if strings.HasPrefix(a.Path, "/dev/bus/usb/") {
		a, b = b, a // nobody means the bus node
	}
	selector := ""
	// The suggestions are tried from the most to the least specific attribute.
	stem := strings.TrimRight(a.Path, "0123456789")
	isVideo := a.Subsystem == "video4linux" && b.Subsystem == a.Subsystem
	hasInterfaces := a.Interface >= 0 && b.Interface >= 0
	names := m.namesOf(a)
	switch {
	case isVideo && a.Index >= 0 && a.Index != b.Index:
		selector = fmt.Sprintf(`attr.index = "%d"`, a.Index)
	case hasInterfaces && a.Interface != b.Interface:
		selector = fmt.Sprintf(`usb.interface = "%d"`, a.Interface)
	case stem != strings.TrimRight(b.Path, "0123456789"):
		selector = fmt.Sprintf(`glob = %q`, stem+"*")
	case len(names) > 1:
		selector = fmt.Sprintf(`glob = %q`, names[1])
	default:
		return `: a path that ends with "/", or that has "${kernel}" in it, keeps both`
	}
	return fmt.Sprintf(`: %s selects only %s, and a path that ends with "/" keeps both`, selector, a.Path)
}

// entries fills in environment or annotations. It returns as many entries as the configuration
// has, even if there are problems. The number and order must be the same for all devices of the
// resource, see device.Offer.
func (b *builder) entries(what string, entries []device.Entry, check func(key device.Text) error) []device.Entry {
	var out []device.Entry
	isSet := make(map[string]bool, len(entries))
	for _, e := range entries {
		// The entries before this one have used up the limit. The number of entries stays the
		// same.
		if b.texts > maxTexts {
			b.problem("%s: %v", what, errTooLong)
			out = append(out, device.Entry{})
			continue
		}
		key, err := b.single(e.Key, b.c)
		if err != nil {
			b.problem("%s: %v", what, err)
		} else if strings.Contains(key.String(), "=") {
			// The name would end at the "=", and the rest would become part of the value.
			b.problem("%s: %q can't be a name", what, key)
		} else if err := check(key); err != nil {
			b.problem("%s: %v", what, err)
		}
		value, err := b.joined(e.Value, e.Separator)
		if err != nil {
			b.problem("%s.%s: %v", what, e.Key, err)
		} else if !utf8.ValidString(value.String()) {
			// Protocol buffers reject other strings, so that Allocate would fail.
			b.problem("%s.%s: %q is not valid UTF-8, which the kubelet requires", what, e.Key, value)
		}
		// Two variables may have one value. A key without a value is a problem already.
		name := key.String()
		if isSet[name] && name != "" {
			b.problem("%s: %q is set twice", what, name)
		}
		isSet[name] = true
		b.texts += key.LiteralSize() + value.LiteralSize()
		// e is a copy: the configuration is not changed.
		e.Key = key
		e.Value = value
		out = append(out, e)
	}
	return out
}

// offered makes the OfferedNode of a node. A node of hardware is injected through a link that
// follows it, unless the configuration forbids that.
func (b *builder) offered(n *device.Node, key string, at device.Text, permissions string) device.OfferedNode {
	return device.OfferedNode{
		HostPath:    n.Path,
		Type:        n.Type,
		Major:       n.Major,
		Minor:       n.Minor,
		Key:         key,
		Path:        at,
		Permissions: permissions,
		Follow:      n.Hardware != nil,
	}
}
