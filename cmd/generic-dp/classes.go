package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/dra"
)

func newClasses(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "print the DeviceClasses of resources by dynamic resource allocation",
		Long: `classes prints the DeviceClass of each resource with api = "dra", for kubectl
apply. Pods may then request the resource like any other extended resource, or
name the class in a claim.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(f.config)
			if err != nil {
				return err
			}
			var all []string
			for _, r := range cfg.Resources {
				if r.API != config.APIDRA {
					continue
				}
				if r.NameText == nil {
					all = append(all, dra.Class(r.Name))
				} else {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: the name depends on the hardware: one class is needed for each result\n", r.Place)
				}
			}
			if len(all) == 0 {
				return fmt.Errorf(`%s: no resource of a fixed name has api = "dra"`, f.config)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "---\n"))
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	return cmd
}
