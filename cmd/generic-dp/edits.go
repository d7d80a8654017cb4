package main

import (
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

// edits are what a CDI spec adds to a container (CDI specification,
// "containerEdits"), as far as this program writes them.
type edits struct {
	DeviceNodes []struct {
		Path, HostPath, Permissions string
		UID, GID                    *uint32
		FileMode                    *uint32
	}
	NetDevices     []struct{ HostInterfaceName, Name string }
	Mounts         []struct{ HostPath, ContainerPath string }
	Hooks          []struct{ HookName, Path string }
	Env            []string
	AdditionalGIDs []uint32
}

// printCDI prints what a container gets by a CDI name: of this program's own specs
// below dir all, of others' the nodes, which is what is known of them.
func printCDI(out io.Writer, name, dir string, others *cdi.HostSpecs) {
	fmt.Fprintf(out, "    CDI device  %s\n", name)
	if e := ownEdits(name, dir); e != nil {
		e.print(out)
		return
	}
	devices, _ := others.Devices()
	if i := slices.IndexFunc(devices, func(d device.CDIDevice) bool { return d.Name == name }); i >= 0 {
		for _, node := range devices[i].Nodes {
			fmt.Fprintf(out, "      node        %s\n", node.Path)
		}
	}
}

// ownEdits reads what this program has written of a device; nil is nothing.
func ownEdits(name, dir string) *edits {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is in order
	for _, file := range files {
		var spec struct {
			Kind    string
			Devices []struct {
				Name           string
				ContainerEdits edits
			}
		}
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

func (e *edits) print(out io.Writer) {
	for _, n := range e.DeviceNodes {
		if n.HostPath == "" {
			n.HostPath = n.Path
		}
		fmt.Fprintf(out, "      node        %s at %s (%s)%s\n", n.HostPath, n.Path, n.Permissions, owner(n.UID, n.GID, n.FileMode))
	}
	for _, n := range e.NetDevices {
		fmt.Fprintf(out, "      interface   %s as %s\n", n.HostInterfaceName, n.Name)
	}
	for _, m := range e.Mounts {
		fmt.Fprintf(out, "      mount       %s at %s\n", m.HostPath, m.ContainerPath)
	}
	for _, text := range e.Env {
		fmt.Fprintf(out, "      env         %s\n", text)
	}
	for _, h := range e.Hooks {
		fmt.Fprintf(out, "      hook        %s %s\n", h.HookName, h.Path)
	}
	if len(e.AdditionalGIDs) > 0 {
		fmt.Fprintf(out, "      groups      %s\n", strings.Trim(fmt.Sprint(e.AdditionalGIDs), "[]"))
	}
}

// owner says who a node belongs to, where that is said.
func owner(uid, gid, mode *uint32) string {
	var said []string
	if uid != nil {
		said = append(said, fmt.Sprint("uid ", *uid))
	}
	if gid != nil {
		said = append(said, fmt.Sprint("gid ", *gid))
	}
	if mode != nil {
		said = append(said, fmt.Sprintf("mode %04o", *mode&0o7777))
	}
	if len(said) == 0 {
		return ""
	}
	return ", " + strings.Join(said, ", ")
}
