package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newInit returns the command init. It does not read --config, because its output is the first
// configuration. It prints nothing if it fails, so that a redirection leaves an empty file.
func newInit(f *flags) *cobra.Command {
	// The default is a valid placeholder, so that the output works unchanged.
	domain := "example.com"
	cmd := &cobra.Command{
		Use:   "init [DEVICE]",
		Short: "write a configuration for the devices of this host, or for one of them",
		Long: `init prints a commented configuration for the devices of this host that pods may
want: adapters, cameras, GPUs, accelerators, virtual functions, ... Each
resource selects its devices by their hardware. A USB device that only has a raw
bus node is left out while a kernel driver uses it.

With DEVICE it prints a resource for that device only. DEVICE is a path below
/dev, a device ID, a PCI address, a USB port such as 1-1.4, or a network
interface.

  generic-dp init > /etc/generic-dp/config.toml
  generic-dp init /dev/ttyUSB0`,
		Args:              cli.WantArgs(0, 1, "want no argument or one DEVICE"),
		ValidArgsFunction: complete(f.hardwareNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			// An empty configuration is sufficient: refusal matches the resources with the same
			// scan.
			view, err := f.scan(cmd.Context(), &config.Config{})
			if err != nil {
				return err
			}
			all := f.catalog(cmd.ErrOrStderr(), view)
			var text string
			if len(args) == 0 {
				text, err = f.starterOfHost(view, all, domain)
			} else {
				text, err = f.starterOfDevice(view, all, domain, args[0])
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	// --allow and --domains decide which resources are comments in the output.
	f.add(cmd, hostFlags, []string{"allow", "domains", "hwdata"})
	cmd.Flags().StringVar(&domain, "domain", domain, "domain of resource names: use a domain of your own")
	return cmd
}

// starterHead is the comment at the start of a configuration with several resources. For a single
// device, it would be longer than the rest.
const starterHead = `# Devices of this host for pods, written by generic-dp init.
#
# Remove the devices that are not for pods, and give names that say what a device is for.
# The first resource that selects a device gets it.
#   generic-dp check FILE          reports mistakes
#   generic-dp try --config FILE   shows what a container would get

# Pods request DOMAIN/NAME: use a domain of your own.
`

// starterOfHost returns a configuration for all devices that pods may want. It fails if the host
// has none. Resources that do not work on this host are comments in it.
func (f *flags) starterOfHost(view *agent.View, all *catalog.Catalog, domain string) (string, error) {
	resources := all.Starter()
	if len(resources) == 0 {
		return "", errors.New("this host has no device that pods may want: generic-dp devices --all lists all hardware")
	}
	head, err := starterDomain(domain)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if len(resources) > 1 {
		b.WriteString(starterHead)
	}
	b.WriteString(head)
	for _, r := range resources {
		text := r.Text()
		// Each resource is tried as the only one: a mistake in one must not refuse the others.
		if refusal := f.refusal(view, head+text); refusal != "" {
			text = "# Left out: " + refusal + "\n" + commented(text)
		}
		b.WriteString("\n" + text)
	}
	return b.String(), nil
}

// starterOfDevice returns a configuration for a device with the given name, ID, address or node.
// It fails if the device cannot be offered: in contrast to starterOfHost, a comment would be the
// whole result.
func (f *flags) starterOfDevice(view *agent.View, all *catalog.Catalog, domain, name string) (string, error) {
	found, err := all.Find(view.Forms, name)
	if err != nil {
		return "", err
	}
	head, err := starterDomain(domain)
	if err != nil {
		return "", err
	}
	resource := all.For(found)
	text := head + "\n" + resource.Text()
	if refusal := f.refusal(view, text); refusal != "" {
		return "", fmt.Errorf("%s cannot be offered: %s", name, refusal)
	}
	return text, nil
}

// starterDomain returns the line that sets the domain, or an error for a domain that no configuration
// may have: it would be the reason to leave out every resource.
func starterDomain(domain string) (string, error) {
	line := fmt.Sprintf("domain = %q\n", domain)
	// A resource completes the file, so that only the domain can be wrong.
	_, err := parseText(line + "[[resource]]\nname = \"x\"\nmatch.glob = \"/dev/x\"\n")
	if err != nil {
		return "", fmt.Errorf("--domain: %s", firstProblem(err))
	}
	return line, nil
}

// parseText parses the text of a configuration. The error is of type config.Problems.
func parseText(text string) (*config.Config, error) {
	return config.Parse(config.File{Name: "config.toml", Data: []byte(text)})
}

// firstProblem returns the text of the first problem in an error.
func firstProblem(err error) string {
	var problems config.Problems
	if errors.As(err, &problems) {
		return problems[0].Text
	}
	return err.Error()
}

// commented makes each line of a text a comment. Lines that are comments already stay as they
// are.
func commented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("#" + strings.TrimPrefix(line, "#"))
	}
	return b.String()
}

// refusal returns why a configuration with one resource does not work on this host: it is
// invalid, needs a permission that --allow does not give, offers nothing, or offers an Unhealthy
// device. The result is empty if it works. It matches the scan that the view has, and does not
// read the host again.
func (f *flags) refusal(view *agent.View, text string) string {
	cfg, err := parseText(text)
	if err == nil {
		err = cfg.Check(f.allow)
	}
	// For example, a device reports a name that no configuration may contain.
	if err != nil {
		return firstProblem(err)
	}
	view = view.With(cfg)
	// These are mistakes that only show on this host.
	for _, n := range view.Matched.Notes {
		if n.Error {
			return n.Problem.Text
		}
	}
	for _, e := range explanations(view, cfg, catalog.Found{}) {
		if len(e.Offered) == 0 {
			return e.Reason
		}
		for _, id := range e.Offered {
			if why := e.Unhealthy[id]; why != "" {
				return why
			}
		}
	}
	return ""
}
