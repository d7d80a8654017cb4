package plugin

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newClasses returns the command classes. Warnings go to standard error, because the output is for
// kubectl apply. It fails if there is no class to print, since kubectl would reject an empty input.
func newClasses() *cobra.Command {
	return &cobra.Command{
		Use:   "classes FILE",
		Short: "print the DeviceClasses of resources with api = \"dra\"",
		Long: `classes prints the DeviceClass of each resource with api = "dra" (dynamic
resource allocation), for kubectl apply. Pods may then request the resource like
any other extended resource, or name the class in a claim. FILE is a TOML file, a
directory of them, or a manifest with TOML files; - is standard input.`,
		Args: cli.WantArgs(1, 1, "want one FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := readConfigurations(args[0])
			if err != nil {
				return err
			}
			var all []string
			for _, own := range found {
				cfg, err := config.Parse(own.Files...)
				if err != nil {
					return err
				}
				all = append(all, classesOf(cfg, cmd.ErrOrStderr())...)
			}
			if len(all) == 0 {
				return fmt.Errorf(`%s: no resource with a fixed name has api = "dra"`, args[0])
			}
			// A line with three dashes separates the documents of a YAML stream.
			_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "---\n"))
			return err
		},
	}
}

// classesOf returns the DeviceClasses of a configuration.
func classesOf(cfg *config.Config, stderr io.Writer) []string {
	var all []string
	for _, r := range cfg.Resources {
		if r.API != config.APIDRA {
			continue
		}
		// The class itself is valid for every version. Only the claims behave differently.
		if what, version, otherwise := r.NeedsVersion(); what != "" {
			fmt.Fprintf(stderr, "warning: %s: %s needs Kubernetes %s: %s\n", r.Place, what, version, otherwise)
		}
		hasVariables := r.NameText != nil
		if hasVariables {
			fmt.Fprintf(stderr, "warning: %s: the name depends on the hardware: each resulting name needs a class\n", r.Place)
			continue
		}
		all = append(all, device.ClassManifest(r.Name))
	}
	return all
}
