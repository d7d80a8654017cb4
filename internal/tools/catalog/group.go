package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// group is hardware of one kind that one match selects by its identity. The nodes of the kind are
// injected. VFIO devices and network interfaces have no nodes of a kind: lines selects them.
type group struct {
	kind
	// identity are the lines that select it, such as match.usb.id = "10c4:ea60". It is empty if
	// only the paths of its nodes identify the hardware.
	identity string
	// lines are further keys of the resource, in the order in which they are written.
	lines []string
	// selects is the condition on nodes that identity and lines have, for comments. It is nil without one.
	selects func(*device.Node) bool
	// notes are comments for the administrator.
	notes []string
	// members are never empty. A new group has one.
	members []*device.Hardware
	// isWhole is set if a single node of a device is of no use, such as a sound card's.
	isWhole bool
}

// Lines and globs of several resources.
const (
	busNodes   = "/dev/bus/usb/*/*"
	eachNode   = `each = "node"`
	eachDevice = `each = "device"`
	cdiLine    = "container.cdi = true"
	indexLine  = `match.attr.index = "`
	videoClass = "video4linux"
)

// groupOf returns the group of a single device. It returns nil if nothing of the device can be
// injected, or if the kernel itself uses it.
func (c *Catalog) groupOf(h *device.Hardware) *group {
	// A root hub is the port of its controller, and no match selects it.
	if h.IsRootHub() {
		return nil
	}
	// A partition of a GPU is a platform device as well, but it has the IDs of its GPU.
	if h.Bus == device.PlatformBus && !h.IsPartition() {
		return c.platformGroup(h)
	}
	// Rules for single models precede rules for kinds of hardware.
	g := firmwareGroup(h)
	if g == nil {
		g = specialGroup(h)
	}
	if g != nil {
		return g
	}
	g = &group{
		kind:     c.kindOf(h),
		identity: identity(h),
		members:  []*device.Hardware{h},
	}
	if g.name == "" {
		return nil
	}
	found := c.nodesOf(h, g.nodes)
	if len(found) == 0 {
		// The container path of the kind only fits nodes of the kind.
		g.path = ""
		g.nodes = c.otherNodes(h)
		found = c.nodesOf(h, g.nodes)
	} else if more := c.nodesOf(h, g.together); len(more) > 0 {
		g.nodes = slices.Concat(g.nodes, g.together)
		found = append(found, more...)
	}
	if len(found) == 0 {
		return nil
	}
	g.selectNodes(found)
	vendor, _ := ids(h)
	// Only hardware of this vendor needs the companions.
	if g.vendor == "" || g.vendor == vendor {
		g.lines = append(g.lines, c.companions(g.with)...)
	}
	return g
}

// otherNodes are globs for hardware without a node of its kind: the bus node of a USB
// device, or the nodes of other kinds. The bus node of a device that a driver of the kernel
// uses is left out: a pod that claims it takes the host's own network or Bluetooth away.
func (c *Catalog) otherNodes(h *device.Hardware) []string {
	if h.USB != nil {
		ports := c.nodesOf(h, serialNodes)
		switch {
		case len(ports) > 0:
			return serialNodes
		case kernelDriver(h) != "":
			return nil
		}
		return []string{busNodes}
	}
	var globs []string
	for _, other := range kinds() {
		if other.resource != "" {
			globs = union(globs, other.nodes...)
		}
	}
	return globs
}

// selectNodes adds the keys that choose among the nodes of a device. found are the nodes of one
// member, and not empty.
func (g *group) selectNodes(found []*device.Node) {
	images := 0
	for _, n := range found {
		if n.Subsystem == videoClass && n.Index == 0 {
			images++
		}
	}
	isVideo := found[0].Subsystem == videoClass
	isCard := isVideo && g.members[0].PCI != nil
	switch {
	case len(found) == 1:
	// Each port of an adapter is a line of its own, and each node of a capture card an input.
	case g.name == "serial adapter", isCard:
		g.lines = append(g.lines, eachNode)
	case isVideo && images == 1: // the other nodes of a camera have metadata
		g.lines = append(g.lines, indexLine+`0"`)
		g.selects = hasNumber(indexOf, 0)
	default:
		// Several nodes cannot be at one path.
		g.path = ""
	}
}

// platformGroup returns the group of a camera or a sound card of a board, with all its nodes. It
// returns nil for all other platform devices. Such hardware has no IDs: its driver identifies it, or
// else the paths of its nodes.
func (c *Catalog) platformGroup(h *device.Hardware) *group {
	g := &group{
		kind:    c.kindOf(h),
		members: []*device.Hardware{h},
	}
	switch g.resource {
	case "camera":
		// libcamera configures the sensor and the receiver through these nodes.
		g.nodes = slices.Concat(g.nodes, mediaNodes)
	case "sound":
	default:
		return nil
	}
	g.path = ""
	g.lines = append([]string{eachDevice}, c.companions(g.with)...)
	driver := c.host.Driver(h.Path)
	if driver != "" {
		g.identity = driverLine(driver)
		return g
	}
	// The path is the last resort: it follows no hardware.
	var globs []string
	for _, n := range c.nodesOf(h, g.nodes) {
		globs = append(globs, pattern.Quote(n.Path))
	}
	g.nodes = globs
	return g
}

// driverLine selects nodes by the driver of their hardware.
func driverLine(driver string) string { return "match.driver = " + Quote(pattern.Quote(driver)) }

// specialGroup returns the group of hardware that is injected in another way than by its nodes. It
// returns nil for all other hardware.
func specialGroup(h *device.Hardware) *group {
	// A network function with nodes is an RDMA adapter, and its nodes are injected.
	hasOnlyNets := len(h.Nets) > 0 && len(h.Nodes) == 0
	isFunction := h.PCI != nil && hasOnlyNets
	isCAN := func(n *device.Node) bool { return n.Net.Type == "can" }
	// Interfaces move into a container by CDI only.
	switch {
	case h.MDev != nil:
		return newSpecial(h, "mdev", "mediated device", identity(h), "match.vfio = true")
	case h.PCI != nil && h.PCI.VFIO:
		bound := fmt.Sprintf("match.driver = %q", h.PCI.Driver)
		return newSpecial(h, "vfio", "function for virtual machines and DPDK", identity(h), bound, "match.vfio = true")
	case slices.ContainsFunc(h.Nets, isCAN):
		return newSpecial(h, "can", "CAN interface", identity(h), `match.net.type = "can"`, eachNode, cdiLine)
	case isFunction && h.PCI.SRIOV == "vf":
		return newSpecial(h, "vf", "virtual function", identity(h, `sriov = "vf"`), "match.net = {}", cdiLine)
	case isFunction && h.PCI.SRIOV == "sf":
		return newSpecial(h, "sf", "sub-function", identity(h), "match.net = {}", cdiLine)
	}
	return nil
}

// newSpecial returns a group whose lines replace the nodes of a kind.
func newSpecial(h *device.Hardware, resource, name, identity string, lines ...string) *group {
	return &group{
		kind:     kind{resource: resource, name: name},
		identity: identity,
		lines:    lines,
		members:  []*device.Hardware{h},
	}
}

// add adds hardware with the same identity and resource. If a member needs a key, all members get
// it, because they share one resource.
func (g *group) add(other *group) {
	g.members = append(g.members, other.members...)
	g.lines = union(g.lines, other.lines...)
	if other.selects != nil {
		g.selects = other.selects
	}
	g.nodes = union(g.nodes, other.nodes...)
	// The path only fits if each member has a single node.
	if other.path == "" {
		g.path = ""
	}
}

// identity returns the lines that select hardware by its model and by further conditions, such as
// `sriov = "vf"`. The conditions are keys of the table of the hardware's bus.
func identity(h *device.Hardware, more ...string) string {
	table := string(h.Bus)
	model := ""
	switch {
	case h.USB != nil:
		model = modelCondition(h)
	case h.PCI != nil, h.IsPartition():
		table = string(device.PCIBus)
		model = fmt.Sprintf("id = %q", attribute(h, "pci.id"))
	case h.MDev != nil:
		model = fmt.Sprintf("type = %q", h.MDev.Type)
	}
	// Dotted keys of one table stay together.
	var lines []string
	if h.PCI != nil && h.PCI.SRIOV == "sf" {
		// Without it, a match selects no sub-functions.
		more = append([]string{`sriov = "sf"`}, more...)
	}
	for _, condition := range append([]string{model}, more...) {
		lines = append(lines, "match."+table+"."+condition)
	}
	return strings.Join(lines, "\n")
}

// narrow selects a single node of the only member, for a resource that init writes for this node.
// It returns further conditions on the hardware, and changes the nodes and lines of g.
func (c *Catalog) narrow(g *group, n *device.Node) []string {
	h := g.members[0]
	// A device may have nodes of several kinds: the node decides, since it was asked for.
	if !c.matches(n.Path, g.nodes...) {
		c.adoptKind(g, n)
	}
	if g.isWhole {
		return nil
	}
	if c.matches(n.Path, soundNodes...) {
		// A program opens the control node and a node for each direction of the card.
		g.nodes = soundNodes
		g.lines = c.companions(g.with)
		return nil
	}
	g.lines = nil
	g.selects = nil
	glob := pattern.Quote(stem(n.Path)) + "*"
	if c.matches(n.Path, busNodes) {
		glob = busNodes
	}
	// Among several nodes with one stem, the interface or the kernel's index does not change
	// from boot to boot; the number in the path does.
	alike := c.nodesOf(h, []string{glob})
	var conditions []string
	// The other ports are for other resources. They share the hardware, so that each port has to be
	// a device. The other nodes of a camera on USB have its metadata, and are of no use alone.
	isCamera := n.Subsystem == videoClass && h.USB != nil
	if len(alike) > 1 && !isCamera {
		g.lines = append(g.lines, eachNode)
	}
	switch {
	case len(alike) == 1:
	case h.USB != nil && isUnique(alike, n, interfaceOf):
		conditions = append(conditions, fmt.Sprintf("interface = %d", n.Interface))
		g.selects = hasNumber(interfaceOf, n.Interface)
	case n.Subsystem == videoClass && isUnique(alike, n, indexOf):
		g.lines = append(g.lines, indexLine+strconv.Itoa(n.Index)+`"`)
		g.selects = hasNumber(indexOf, n.Index)
	default:
		glob = pattern.Quote(n.Path)
	}
	g.nodes = []string{glob}
	return conditions
}

// adoptKind gives a group the kind of a node that is not of the kind of its hardware, such as
// the sound of a camera.
func (c *Catalog) adoptKind(g *group, n *device.Node) {
	g.path = ""
	// No node is of two kinds with a resource.
	for _, k := range kinds() {
		if k.resource != "" && c.matches(n.Path, k.nodes...) {
			g.kind = k
		}
	}
}

// interfaceOf and indexOf are the numbers that may distinguish the nodes of a device.
func interfaceOf(n *device.Node) int { return n.Interface }

func indexOf(n *device.Node) int { return n.Index }

// hasNumber returns the condition that a node has a number.
func hasNumber(number func(*device.Node) int, want int) func(*device.Node) bool {
	return func(n *device.Node) bool {
		return number(n) == want
	}
}

// selected lists the nodes of a member that the resource of a group selects.
func (c *Catalog) selected(g *group, h *device.Hardware) []*device.Node {
	found := c.nodesOf(h, g.nodes)
	if g.selects == nil {
		return found
	}
	return slices.DeleteFunc(found, func(n *device.Node) bool {
		return !g.selects(n)
	})
}

// isUnique reports whether a node has a number that no other node has. A negative number means that
// the node has none.
func isUnique(all []*device.Node, n *device.Node, number func(*device.Node) int) bool {
	if number(n) < 0 {
		return false
	}
	for _, other := range all {
		if other != n && number(other) == number(n) {
			return false
		}
	}
	return true
}
