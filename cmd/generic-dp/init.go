package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

func newInit(f *flags) *cobra.Command {
	domain := "example.com"
	cmd := &cobra.Command{
		Use:   "init [DEVICE]",
		Short: "write a configuration for the devices of this host, or for one of them",
		Long: `init prints a commented configuration for what it finds on this host and pods
may want: adapters, cameras, GPUs, accelerators, virtual functions, ... Each
resource selects its devices by what they are.

With DEVICE it prints one resource for that device alone: a path below /dev, a
device ID, a PCI address, a USB port such as 1-1.4, or a network interface.

  generic-dp init > /etc/generic-dp/config.toml
  generic-dp init /dev/ttyUSB0`,
		Args: wantArgs(0, 1, "want one DEVICE at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			view, err := f.scan(cmd.Context(), &config.Config{})
			if err != nil {
				return err
			}
			names := catalog.ReadNames(view.Snapshot, f.hwdata)
			resources := catalog.Starter(view.Snapshot, names)
			if len(args) > 0 {
				hardware, node, err := catalog.Find(view.Snapshot, view.Forms, args[0])
				if err != nil {
					return err
				}
				resources = []catalog.Resource{catalog.For(view.Snapshot, names, hardware, node)}
			}
			text, broken, err := f.starter(view, domain, resources)
			if err == nil && broken != "" && len(args) > 0 {
				err = fmt.Errorf("%s can't be offered: %s", args[0], broken)
			}
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "hwdata"))
	cmd.Flags().StringVar(&domain, "domain", domain, "domain of resource names: one of yours")
	return cmd
}

const starterHead = `# Devices of this host for pods, written by generic-dp init.
#
# Remove what is not for pods, and give names that say what a device is for. The first
# resource that selects a device gets it.
#   generic-dp check FILE          reports mistakes
#   generic-dp try --config FILE   shows what a container would get

# Pods request DOMAIN/NAME: take a domain of yours.
`

// starter is the text of a configuration with some resources. Those that do not work on
// this host are comments; broken is why the last of them does not.
func (f *flags) starter(view *agent.View, domain string, resources []catalog.Resource) (text, broken string, err error) {
	if len(resources) == 0 {
		return "", "", errors.New("nothing on this host that pods may want: generic-dp devices --all lists all hardware")
	}
	var b strings.Builder
	if len(resources) > 1 {
		b.WriteString(starterHead)
	}
	head := fmt.Sprintf("domain = %q\n", domain)
	b.WriteString(head)
	for _, r := range resources {
		text := r.Text()
		if broken, err = f.refusal(view, head+text); err != nil {
			return "", "", fmt.Errorf("--domain: %w", err)
		}
		if broken != "" {
			text = "# Left out: " + broken + "\n"
			for line := range strings.Lines(r.Text()) {
				text += "#" + strings.TrimPrefix(line, "#")
			}
		}
		b.WriteString("\n" + text)
	}
	return b.String(), broken, nil
}

// refusal returns why a configuration of one resource offers nothing on this host, or a
// device that no container gets; empty if it works.
func (f *flags) refusal(view *agent.View, text string) (string, error) {
	cfg, err := config.Parse(config.File{Name: "config.toml", Data: []byte(text)})
	var problems config.Problems
	if errors.As(err, &problems) {
		err = errors.New(problems[0].Text)
	}
	if err != nil {
		return "", err
	}
	if errors.As(cfg.Check(f.allow), &problems) {
		return problems[0].Text, nil
	}
	view = view.With(cfg)
	for _, n := range view.Matched.Notes {
		if n.Error {
			return n.Problem.Text, nil
		}
	}
	for _, e := range explanations(view, cfg, nil, nil) {
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
