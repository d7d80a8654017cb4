package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// parseRequest parses RESOURCE or RESOURCE=N. size is at least 1. The name is not checked,
// because only a session knows the resources.
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

// allocate prints what a container with some devices of a resource gets. name may lack its
// domain, and size is the number of slots. output is a format of -o. It fails if fewer slots are
// healthy, or if the plugin rejects the request.
func (s *session) allocate(ctx context.Context, name string, size int, output string) error {
	name, err := s.fullName(name)
	if err != nil {
		return err
	}
	healthy, listed := s.agent.Allocatable(name)
	// The scheduler would not place such a pod on the node, so Allocate is never called for it.
	if len(healthy) < size {
		return s.tooFew(name, len(healthy), listed, size)
	}
	ids, response, err := s.agent.Allocate(ctx, name, size)
	if err != nil {
		return fmt.Errorf("a container that requests %d is rejected: %w", size, err)
	}
	switch output {
	case "json":
		return cli.Encode(s.out, plugin.ContainerResponse(s.asServed(response)))
	case "podman":
		return s.printPodman(response)
	}
	// The default is the text: the slots first, since the kubelet chose them, not the user.
	s.printf("%s\n", strings.Join(ids, "\n"))
	s.printResponse(response)
	return nil
}

// fullName returns the resource that a name means, with or without its domain. It is an error if
// several domains have the name. The names are the names that are served, so that variables in
// them have their values.
func (s *session) fullName(name string) (string, error) {
	names := s.agent.Names()
	var meant []string
	for _, n := range names {
		if status.IsNamed(n, name) && !slices.Contains(meant, n) {
			meant = append(meant, n)
		}
	}
	switch {
	case slices.Contains(meant, name):
		return name, nil
	case len(meant) == 0:
		return "", fmt.Errorf("no resource %q: want %s", name, cli.OrList(names))
	case len(meant) > 1:
		return "", fmt.Errorf("%q is ambiguous: want %s", name, cli.OrList(meant))
	}
	return meant[0], nil
}

// tooFew returns the error for a request of more slots than are healthy. listed is the number of
// all slots. The hint depends on the cause: devices may be missing or Unhealthy, or the resource
// may need more slots per device.
func (s *session) tooFew(name string, healthy, listed, size int) error {
	hint := "generic-dp explain " + cli.ShellQuote(name) + " says why"
	allHealthy := listed > 0 && healthy == listed
	if allHealthy {
		hint = "count in the configuration sets how many slots a device has"
	}
	return fmt.Errorf("%s: allocatable %d of %s, want %d\n  hint: %s", name, healthy, cli.Count(listed, "slot"), size, hint)
}

// asServed returns the response of the session with the paths that serve would return. It changes
// r itself. CDI names stay, because they contain no path.
func (s *session) asServed(r device.Response) device.Response {
	for i := range r.Nodes {
		r.Nodes[i].HostPath = s.served(r.Nodes[i].HostPath)
	}
	for i := range r.Mounts {
		r.Mounts[i].HostPath = s.served(r.Mounts[i].HostPath)
	}
	return r
}

// served returns the path that a link or a health directory of the session has when serve runs.
// It returns other paths unchanged. The path of a session is temporary, so it would be useless in
// the output.
func (s *session) served(path string) string {
	below, isOwn := strings.CutPrefix(path, s.options.Paths.RunDir)
	if isOwn {
		return s.flags.paths.RunDir + below
	}
	return path
}
