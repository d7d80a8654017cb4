package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Starter returns resources for the hardware that pods may want: not for disks, bridges and
// keyboards, and not for hardware that the kernel itself uses. The order is the same on all hosts,
// and the names are unique.
func (c *Catalog) Starter() []Resource {
	groups := c.groups()
	var all []Resource
	for _, g := range groups {
		r := c.resourceOf(g)
		if countResource(groups, g.resource) > 1 {
			r.Name += "-" + g.suffix(len(all))
		}
		r.Name = unusedName(all, r.Name)
		all = append(all, r)
	}
	for _, k := range nodeKinds() {
		for _, r := range c.resourcesOfKind(k) {
			r.Name = unusedName(all, r.Name)
			all = append(all, r)
		}
	}
	return all
}

// groups returns the hardware for pods, grouped by kind and identity.
func (c *Catalog) groups() []*group {
	var groups []*group
	for _, h := range c.snap.Hardware {
		g := c.groupOf(h)
		isForHost := g == nil || g.resource == ""
		if isForHost || c.isSibling(h) || c.isDisplaySound(h) {
			continue
		}
		// Devices of one model are substitutes for each other.
		i := slices.IndexFunc(groups, func(have *group) bool {
			return have.resource == g.resource && have.identity == g.identity
		})
		if i < 0 {
			groups = append(groups, g)
		} else {
			groups[i].add(g)
		}
	}
	// Resources of one kind stand together, in the same order on all hosts.
	slices.SortStableFunc(groups, func(a, b *group) int {
		return cmp.Or(
			cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.identity, b.identity),
		)
	})
	return groups
}

// countResource counts the groups with a resource name.
func countResource(groups []*group, resource string) int {
	count := 0
	for _, g := range groups {
		if g.resource == resource {
			count++
		}
	}
	return count
}

// suffix distinguishes a group from others of its kind: the IDs or the type of its model, or
// a number.
func (g *group) suffix(number int) string {
	h := g.members[0]
	if h.MDev != nil {
		return slug(h.MDev.Type)
	}
	vendor, product := ids(h)
	model := strings.Trim(vendor+"-"+product, "-")
	return cmp.Or(model, strconv.Itoa(number))
}

// unusedName returns a name, with a number if one of the resources has it already.
func unusedName(all []Resource, name string) string {
	isUsed := func(name string) bool {
		return slices.ContainsFunc(all, func(r Resource) bool { return r.Name == name })
	}
	unused := device.CutName(name)
	for n := 2; isUsed(unused); n++ {
		unused = device.CutName(name + "-" + strconv.Itoa(n))
	}
	return unused
}

// resourcesOfKind returns the resources for the nodes of a kind: one for all, or one for each. It
// returns nil if the host has no such node.
func (c *Catalog) resourcesOfKind(k kind) []Resource {
	var found []*device.Node
	for _, n := range c.snap.Nodes {
		if c.matches(n.Path, k.nodes...) && isForPods(n) && isWritable(n.Path) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil
	}
	// Containers share the nodes, or any of them will do.
	if !k.each {
		return []Resource{c.resourceOfNodes(k, k.nodes[0], paths(found))}
	}
	var all []Resource
	for _, n := range found {
		all = append(all, c.resourceOfNode(k, n, found))
	}
	return all
}

// isForPods reports whether pods may want a node of a kind of nodes. The GPIO of a USB adapter
// belongs to its device, and the GPIO of a chipset to the board.
func isForPods(n *device.Node) bool {
	if n.Subsystem != gpioSubsystem {
		return true
	}
	isUSB := n.Hardware != nil && n.Hardware.USB != nil
	return !isUSB && !isOfBoard(n.Hardware)
}

// isWritable reports whether a configuration may contain a path: TOML is UTF-8, and package config
// refuses control characters in paths.
func isWritable(path string) bool {
	return utf8.ValidString(path) && !strings.ContainsFunc(path, unicode.IsControl)
}

// resourceOfNode returns the resource for one of several nodes of a kind, which are no substitutes
// for each other. The driver identifies a GPIO chip if no other chip has the same driver, because
// the numbers of chips depend on the order of probing. The number of an SPI bus is stable: it comes
// from the description of the board.
func (c *Catalog) resourceOfNode(k kind, n *device.Node, all []*device.Node) Resource {
	driver := ""
	if n.Subsystem == gpioSubsystem {
		driver = c.driverOf(n)
	}
	sameDriver := 0
	for _, other := range all {
		if c.driverOf(other) == driver {
			sameDriver++
		}
	}
	// The path is the last resort: it follows no hardware.
	if driver == "" || sameDriver > 1 {
		r := c.resourceOfNodes(k, pattern.Quote(n.Path), []string{n.Path})
		if len(all) > 1 {
			_, name, _ := strings.Cut(n.Path, "/dev/")
			r.Name = slug(name)
		}
		return r
	}
	r := c.resourceOfNodes(k, k.nodes[0], []string{n.Path})
	r.Lines = append(r.Lines, "match.driver = "+Quote(pattern.Quote(driver)))
	if len(all) > 1 {
		r.Name += "-" + slug(driver)
	}
	return r
}

// driverOf returns the driver of the hardware of a node. It is empty if there is none.
func (c *Catalog) driverOf(n *device.Node) string {
	if n.Hardware == nil {
		return ""
	}
	return c.host.Driver(n.Hardware.Path)
}

// resourceOfNodes returns the resource for nodes of a kind, which a glob selects.
func (c *Catalog) resourceOfNodes(k kind, glob string, found []string) Resource {
	title := strings.Join(found, " ")
	if k.name != "" {
		title = k.name + ": " + title
	}
	r := Resource{
		Name:    k.resource,
		Comment: []string{title},
	}
	if k.note != "" {
		r.Comment = append(r.Comment, k.note)
	}
	if k.count > 1 {
		r.Comment = append(r.Comment, "Containers share it: count is how many may have it at once.")
		r.Lines = append(r.Lines, "count = "+strconv.Itoa(k.count))
	}
	r.Lines = append(r.Lines, "match.glob = "+Quote(glob))
	r.Lines = append(r.Lines, c.companions(k.with)...)
	return r
}

// companions returns the line of the key with, for the paths that the host has. It returns nil if
// the host has none of them.
func (c *Catalog) companions(candidates []string) []string {
	// A companion that the host lacks would make each device Unhealthy.
	var tables []string
	for _, path := range candidates {
		if c.paths[path] {
			tables = append(tables, fmt.Sprintf("{ path = %q }", path))
		}
	}
	if tables == nil {
		return nil
	}
	return []string{"with = [" + strings.Join(tables, ", ") + "]"}
}

// resourceOf returns the resource for a group.
func (c *Catalog) resourceOf(g *group) Resource {
	r := Resource{
		Name:    g.resource,
		Comment: []string{c.title(g)},
	}
	// Without an identity, the globs are paths of nodes.
	if g.identity != "" {
		r.Lines = []string{g.identity}
	}
	for _, h := range g.members {
		r.Comment = append(r.Comment, "  "+c.describeMember(g, h))
	}
	r.Comment = append(r.Comment, g.notes...)
	r.Lines = append(r.Lines, c.globLine(g)...)
	r.Lines = append(r.Lines, g.lines...)
	if g.path != "" {
		r.Lines = append(r.Lines, fmt.Sprintf("container.path = %q", g.path))
	}
	// Such hardware is still a device: a match selects it by its identity.
	hasNothing := len(g.nodes) == 0 && len(g.lines) == 0
	switch {
	case hasNothing:
		r.Comment = append(r.Comment, "It has no node to inject: a container gets what container.env says of it.")
	case slices.Contains(g.lines, eachNode):
		r.Comment = append(r.Comment, "Each node is a device: pods get any of these.")
	case len(g.members) > 1:
		r.Comment = append(r.Comment, "Pods get any of these: init DEVICE writes a resource for one of them.")
	}
	return r
}

// title returns the kind, vendor and product of a group, as far as they are known.
func (c *Catalog) title(g *group) string {
	// Members have the same IDs, and nearly always the same names.
	vendor, product := c.names.Of(g.members[0])
	words := strings.Fields(g.name + " " + vendor + " " + withoutVendor(product, vendor))
	return strings.Join(words, " ")
}

// describeMember names a device of a group, its nodes and its interfaces.
func (c *Catalog) describeMember(g *group, h *device.Hardware) string {
	text := h.Name
	if serial := attribute(h, "usb.serial"); serial != "" {
		text += ", serial " + serial
	}
	if found := c.selected(g, h); len(found) > 0 {
		text += ": " + strings.Join(paths(found), " ")
	}
	for _, n := range h.Nets {
		text += " " + n.Path
	}
	return text
}

// globLine returns the line of the key match.glob, with the globs that select a node of the group.
// It returns nil if no glob selects a node.
func (c *Catalog) globLine(g *group) []string {
	// check warns of a glob that selects nothing on this host.
	var globs []string
	for _, glob := range g.nodes {
		selects := func(h *device.Hardware) bool { return c.hasNode(h, []string{glob}) }
		if slices.ContainsFunc(g.members, selects) {
			globs = append(globs, glob)
		}
	}
	if globs == nil {
		return nil
	}
	return []string{"match.glob = " + quoteAll(globs)}
}
