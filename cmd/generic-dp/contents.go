package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// fact is something that a container gets, such as a node.
type fact struct {
	kind string
	text string
}

func (f fact) String() string { return f.kind + " " + f.text }

// factsOf describes container edits, one fact for each. shown returns how a path of the host is
// shown.
func factsOf(e *cdi.Edits, shown func(path string) string) []fact {
	var facts []fact
	add := func(kind, format string, args ...any) {
		facts = append(facts, fact{kind, fmt.Sprintf(format, args...)})
	}
	for _, n := range e.DeviceNodes {
		add("node", "%s at %s (%s)%s", shown(hostPath(n)), n.Path, n.Permissions, owner(n))
	}
	for _, n := range e.NetDevices {
		add("interface", "%s as %s", n.HostInterfaceName, n.Name)
	}
	for _, m := range e.Mounts {
		mode := "read-write"
		if isReadOnly(m) {
			mode = "read-only"
		}
		add("mount", "%s at %s (%s)", shown(m.HostPath), m.ContainerPath, mode)
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
