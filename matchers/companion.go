package matchers

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// globbed is what the glob of a companion selects on this host: nodes, or
// paths to mount.
type globbed struct {
	nodes []*device.Node
	paths []string
}

// glob finds what the glob of a companion selects. What is mounted may be
// anything, so that it is looked for on the host where that can be done.
func (b *builder) glob(c *config.Companion) globbed {
	if c.Mount {
		return globbed{paths: b.ix.paths(c.Glob)}
	}
	return globbed{nodes: b.ix.glob(c.Glob)}
}

// addCompanion puts a companion into the offer.
func (o *offering) addCompanion(c *config.Companion) {
	if !c.Glob.Empty() {
		found := o.globs[c]
		if len(found.nodes)+len(found.paths) == 0 && !c.Optional {
			o.problem("companion %s is missing: nothing matches", c.Glob.Patterns()[0])
		}
		for _, n := range found.nodes {
			o.companionNode(c, n)
		}
		for _, p := range found.paths {
			o.companionMount(c, p)
		}
		return
	}
	text, err := o.path(c.Path, o.s.subject())
	if err != nil {
		o.problem("path of a companion: %v", err)
		return
	}
	host := text.String()
	n := o.ix.at(host)
	switch {
	case c.Mount:
		if !c.Optional && !o.exists(host) {
			o.problem("companion %s is missing", host)
		}
		o.companionMount(c, host)
	case n != nil:
		o.companionNode(c, n)
	case o.ix.isDir(host):
		o.problem(`companion %s is a directory: as = "mount" gives directories, glob = %q the nodes in it`, host, host+"/*")
	case !c.Optional:
		o.problem("companion %s is missing", host)
	}
}

// companionNode adds a node, which keeps its own path where nothing is said
// even if a link named it. One of the device's own nodes stays what it is.
func (o *offering) companionNode(c *config.Companion, n *device.Node) {
	at, err := o.inContainer(c.ContainerPath, n.Path, o.s.subject())
	if err != nil {
		o.problem("container_path of companion %s: %v", n.Path, err)
		return
	}
	if !o.companionsMayBeDangerous() {
		if why := o.danger(n); why != "" {
			o.problem("companion %s is dangerous: %s; %s", n.Path, why, companionHint)
			return
		}
	}
	if !o.take(at, part{n.Path, n}) {
		return
	}
	// Its whole ID, since keys are unique within one hardware only.
	node := o.offered(n, o.nodeID(n), at, c.Permissions)
	node.Companion = true
	o.offer.Nodes = append(o.offer.Nodes, node)
}

func (o *offering) companionMount(c *config.Companion, host string) {
	at, err := o.inContainer(c.ContainerPath, host, o.s.subject())
	if err != nil {
		o.problem("container_path of companion %s: %v", host, err)
		return
	}
	o.mount(device.Mount{HostPath: host, ContainerPath: at.String(), ReadOnly: c.ReadOnly, Optional: c.Optional})
}
