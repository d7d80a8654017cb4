package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// part is a part of what a container gets: by a CDI name, or directly by the response to
// Allocate. The kubelet and the container runtime merge all parts.
type part struct {
	// name is the CDI name. It is empty for the response itself.
	name string
	// edits is nil for a CDI device of another program's spec. Only its nodes are known then.
	edits *cdi.Edits
}

// parts returns the parts of a response: the response itself, then its CDI devices in order.
func (s *session) parts(r device.Response) []part {
	all := []part{{edits: ownEdits(r)}}
	specs := s.options.Paths.SpecWriter()
	for _, name := range r.CDI {
		all = append(all, part{
			name:  name,
			edits: specs.Edits(name),
		})
	}
	return all
}

// ownEdits returns the nodes, mounts and variables of the response itself as container edits, so
// that they are printed like the edits of a CDI device. The result is never nil. Annotations are
// left out, because container edits have none.
func ownEdits(r device.Response) *cdi.Edits {
	own := cdi.EditsOf(device.Offer{Mounts: r.Mounts})
	for _, n := range r.Nodes {
		own.DeviceNodes = append(own.DeviceNodes, &cdi.Node{
			HostPath:    n.HostPath,
			Path:        n.ContainerPath,
			Permissions: n.Permissions,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		own.Env = append(own.Env, name+"="+r.Env[name])
	}
	return &own
}

// printResponse prints what a container gets as text. The edits of a CDI device are indented
// below its name.
func (s *session) printResponse(r device.Response) {
	for _, p := range s.parts(r) {
		indent := "    "
		if p.name != "" {
			s.printf("    CDI device  %s\n", p.name)
			indent += "  "
		}
		for _, line := range s.lines(p) {
			s.printf("%s%s\n", indent, line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		s.printf("    annotation  %s=%s\n", name, r.Annotations[name])
	}
}

// lines describes each edit of a part in one line: its kind in a column of its own, then its
// values. Paths of the session are replaced by paths that exist while serve runs.
func (s *session) lines(p part) []string {
	var facts []fact
	if p.edits == nil {
		for _, path := range s.foreignNodes(p.name) {
			facts = append(facts, fact{"node", path})
		}
	} else {
		facts = factsOf(p.edits, s.shown)
	}
	var lines []string
	for _, f := range facts {
		lines = append(lines, fmt.Sprintf("%-11s %s", f.kind, f.text))
	}
	return lines
}

// shown returns how a path of the host is shown. The kubelet keeps the path of the link for the life
// of the pod, so that a container can restart after its device has got another name.
func (s *session) shown(path string) string {
	if node, isFollowed := s.followed(path); isFollowed {
		return node + " (by a link that follows the device)"
	}
	return s.served(path)
}

// followed returns the node that a link of the session points to. isLink reports whether the path
// is such a link; if not, node is the path itself. The link of a device that has just disappeared
// may be missing.
func (s *session) followed(path string) (node string, isLink bool) {
	if !s.isOwn(path) {
		return path, false
	}
	node, err := os.Readlink(path)
	if err != nil {
		return path, false
	}
	return node, true
}

// isOwn reports whether a path is below the run directory of the session. Such a path only exists
// until the command ends.
func (s *session) isOwn(path string) bool {
	return strings.HasPrefix(path, s.options.Paths.RunDir+"/")
}

// foreignNodes returns the nodes of a CDI device in a spec of another program, by their paths in
// the container. It is empty if no spec has the device, or if its edits have no nodes. The agent
// has already warned of specs that cannot be read.
func (s *session) foreignNodes(name string) []string {
	var paths []string
	for _, d := range s.options.Paths.ForeignSpecs().Read().Devices {
		if d.Name != name {
			continue
		}
		for _, node := range d.Nodes {
			paths = append(paths, node.Path)
		}
	}
	return paths
}

// argument is a flag of podman run with its value.
type argument struct {
	flag  string
	value string
}

// printPodman prints a response as arguments of podman run, one in each line. They are quoted for
// eval. It prints nothing if a part of the response cannot be expressed, because the container
// would lack it.
func (s *session) printPodman(r device.Response) error {
	var all []argument
	for _, p := range s.parts(r) {
		more, err := s.podmanArguments(p)
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		annotation := name + "=" + r.Annotations[name]
		all = append(all, argument{"--annotation", annotation})
	}
	var printed []argument
	for _, a := range all {
		// With container.cdi = "auto", the response and the CDI device have the same node.
		if a.flag == "--device" && slices.Contains(printed, a) {
			continue
		}
		printed = append(printed, a)
		s.printf("%s=%s\n", a.flag, cli.ShellQuote(a.value))
	}
	return nil
}

// podmanArguments returns the arguments of podman run for a part. The error names what podman run
// has no argument for, and the command that makes a complete CDI spec.
func (s *session) podmanArguments(p part) ([]argument, error) {
	// podman resolves the names of specs of other programs itself: they exist after this command.
	if p.edits == nil {
		return []argument{{"--device", p.name}}, nil
	}
	if missing := s.beyondPodman(p.edits); missing != "" {
		return nil, fmt.Errorf("podman run has no argument for %s\n"+
			"  hint: generic-dp serve --no-kubelet --once writes CDI specs and prints their names, for podman run --device NAME", missing)
	}
	var args []argument
	for _, n := range p.edits.DeviceNodes {
		// The link only exists during the session, so the arguments name the node itself.
		host, _ := s.followed(hostPath(n))
		node := host + ":" + n.Path + ":" + n.Permissions
		args = append(args, argument{"--device", node})
	}
	for _, m := range p.edits.Mounts {
		// Paths in --volume end at a colon, which names in by-path contain.
		mount := "type=bind,source=" + csvQuote(m.HostPath) + ",destination=" + csvQuote(m.ContainerPath)
		if isReadOnly(m) {
			mount += ",readonly"
		}
		args = append(args, argument{"--mount", mount})
	}
	for _, text := range p.edits.Env {
		args = append(args, argument{"--env", text})
	}
	return args, nil
}

// beyondPodman names the first edit that podman run has no argument for. It is empty if there is
// none.
func (s *session) beyondPodman(edits *cdi.Edits) string {
	if len(edits.Hooks) > 0 {
		return "hooks"
	}
	if len(edits.NetDevices) > 0 {
		return "network interfaces"
	}
	for _, n := range edits.DeviceNodes {
		if owner(n) != "" {
			return "the owner of a node (container.owner)"
		}
		host, _ := s.followed(hostPath(n))
		if strings.Contains(host+n.Path, ":") {
			return fmt.Sprintf("a path with a colon: %s at %s", host, n.Path)
		}
	}
	for _, m := range edits.Mounts {
		// Only serve keeps the directory current. It is missing in a session.
		if s.isOwn(m.HostPath) {
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
