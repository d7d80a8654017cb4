package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/fakekubelet"
)

func newAllocate(f *flags) *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "allocate RESOURCE[=N]",
		Short: "show what a container that requests N devices of a resource would get",
		Long: `allocate runs the configuration against a fake kubelet like try, requests N
devices (default 1), and prints what the container would get: as text (table), as the
answer to the kubelet (json, yaml), as a CDI spec with these devices (cdi), or
as arguments of podman run (podman).

  eval podman run --rm $(generic-dp allocate -o podman zigbee) alpine ls /dev`,
		Args:              wantArgs(1, 1, "want one RESOURCE or RESOURCE=N"),
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, number, given := strings.Cut(args[0], "=")
			size, err := strconv.Atoi(number)
			if given && (err != nil || size < 1) {
				return usageError{fmt.Errorf("%q is not a number of devices: want RESOURCE=1 or more", number)}
			}
			return f.try(cmd, "", func(ctx context.Context, s *session) error {
				return s.allocate(ctx, name, max(size, 1), *output)
			})
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "run-dir"))
	output = outputFlag(cmd, "table", "json", "yaml", "cdi", "podman")
	return cmd
}

// allocate prints what a container with some devices of a resource gets.
func (s *session) allocate(ctx context.Context, name string, size int, output string) error {
	names := s.agent.Names()
	i := slices.IndexFunc(names, func(n string) bool { return isNamed(n, name) })
	if i < 0 {
		return fmt.Errorf("no resource %q: want %s", name, orList(names))
	}
	name = names[i]
	healthy, listed, _ := s.kubelet.Devices(name)
	if len(healthy) < size {
		hint := "generic-dp explain " + name + " says why"
		if listed > 0 && len(healthy) == listed {
			hint = "count in the configuration is how many slots a device has"
		}
		return fmt.Errorf("%s: allocatable %d of %s, want %d\n  hint: %s", name, len(healthy), count(listed, "slot"), size, hint)
	}
	ids, r, err := s.kubelet.Allocate(ctx, name, healthy, size)
	if err != nil {
		return fmt.Errorf("a container that requests %d is rejected: %w", size, err)
	}
	switch output {
	case "json", "yaml":
		for _, d := range r.GetDevices() {
			d.HostPath = s.served(d.GetHostPath())
		}
		for _, m := range r.GetMounts() {
			m.HostPath = s.served(m.GetHostPath())
		}
		return encode(s.out, output, r)
	case "cdi":
		return s.printSpec(ctx, name, ids)
	case "podman":
		return s.printPodman(r)
	}
	s.printf("%s\n", strings.Join(ids, "\n"))
	s.printResponse(r)
	return nil
}

// served is the path of the session's link or health directory when serve runs.
func (s *session) served(path string) string {
	if own, ok := strings.CutPrefix(path, s.options.Paths.RunDir); ok {
		return s.flags.paths.RunDir + own
	}
	return path
}

// followed is the node that a link of the session leads to.
func (s *session) followed(path string) (node string, isLink bool) {
	if !strings.HasPrefix(path, s.options.Paths.RunDir+"/") {
		return path, false
	}
	node, err := os.Readlink(path)
	return cmp.Or(node, path), err == nil
}

// given is what a container gets by a CDI name, or by the response itself.
type given struct {
	name  string     // CDI name; empty for the response
	edits *cdi.Edits // nil for a foreign spec
}

// parts are the parts of a response.
func (s *session) parts(r *fakekubelet.Response) []given {
	own := &cdi.Edits{}
	for _, d := range r.GetDevices() {
		own.DeviceNodes = append(own.DeviceNodes, &cdi.Node{HostPath: d.GetHostPath(), Path: d.GetContainerPath(), Permissions: d.GetPermissions()})
	}
	for _, m := range r.GetMounts() {
		mount := &cdi.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath()}
		if m.GetReadOnly() {
			mount.Options = []string{"ro"}
		}
		own.Mounts = append(own.Mounts, mount)
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		own.Env = append(own.Env, name+"="+r.GetEnvs()[name])
	}
	all := []given{{"", own}}
	specs := s.options.Paths.SpecWriter()
	for _, c := range r.GetCdiDevices() {
		all = append(all, given{c.GetName(), specs.Edits(c.GetName())})
	}
	return all
}

// printResponse prints what a container gets as text.
func (s *session) printResponse(r *fakekubelet.Response) {
	for _, part := range s.parts(r) {
		indent := "    "
		if part.name != "" {
			s.printf("    CDI device  %s\n", part.name)
			indent += "  "
		}
		line := func(format string, args ...any) { s.printf(indent+format+"\n", args...) }
		if part.edits == nil {
			for _, path := range s.foreignNodes(part.name) {
				line("node        %s", path)
			}
			continue
		}
		for _, n := range part.edits.DeviceNodes {
			host, follows := s.followed(cmp.Or(n.HostPath, n.Path))
			if follows {
				host += " (by a link that follows the device)"
			}
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
			line("node        %s at %s (%s)%s", host, n.Path, n.Permissions, owner)
		}
		for _, n := range part.edits.NetDevices {
			line("interface   %s as %s", n.HostInterfaceName, n.Name)
		}
		for _, m := range part.edits.Mounts {
			mode := "read-write"
			if slices.Contains(m.Options, "ro") {
				mode = "read-only"
			}
			line("mount       %s at %s (%s)", s.served(m.HostPath), m.ContainerPath, mode)
		}
		for _, text := range part.edits.Env {
			line("env         %s", text)
		}
		for _, h := range part.edits.Hooks {
			line("hook        %s %s", h.HookName, h.Path)
		}
		if len(part.edits.AdditionalGIDs) > 0 {
			line("groups      %s", strings.Trim(fmt.Sprint(part.edits.AdditionalGIDs), "[]"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		s.printf("    annotation  %s=%s\n", name, r.GetAnnotations()[name])
	}
}

// foreignNodes returns the nodes of a CDI device in a foreign spec.
func (s *session) foreignNodes(name string) (paths []string) {
	// A spec that can't be read is a warning of the agent.
	for _, d := range s.options.Paths.ForeignSpecs().Read().Devices {
		for _, node := range d.Nodes {
			if d.Name == name {
				paths = append(paths, node.Path)
			}
		}
	}
	return paths
}

// printSpec prints the CDI spec that generic-dp cdi writes, with some of its devices.
func (s *session) printSpec(ctx context.Context, name string, ids []string) error {
	options := s.options
	options.Paths, options.Log = s.flags.below(filepath.Join(s.dir, "alone")), nil
	options.CDIOnly = true
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	if _, err := a.Once(ctx); err != nil {
		return err
	}
	own := options.Paths.SpecWriter()
	text, err := os.ReadFile(filepath.Join(own.Dir, own.FileName(name)))
	if err != nil {
		return fmt.Errorf("%s has no CDI spec: %w", name, err)
	}
	var spec cdi.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	all := spec.Devices
	spec.Devices = nil
	for _, d := range all {
		if slices.ContainsFunc(ids, func(slot string) bool { id, _ := device.SplitSlot(slot); return id == d.Name }) {
			spec.Devices = append(spec.Devices, d)
		}
	}
	return encode(s.out, "json", spec)
}

// printPodman prints a response as arguments of podman run.
func (s *session) printPodman(r *fakekubelet.Response) error {
	var args []string
	for _, part := range s.parts(r) {
		if part.edits == nil {
			args = append(args, "--device", part.name)
			continue
		}
		if len(part.edits.Hooks)+len(part.edits.NetDevices) > 0 {
			return fmt.Errorf("%s has hooks or network interfaces, which only its spec brings: generic-dp cdi --once writes it, for podman run --device %[1]s", part.name)
		}
		for _, n := range part.edits.DeviceNodes {
			host, _ := s.followed(cmp.Or(n.HostPath, n.Path))
			// The response may have it, too.
			if node := host + ":" + n.Path + ":" + n.Permissions; !slices.Contains(args, node) {
				args = append(args, "--device", node)
			}
		}
		for _, m := range part.edits.Mounts {
			if strings.HasPrefix(m.HostPath, s.options.Paths.RunDir+"/") {
				continue // nobody keeps a health directory without serve
			}
			volume := m.HostPath + ":" + m.ContainerPath
			if slices.Contains(m.Options, "ro") {
				volume += ":ro"
			}
			args = append(args, "--volume", volume)
		}
		for _, e := range part.edits.Env {
			args = append(args, "--env", e)
		}
		for _, id := range part.edits.AdditionalGIDs {
			args = append(args, "--group-add", strconv.Itoa(int(id)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		args = append(args, "--annotation", name+"="+r.GetAnnotations()[name])
	}
	for i := 0; i < len(args); i += 2 {
		s.printf("%s=%s\n", args[i], shellQuote(args[i+1]))
	}
	return nil
}

// shellQuote quotes an argument for a shell if necessary.
func shellQuote(s string) string {
	if isPlain(s, "-_./:=,@%+") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
