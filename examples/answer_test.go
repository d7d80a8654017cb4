package examples_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// allocate allocates slots and returns the response, one line per injected item. The
// edits of the example's own CDI names follow each name.
func (n *node) allocate(resource string, ids []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	response, err := n.kubelet.Allocate(ctx, resource, ids...)
	if err != nil {
		return fmt.Sprintf("refused: %v\n", err)
	}
	if len(response.GetContainerResponses()) != 1 {
		n.Fatalf("%s: %d answers for one container", resource, len(response.GetContainerResponses()))
	}
	r := response.GetContainerResponses()[0]
	var text strings.Builder
	for _, d := range r.GetDevices() {
		fmt.Fprintf(&text, "node %s at %s %s\n", n.hostNode(d.GetHostPath()), d.GetContainerPath(), d.GetPermissions())
	}
	for _, m := range r.GetMounts() {
		fmt.Fprintf(&text, "mount %s at %s %s\n", m.GetHostPath(), m.GetContainerPath(), access(m.GetReadOnly()))
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		fmt.Fprintf(&text, "env %s=%s\n", name, r.GetEnvs()[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		fmt.Fprintf(&text, "annotation %s=%s\n", name, r.GetAnnotations()[name])
	}
	for _, c := range r.GetCdiDevices() {
		fmt.Fprintf(&text, "cdi %s\n%s", c.GetName(), n.edits(c.GetName()))
	}
	return text.String()
}

func access(readOnly bool) string {
	if readOnly {
		return "ro"
	}
	return "rw"
}

// hostNode resolves a path of the response to its node, and marks links.
func (n *node) hostNode(path string) string {
	if target, err := os.Readlink(path); err == nil {
		return target + " (followed)"
	}
	return path
}

// edits returns the edits of an own CDI name, nothing for a foreign one.
func (n *node) edits(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	files, err := filepath.Glob(filepath.Join(n.paths.CDIDir, "*.json"))
	must(n, err)
	var text strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(n, err)
		var spec specs.Spec
		if err := json.Unmarshal(data, &spec); err != nil {
			n.Fatalf("%s: %v", file, err)
		}
		for _, d := range spec.Devices {
			if spec.Kind == kind && d.Name == id {
				write(&text, d.ContainerEdits)
			}
		}
	}
	return text.String()
}

func write(text *strings.Builder, e specs.ContainerEdits) {
	for _, d := range e.DeviceNodes {
		fmt.Fprintf(text, "  node %s at %s %s", d.HostPath, d.Path, d.Permissions)
		if d.UID != nil {
			fmt.Fprintf(text, " uid=%d", *d.UID)
		}
		if d.GID != nil {
			fmt.Fprintf(text, " gid=%d", *d.GID)
		}
		if d.FileMode != nil {
			fmt.Fprintf(text, " mode=%04o", *d.FileMode)
		}
		text.WriteString("\n")
	}
	for _, d := range e.NetDevices {
		fmt.Fprintf(text, "  interface %s as %s\n", d.HostInterfaceName, d.Name)
	}
	for _, m := range e.Mounts {
		fmt.Fprintf(text, "  mount %s at %s %s\n", m.HostPath, m.ContainerPath, access(slices.Contains(m.Options, "ro")))
	}
	for _, h := range e.Hooks {
		fmt.Fprintf(text, "  hook %s %s %s\n", h.HookName, h.Path, strings.Join(h.Args, " "))
	}
	if len(e.AdditionalGIDs) > 0 {
		fmt.Fprintf(text, "  gids %v\n", e.AdditionalGIDs)
	}
	for _, v := range e.Env {
		fmt.Fprintf(text, "  env %s\n", v)
	}
}
