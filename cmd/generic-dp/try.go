package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/matchers"
)

// newTry returns the command try.
func newTry(f *flags) *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "try [RESOURCE[=N]]",
		Short: "show what containers would get from serve",
		Long: `try prints the devices that a container would get from serve if it requested one
of each resource, or N of RESOURCE (default 1), and what comes with them: as text
(table), as the answer to the kubelet (json), or as arguments of podman run
(podman). It needs no privileges except for reading /sys and /dev, and writes
nothing.

  eval podman run --rm $(generic-dp try -o podman zigbee) alpine ls /dev`,
		Args:              cli.WantArgs(0, 1, "want at most one RESOURCE or RESOURCE=N"),
		ValidArgsFunction: complete(f.resourceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			size := 1
			if len(args) > 0 {
				var err error
				name, size, err = parseRequest(args[0])
				if err != nil {
					return err
				}
			} else if *output != "table" {
				return cli.Usagef("-o %s: want a RESOURCE", *output)
			}
			_, view, err := f.scanConfig(cmd, false)
			if err != nil {
				return err
			}
			view.Probe(cmd.Context(), f.paths)
			p := printer{flags: f, out: cmd.OutOrStdout()}
			if len(args) > 0 {
				m, err := named(view.Matched.Resources, name)
				if err != nil {
					return err
				}
				return p.allocate(m, size, *output)
			}
			err = warn(cmd.ErrOrStderr(), view)
			for i := range view.Matched.Resources {
				// A rejected request is part of the output.
				if err := p.allocate(&view.Matched.Resources[i], size, *output); err != nil {
					p.printf("%v\n", err)
				}
			}
			return err
		},
	}
	f.add(cmd, configFlags, hostFlags, []string{"run-dir"})
	output = cli.OutputFlag(cmd, "table", "json", "podman")
	return cmd
}

// parseRequest parses RESOURCE or RESOURCE=N. size is at least 1. The name is not checked.
func parseRequest(text string) (name string, size int, err error) {
	if cli.IsTOML(text) {
		return "", 0, cli.UseConfig(text)
	}
	name, number, hasNumber := strings.Cut(text, "=")
	if !hasNumber {
		return name, 1, nil
	}
	size, err = strconv.Atoi(number)
	if err != nil || size < 1 {
		return "", 0, cli.Usagef("%q is not a number of devices: want RESOURCE=1 or more", number)
	}
	return name, size, nil
}

// printer prints resources and what containers get.
type printer struct {
	flags *flags
	out   io.Writer
}

func (p printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// allocate prints what a container with some slots of a resource gets. It fails if fewer slots are healthy,
// or if serve would reject the request.
func (p printer) allocate(m *matchers.Offered, size int, output string) error {
	healthy, all := countSlots(m)
	// The scheduler would not place such a pod on the node, so Allocate is never called for it.
	if healthy < size {
		return tooFew(m.Name, healthy, all, size)
	}
	c, err := p.flags.paths.Allocate(m, size)
	if err != nil {
		return fmt.Errorf("%s: a container that requests %d is rejected: %w", m.Name, size, err)
	}
	switch output {
	case "json":
		return cli.Encode(p.out, plugin.ContainerResponse(c.Response))
	case "podman":
		return p.podman(c)
	}
	// The default is the text: the slots first, since the kubelet chooses them, not the user.
	p.printf("%s: %s\n", m.Name, strings.Join(c.Slots, ", "))
	p.container(c)
	return nil
}

// named returns the resource that a name means, with or without its domain. It is an error if
// several domains have the name.
func named(all []matchers.Offered, name string) (*matchers.Offered, error) {
	var known []string
	var meant []string
	var found *matchers.Offered
	for i := range all {
		m := &all[i]
		known = append(known, m.Name)
		if m.Name == name {
			return m, nil
		}
		if status.IsNamed(m.Name, name) && !slices.Contains(meant, m.Name) {
			meant = append(meant, m.Name)
			found = m
		}
	}
	if len(meant) == 0 {
		return nil, fmt.Errorf("no resource %q: want %s", name, cli.OrList(known))
	}
	if len(meant) > 1 {
		return nil, fmt.Errorf("%q is ambiguous: want %s", name, cli.OrList(meant))
	}
	return found, nil
}

// countSlots counts the healthy slots of a resource, and all of its slots.
func countSlots(m *matchers.Offered) (healthy, all int) {
	for _, o := range m.Offers {
		all += o.Slots
		if o.Problem == "" {
			healthy += o.Slots
		}
	}
	return healthy, all
}

// tooFew returns the error for a request of more slots than are healthy. The hint depends on the
// cause: devices may be missing or Unhealthy, or the resource may need more slots per device.
func tooFew(name string, healthy, all, size int) error {
	hint := "generic-dp explain " + cli.ShellQuote(name) + ", with the same flags, says why"
	allHealthy := all > 0 && healthy == all
	if allHealthy {
		hint = "count in the configuration sets how many slots a device has"
	}
	return fmt.Errorf("%s: allocatable %d of %s, want %d\n  hint: %s", name, healthy, cli.Count(all, "slot"), size, hint)
}
