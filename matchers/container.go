package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// addNet adds a network interface of the device, which CDI moves into the container. Without CDI, the
// interface only provides variables. An interface that can't be moved is added, too, because a missing
// interface counts as moved.
func (b *builder) addNet(p pick) {
	// The device plugin API cannot move a network interface.
	if !b.offer.CDI {
		return
	}
	host := p.node.Path
	// The path of an interface is its name.
	name := p.node.Path
	text := b.r.Container.NetName
	if len(text) > 0 {
		found, ok := b.text("container.net_name of "+host, text, b.c.forNode(p))
		if ok {
			name = found
		}
	}
	if !device.ValidNetName(name) {
		b.problem("container.net_name of %s: %q is not a valid name of a network interface: use 1 to 15 characters without space, %q and %q",
			host, name, "/", ":")
	}
	// Moving an interface that the host uses would cut off the node.
	use := b.Host.InUse(p.node)
	if use != "" {
		b.problem("%s is in use by the host, and is never moved: it is %s", host, use)
	}
	// A network namespace cannot have two interfaces with one name.
	for _, other := range b.offer.Nets {
		if other.Name == name {
			b.problem("%s and %s would both be called %s in the container: use a variable in container.net_name",
				other.HostName, host, name)
		}
	}
	// This is done in spite of problems, see above.
	b.offer.Nets = append(b.offer.Nets, device.OfferedNet{
		HostName: host,
		Key:      b.keyOf(p.node),
		Name:     name,
	})
}

// addPath adds the mount of a selected path.
func (b *builder) addPath(p pick) {
	host := p.node.Path
	what := "path of " + host + " in the container"
	// Variables such as ${1} have the value of this path, even in a pool with several paths.
	at, ok := b.inContainer(what, b.containerPath(p.match.Match), host, b.c.forNode(p))
	if !ok {
		return
	}
	// A mount has no number within the container, so that ${index} and ${count} have no value.
	open := at.Vars()
	if len(open) > 0 {
		b.problem("%s: ${%s} is not known for a mount", what, open[0])
		return
	}
	b.mount(device.Mount{
		HostPath:      host,
		ContainerPath: at.String(),
		ReadOnly:      p.match.ReadOnly,
	})
	b.paths[host] = at
}

// mount adds a bind mount if --allow covers it. This is checked here, because host paths with
// variables or wildcards are not known earlier. If --allow does not cover it, or if the path in
// the container is taken, that is a problem.
func (b *builder) mount(m device.Mount) {
	err := b.Allow.CheckMount(m.HostPath)
	if err != nil {
		b.problem("%v", err)
		return
	}
	if b.reserve(device.Literal(m.ContainerPath), part{source: "mount " + m.HostPath}) {
		b.offer.Mounts = append(b.offer.Mounts, m)
	}
}

// addCompanion adds a companion. A missing companion is a problem unless it is optional.
func (b *builder) addCompanion(c *config.Companion) {
	what := "companion"
	if c.Mount {
		what = "mount"
	}
	if !c.Glob.Empty() {
		b.addGlobbedCompanions(c, what)
		return
	}
	path, ok := b.path("path of a "+what, c.Path, b.c)
	if !ok {
		return
	}
	host := path.String()
	if c.Mount {
		// An optional mount is checked at Allocate, see Dirs.
		if !c.Optional && !b.exists(c.Place, host) {
			b.problem("%s %s is missing", what, host)
		}
		// The mount is added even if it is missing, since the offer has a problem then.
		b.companionMount(c, host)
		return
	}
	n := b.at(host)
	// The container has a node of the device itself already, so that the link to it is meant.
	isLinkToOwn := n != nil && n.Path != host && slices.ContainsFunc(b.c.picks, func(p pick) bool {
		return p.node == n
	})
	if isLinkToOwn && len(c.ContainerPath) == 0 {
		b.companionMount(c, host)
		return
	}
	if n != nil {
		b.companionNode(c, n, host)
		return
	}
	// A directory that may not be mounted is a common mistake.
	if b.isDir(host) && b.Allow.CheckMount(host) != nil {
		b.problem(
			"companion %s is a directory: path = %q selects the nodes in it, and mounting it requires mount:%[1]s in --allow (in the chart: allow)",
			host,
			host+"/*",
		)
		return
	}
	if b.exists(c.Place, host) {
		b.companionMount(c, host)
	} else if !c.Optional {
		b.problem("%s %s is missing", what, host)
	}
}

// addGlobbedCompanions adds the companions that a glob selects.
func (b *builder) addGlobbedCompanions(c *config.Companion, what string) {
	written, ok := b.text("path of a "+what, c.Path, b.c)
	if !ok {
		return
	}
	glob, err := b.globOf(c)
	if err != nil {
		b.problem("path of a %s: %v", what, err)
		return
	}
	found := b.filesOf(c, glob)
	isMissing := len(found.nodes)+len(found.paths) == 0
	if isMissing && !c.Optional {
		b.problem("%s %s is missing: nothing matches", what, written)
	}
	for _, n := range found.nodes {
		b.companionNode(c, n, n.Path)
	}
	for _, p := range found.paths {
		b.companionMount(c, p)
	}
}

// globOf returns the glob of a companion, with the values of its variables for the device.
func (b *builder) globOf(c *config.Companion) (pattern.Values, error) {
	if len(c.Path.Vars()) == 0 {
		return c.Glob, nil
	}
	text, err := expand(c.Path, func(name string) (device.Text, error) {
		value, err := b.valueInPath(name, b.c)
		return device.Literal(escaped(value.String())), err
	})
	if err != nil {
		return pattern.Values{}, err
	}
	glob, err := pattern.Parse(pattern.Path, text.String())
	if err != nil {
		err = fmt.Errorf("%q %w", text, err)
	}
	return glob, err
}

// specialInClass escapes what is special only in a class.
var specialInClass = strings.NewReplacer("-", `\-`, "^", `\^`)

// escaped returns a text that is literal in any part of a pattern, also in a class.
func escaped(value string) string { return specialInClass.Replace(pattern.Quote(value)) }

// filesOf finds the nodes or paths that the glob of a companion selects. A link to a node is a path to mount: as
// a node, it would give access to the devices of other containers.
func (m *run) filesOf(c *config.Companion, glob pattern.Values) companionFiles {
	// An empty result is also kept: it costs as much as any other.
	key := companionGlob{c, glob.Patterns()[0]}
	found, isKnown := m.companions[key]
	if isKnown {
		return found
	}
	found.paths = m.files(c.Place, glob)
	if !c.Mount {
		for _, n := range m.snap.Nodes {
			if !m.isLate(glob) && glob.Match(n.Path) {
				found.nodes = append(found.nodes, n)
			}
		}
		for _, l := range m.snap.Links {
			if !m.isLate(glob) && glob.Match(l.Path) {
				found.paths = append(found.paths, l.Path)
			}
		}
		// Any other file below /dev is a mount. Directories only contain nodes.
		found.paths = slices.DeleteFunc(found.paths, func(path string) bool {
			n := m.at(path)
			isNode := n != nil && n.Path == path
			return isNode || m.isDir(path)
		})
		slices.Sort(found.paths)
		found.paths = slices.Compact(found.paths)
	}
	m.companions[key] = found
	return found
}

// companionNode adds a node. written is its path as the configuration has it, which may be a link. A node of
// the device itself is not added again.
func (b *builder) companionNode(c *config.Companion, n *device.Node, written string) {
	at, ok := b.inContainer("container_path of companion "+n.Path, c.ContainerPath, written, b.c)
	if !ok {
		return
	}
	// A companion has no key dangerous. The match of its device decides.
	if !b.permits("companion "+n.Path, b.danger(n), b.c.isDangerous(), "the match of its device") {
		return
	}
	if !b.reserve(at, part{source: n.Path}) {
		return
	}
	// Its key is the whole ID, because keys are only unique within one hardware.
	node := b.offered(n, b.nodeIDAs(n, b.forms.Of(n.Hardware)), at, c.Permissions)
	// Several devices of one container share the companion.
	node.Companion = true
	b.offer.Nodes = append(b.offer.Nodes, node)
}

// companionMount adds the mount of a path.
func (b *builder) companionMount(c *config.Companion, host string) {
	at, ok := b.inContainer("container_path of mount "+host, c.ContainerPath, host, b.c)
	if !ok {
		return
	}
	b.mount(device.Mount{
		HostPath:      host,
		ContainerPath: at.String(),
		ReadOnly:      c.ReadOnly,
		Optional:      c.Optional,
	})
}

// addCDIDevice adds a CDI device of the host if --allow covers it.
func (b *builder) addCDIDevice(d *device.CDIDevice) {
	if err := b.Allow.CheckCDI(d.Name); err != nil {
		b.problem("%v", err)
		return
	}
	// The runtime injects all nodes of the device, so that each of them is judged.
	if b.permits("CDI device "+d.Name, b.cdiDanger(d), b.c.isDangerous(), "its match") {
		b.offer.CDIDevices = append(b.offer.CDIDevices, d.Name)
	}
}
