package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// fact is something that a container gets, such as a node.
type fact struct {
	kind string
	text string
}

func (f fact) String() string { return f.kind + " " + f.text }

// factsOf describes container edits, one fact for each. nodes are the targets of links to nodes, by the
// paths of the links: the kubelet keeps the path of a link for the life of the pod, so that a container
// can restart after its device has got another name.
func factsOf(e *cdi.Edits, nodes map[string]string) []fact {
	var facts []fact
	add := func(kind, format string, args ...any) {
		facts = append(facts, fact{kind, fmt.Sprintf(format, args...)})
	}
	for _, n := range e.DeviceNodes {
		host := hostPath(n)
		if node := nodes[host]; node != "" {
			host = node + " (by a link that follows the device)"
		}
		add("node", "%s at %s (%s)%s", host, n.Path, n.Permissions, owner(n))
	}
	for _, n := range e.NetDevices {
		add("interface", "%s as %s", n.HostInterfaceName, n.Name)
	}
	for _, m := range e.Mounts {
		mode := "read-write"
		if isReadOnly(m) {
			mode = "read-only"
		}
		add("mount", "%s at %s (%s)", m.HostPath, m.ContainerPath, mode)
	}
	for _, text := range e.Env {
		add("env", "%s", text)
	}
	for _, h := range e.Hooks {
		add("hook", "%s", strings.Join(append([]string{h.HookName, h.Path}, h.Args...), " "))
	}
	return facts
}

// editsOf returns what a container gets from an offered device as container edits, however it is
// injected. Variables that depend on the whole container stay as they are.
func editsOf(o *device.Offer) *cdi.Edits {
	e := cdi.EditsOf(*o)
	for _, v := range o.Env {
		e.Env = append(e.Env, fmt.Sprintf("%s=%s", v.Key, v.Value))
	}
	return &e
}

// isReadOnly reports whether a mount cannot be written in the container.
func isReadOnly(m *cdi.Mount) bool {
	return slices.Contains(m.Options, "ro")
}

// hostPath returns the path of a node on the host. A CDI spec omits it if the path in the
// container is the same (hostPath in SPEC.md of CDI).
func hostPath(n *cdi.Node) string {
	return cmp.Or(n.HostPath, n.Path)
}

// owner describes the owner and mode that a CDI spec sets for a node. It is empty if the spec
// sets neither: the runtime then uses the owner and mode of the node on the host.
func owner(n *cdi.Node) string {
	text := ""
	if n.UID != nil {
		text += fmt.Sprintf(", uid %d", *n.UID)
	}
	if n.GID != nil {
		text += fmt.Sprintf(", gid %d", *n.GID)
	}
	if n.FileMode != nil {
		// The bits above are the type of the file (inode(7)).
		const permissionBits = 0o7777
		text += fmt.Sprintf(", mode %04o", *n.FileMode&permissionBits)
	}
	return text
}

// details returns how the contents of a device differ between two configurations: a line for each
// loss, with a minus, and for each addition, with a plus. Losses come first. A changed value is a
// loss and an addition. The result is empty if there is no difference, and never nil.
func details(old, next *device.Offer) []string {
	before := contents(old)
	after := contents(next)
	lines := []string{}
	for _, fact := range before {
		if !slices.Contains(after, fact) {
			lines = append(lines, "- "+fact.String())
		}
	}
	for _, fact := range after {
		if !slices.Contains(before, fact) {
			lines = append(lines, "+ "+fact.String())
		}
	}
	return lines
}

// contents describes everything that a container gets from a device. Each fact must contain everything
// that matters about it. A setting without effect is none.
func contents(o *device.Offer) []fact {
	facts := factsOf(editsOf(o), nil)
	add := func(kind, text string) {
		if text != "" {
			facts = append(facts, fact{kind, text})
		}
	}
	for _, name := range o.CDIDevices {
		add("CDI device", name)
	}
	for _, e := range o.Annotations {
		add("annotation", fmt.Sprintf("%s=%s", e.Key, e.Value))
	}
	add("numa", cli.JoinInts(o.NUMA))
	if o.CDI {
		add("cdi", "= true")
	}
	if o.AlsoCDI {
		add("cdi", `= "auto"`)
	}
	add("health_dir", o.HealthDir)
	if o.Shared {
		add("shared", "= true")
	}
	if o.Exclusive {
		add("shared", `= "exclusive"`)
	}
	// A device may become unusable by an edit that changes nothing else, such as the removal of
	// dangerous = true.
	add("cannot be used:", o.Problem)
	return facts
}
