package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// ownEdits returns the nodes, mounts and variables of a response itself as container edits, so
// that they are printed like the edits of a CDI device. Annotations are left out, because container
// edits have none.
func ownEdits(r device.Response) *cdi.Edits {
	own := cdi.EditsOf(device.Offer{Mounts: r.Mounts})
	for _, n := range r.Nodes {
		own.DeviceNodes = append(own.DeviceNodes, &cdi.Node{
			HostPath:    n.HostPath,
			Path:        n.ContainerPath,
			Permissions: n.Permissions,
		})
	}
	own.Env = pairs(r.Env)
	return &own
}

// pairs returns the entries of a map as NAME=VALUE, sorted by name.
func pairs(values map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, name+"="+values[name])
	}
	return all
}

// container prints what a container gets as text. The edits of a CDI device are indented below its
// name.
func (p printer) container(c agent.Container) {
	p.facts("    ", factsOf(ownEdits(c.Response), c.Nodes))
	for _, name := range c.Response.CDI {
		p.printf("    CDI device  %s\n", name)
		facts := p.foreignNodes(name)
		if own := c.Edits[name]; own != nil {
			facts = factsOf(own, c.Nodes)
		}
		p.facts("      ", facts)
	}
	for _, annotation := range pairs(c.Response.Annotations) {
		p.printf("    annotation  %s\n", annotation)
	}
}

// facts prints each fact in one line: its kind in a column of its own, then its text.
func (p printer) facts(indent string, facts []fact) {
	for _, f := range facts {
		p.printf("%s%-11s %s\n", indent, f.kind, f.text)
	}
}

// foreignNodes returns the nodes of a CDI device in a spec of another program, by their paths in
// the container. It is empty if no spec has the device, or if its edits have no nodes.
func (p printer) foreignNodes(name string) []fact {
	var nodes []fact
	for _, d := range p.flags.paths.ForeignSpecs().Read().Devices {
		if d.Name != name {
			continue
		}
		for _, node := range d.Nodes {
			nodes = append(nodes, fact{"node", node.Path})
		}
	}
	return nodes
}

// podman prints what a container gets as arguments of podman run, one in each line. They are quoted
// for eval. It prints nothing if a part cannot be expressed, because the container would lack it.
func (p printer) podman(c agent.Container) error {
	all, err := p.podmanArguments(ownEdits(c.Response), c.Nodes)
	if err != nil {
		return err
	}
	for _, name := range c.Response.CDI {
		own := c.Edits[name]
		if own == nil {
			// podman resolves the names of specs of other programs itself: they exist after this command.
			all = append(all, argument{"--device", name})
			continue
		}
		more, err := p.podmanArguments(own, c.Nodes)
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	for _, annotation := range pairs(c.Response.Annotations) {
		all = append(all, argument{"--annotation", annotation})
	}
	var printed []argument
	for _, a := range all {
		// With container.cdi = "auto", the response and the CDI device have the same node.
		if a.flag == "--device" && slices.Contains(printed, a) {
			continue
		}
		printed = append(printed, a)
		p.printf("%s=%s\n", a.flag, cli.ShellQuote(a.value))
	}
	return nil
}

// argument is a flag of podman run with its value.
type argument struct {
	flag  string
	value string
}

// podmanArguments returns edits as arguments of podman run. The error names what podman run has no
// argument for, and the command that makes a complete CDI spec. nodes are the targets of links.
func (p printer) podmanArguments(e *cdi.Edits, nodes map[string]string) ([]argument, error) {
	if missing := p.beyondPodman(e, nodes); missing != "" {
		return nil, fmt.Errorf("podman run has no argument for %s\n"+
			"  hint: generic-dp serve --no-kubelet --once writes CDI specs and prints their names, for podman run --device NAME", missing)
	}
	var args []argument
	for _, n := range e.DeviceNodes {
		node := hostNode(n, nodes) + ":" + n.Path + ":" + n.Permissions
		args = append(args, argument{"--device", node})
	}
	for _, m := range e.Mounts {
		// Paths in --volume end at a colon, which names in by-path contain.
		mount := "type=bind,source=" + csvQuote(m.HostPath) + ",destination=" + csvQuote(m.ContainerPath)
		if isReadOnly(m) {
			mount += ",readonly"
		}
		args = append(args, argument{"--mount", mount})
	}
	for _, text := range e.Env {
		args = append(args, argument{"--env", text})
	}
	return args, nil
}

// hostNode returns the path of a node on the host. Links do not exist without serve, so it returns
// their targets.
func hostNode(n *cdi.Node, nodes map[string]string) string {
	path := hostPath(n)
	return cmp.Or(nodes[path], path)
}

// beyondPodman names the first edit that podman run has no argument for. It is empty if there is
// none.
func (p printer) beyondPodman(e *cdi.Edits, nodes map[string]string) string {
	if len(e.Hooks) > 0 {
		return "hooks"
	}
	if len(e.NetDevices) > 0 {
		return "network interfaces"
	}
	for _, n := range e.DeviceNodes {
		if owner(n) != "" {
			return "the owner of a node (container.owner)"
		}
		host := hostNode(n, nodes)
		if strings.Contains(host+n.Path, ":") {
			return fmt.Sprintf("a path with a colon: %s at %s", host, n.Path)
		}
	}
	for _, m := range e.Mounts {
		isOwn := strings.HasPrefix(m.HostPath, p.flags.paths.RunDir+"/")
		if isOwn {
			return "the health directory " + m.ContainerPath + ", which only serve keeps current"
		}
	}
	return ""
}

// csvQuote quotes a value of --mount, which podman reads as CSV, if necessary.
func csvQuote(s string) string {
	if !strings.ContainsAny(s, ",\"") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
