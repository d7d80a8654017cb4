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
		Args: cli.WantArgs(0, 1, "want no argument or one DEVICE"),
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
	s, err := f.starter(view, domain, resources)
	if err != nil {
		return "", err
	}
	if len(resources) > 1 {
		return starterHead + s.text, nil
	}
	return s.text, nil
}

// starterOfDevice returns a configuration for a device with the given name, ID, address or node.
// It fails if the device cannot be offered: in contrast to starterOfHost, a comment would be the
// whole result.
func (f *flags) starterOfDevice(view *agent.View, all *catalog.Catalog, domain, name string) (string, error) {
	found, err := all.Find(view.Forms, name)
	if err != nil {
		return "", err
	}
	s, err := f.starter(view, domain, []catalog.Resource{all.For(found)})
	if err != nil {
		return "", err
	}
	if s.refusal != "" {
		return "", fmt.Errorf("%s cannot be offered: %s", name, s.refusal)
	}
	return s.text, nil
}

// starter is a configuration for an administrator to edit.
type starter struct {
	text string
	// refusal is why the last resource does not work on this host. It is empty if it works.
	refusal string
}

// starter writes resources as a configuration. Resources that do not work on this host become
// comments with the reason. The error is about the domain, or about the reading of the host.
func (f *flags) starter(view *agent.View, domain string, resources []catalog.Resource) (starter, error) {
	head := fmt.Sprintf("domain = %q\n", domain)
	err := checkDomain(head)
	if err != nil {
		return starter{}, err
	}
	var made starter
	var b strings.Builder
	b.WriteString(head)
	for _, r := range resources {
		text := r.Text()
		// Each resource is tried as the only one: a mistake in one must not refuse the others.
		refusal, err := f.refusal(view, head+text)
		if err != nil {
			return starter{}, err
		}
		if refusal != "" {
			text = "# Left out: " + refusal + "\n" + commented(text)
		}
		b.WriteString("\n" + text)
		made.refusal = refusal
	}
	made.text = b.String()
	return made, nil
}

// checkDomain returns an error for a domain that no configuration may have. head is the line that
// sets it. Without this check, every resource would be left out because of the domain.
func checkDomain(head string) error {
	// A resource completes the file, so that only the domain can be wrong.
	const minimal = "[[resource]]\nname = \"x\"\nmatch.glob = \"/dev/x\"\n"
	_, err := config.Parse(config.File{Name: "config.toml", Data: []byte(head + minimal)})
	var problems config.Problems
	if errors.As(err, &problems) {
		return fmt.Errorf("--domain: %s", problems[0].Text)
	}
	return err
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
func (f *flags) refusal(view *agent.View, text string) (string, error) {
	cfg, err := config.Parse(config.File{Name: "config.toml", Data: []byte(text)})
	var problems config.Problems
	if errors.As(err, &problems) {
		// For example, a device reports a name that no configuration may contain.
		return problems[0].Text, nil
	}
	if err != nil {
		return "", err
	}
	// The problem says which word of --allow is missing, and becomes a comment in the output.
	if errors.As(cfg.Check(f.allow), &problems) {
		return problems[0].Text, nil
	}
	view = view.With(cfg)
	// These are mistakes that only show on this host.
	for _, n := range view.Matched.Notes {
		if n.Error {
			return n.Problem.Text, nil
		}
	}
	for _, e := range explanations(view, cfg, catalog.Found{}) {
		if len(e.Offered) == 0 {
			return e.Reason, nil
		}
		for _, id := range e.Offered {
			if why := e.Unhealthy[id]; why != "" {
				return why, nil
			}
		}
	}
	return "", nil
}
