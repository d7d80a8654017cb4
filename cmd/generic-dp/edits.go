package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
)

// printCDI prints what a CDI name injects into a container: everything for the specs of
// this program in dir, the nodes for foreign ones.
func printCDI(out io.Writer, name, dir string, foreign *cdi.HostSpecs) {
	fmt.Fprintf(out, "    CDI device  %s\n", name)
	if edits := ownEdits(name, dir); edits != nil {
		printEdits(out, edits)
		return
	}
	devices, _ := foreign.Devices()
	if i := slices.IndexFunc(devices, func(d device.CDIDevice) bool { return d.Name == name }); i >= 0 {
		for _, node := range devices[i].Nodes {
			fmt.Fprintf(out, "      node        %s\n", node.Path)
		}
	}
}

// ownEdits reads the container edits of a device from a spec in dir; nil if there are
// none.
func ownEdits(name, dir string) *cdi.Edits {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is valid
	for _, file := range files {
		var spec cdi.Spec
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &spec) != nil {
			continue
		}
		for _, d := range spec.Devices {
			if spec.Kind+"="+d.Name == name {
				return &d.ContainerEdits
			}
		}
	}
	return nil
}

func printEdits(out io.Writer, e *cdi.Edits) {
	line := func(kind, format string, args ...any) {
		fmt.Fprintf(out, "      %-11s %s\n", kind, fmt.Sprintf(format, args...))
	}
	for _, n := range e.DeviceNodes {
		owner := ""
		if n.UID != nil {
			owner += fmt.Sprintf(", uid %d", *n.UID)
		}
		if n.GID != nil {
			owner += fmt.Sprintf(", gid %d", *n.GID)
		}
		if n.FileMode != nil {
			owner += fmt.Sprintf(", mode %04o", *n.FileMode&0o7777)
		}
		line("node", "%s at %s (%s)%s", cmp.Or(n.HostPath, n.Path), n.Path, n.Permissions, owner)
	}
	for _, n := range e.NetDevices {
		line("interface", "%s as %s", n.HostInterfaceName, n.Name)
	}
	for _, m := range e.Mounts {
		line("mount", "%s at %s", m.HostPath, m.ContainerPath)
	}
	for _, text := range e.Env {
		line("env", "%s", text)
	}
	for _, h := range e.Hooks {
		line("hook", "%s %s", h.HookName, h.Path)
	}
	if len(e.AdditionalGIDs) > 0 {
		line("groups", "%s", strings.Trim(fmt.Sprint(e.AdditionalGIDs), "[]"))
	}
}
