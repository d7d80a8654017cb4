package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/standin"
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
			size = max(size, 1)
			var text strings.Builder // printed when try has ended: it may fail
			err = try(cmd.Context(), f, "", &text, cmd.ErrOrStderr(), func(ctx context.Context, t *trial) error {
				return t.allocate(ctx, f, name, size, *output)
			})
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), text.String())
			}
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "run-dir"))
	output = outputFlag(cmd, "table", "json", "yaml", "cdi", "podman")
	return cmd
}

// allocate prints what a container with some devices of a resource gets.
func (t *trial) allocate(ctx context.Context, f *flags, name string, size int, output string) error {
	names := t.agent.Names()
	i := slices.IndexFunc(names, func(n string) bool { return isNamed(n, name) })
	if i < 0 {
		return fmt.Errorf("no resource %q: want %s", name, orList(names))
	}
	name = names[i]
	healthy, listed, _ := t.kubelet.Devices(name)
	if len(healthy) < size {
		hint := "generic-dp explain " + name + " says why"
		if listed > 0 && len(healthy) == listed {
			hint = "count in the configuration is how many slots a device has"
		}
		return fmt.Errorf("%s: allocatable %d of %s, want %d\n  hint: %s", name, len(healthy), count(listed, "slot"), size, hint)
	}
	ids, r, err := t.kubelet.Allocate(ctx, name, healthy, size)
	if err != nil {
		return fmt.Errorf("a container that requests %d is rejected: %w", size, err)
	}
	switch output {
	case "json", "yaml":
		for _, d := range r.GetDevices() {
			d.HostPath = t.served(d.GetHostPath())
		}
		for _, m := range r.GetMounts() {
			m.HostPath = t.served(m.GetHostPath())
		}
		return encode(t.out, output, r)
	case "cdi":
		return t.spec(ctx, f, name, ids)
	case "podman":
		return t.podman(r)
	}
	t.printf("%s\n", strings.Join(ids, "\n"))
	t.response(r)
	return nil
}

// given is what a container gets by a CDI name, or by the response itself.
type given struct {
	name  string // CDI name, or empty
	ours  bool   // of a spec of this program, or the response
	edits cdi.Edits
}

// parts are the parts of a response. follows is added to a node that a link leads to.
func (t *trial) parts(r *standin.Response, follows string) []given {
	own := cdi.Edits{}
	for _, d := range r.GetDevices() {
		host := d.GetHostPath()
		if target, err := os.Readlink(host); err == nil {
			host = target + follows
		}
		own.DeviceNodes = append(own.DeviceNodes, &cdi.Node{HostPath: host, Path: d.GetContainerPath(), Permissions: d.GetPermissions()})
	}
	for _, m := range r.GetMounts() {
		own.Mounts = append(own.Mounts, &cdi.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Options: map[bool][]string{true: {"ro"}}[m.GetReadOnly()]})
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		own.Env = append(own.Env, name+"="+r.GetEnvs()[name])
	}
	all := []given{{"", true, own}}
	for _, c := range r.GetCdiDevices() {
		part := given{name: c.GetName()}
		if edits := t.own.Edits(part.name); edits != nil {
			part.edits, part.ours = *edits, true
		}
		all = append(all, part)
	}
	return all
}

// served is a path of a response where serve has links and health directories.
func (t *trial) served(path string) string {
	if own, ok := strings.CutPrefix(path, t.paths.RunDir); ok {
		return t.runDir + own
	}
	return path
}

// spec prints the CDI spec that the command cdi writes, with some devices only.
func (t *trial) spec(ctx context.Context, f *flags, name string, ids []string) error {
	options := tryOptions(f, filepath.Join(filepath.Dir(t.paths.RunDir), "alone"), io.Discard)
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
	return encode(t.out, "json", spec)
}

// podman prints a response as arguments of podman run.
func (t *trial) podman(r *standin.Response) error {
	var args []string
	for _, part := range t.parts(r, "") {
		edits := part.edits
		if !part.ours {
			args = append(args, "--device", part.name)
		}
		if len(edits.Hooks)+len(edits.NetDevices) > 0 {
			return fmt.Errorf("%s has hooks or network interfaces, which only its spec brings: generic-dp cdi --once writes it, for podman run --device %[1]s", part.name)
		}
		for _, n := range edits.DeviceNodes {
			// The response may have it, too.
			if node := cmp.Or(n.HostPath, n.Path) + ":" + n.Path + ":" + n.Permissions; !slices.Contains(args, node) {
				args = append(args, "--device", node)
			}
		}
		for _, m := range edits.Mounts {
			if strings.HasPrefix(m.HostPath, t.paths.RunDir+"/") {
				continue // nobody keeps a health directory without serve
			}
			args = append(args, "--volume", m.HostPath+":"+m.ContainerPath+map[bool]string{true: ":ro"}[slices.Contains(m.Options, "ro")])
		}
		for _, e := range edits.Env {
			args = append(args, "--env", e)
		}
		for _, id := range edits.AdditionalGIDs {
			args = append(args, "--group-add", strconv.Itoa(int(id)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		args = append(args, "--annotation", name+"="+r.GetAnnotations()[name])
	}
	for i := 0; i < len(args); i += 2 {
		t.printf("%s=%s\n", args[i], shellQuote(args[i+1]))
	}
	return nil
}

// shellQuote quotes an argument for a shell where it has to be.
func shellQuote(s string) string {
	if isPlain(s, "-_./:=,@%+") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
