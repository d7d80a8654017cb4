package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
)

func newClean(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "remove what serving left: links, CDI specs, state, dead sockets",
		Long: `clean removes what serving leaves behind on purpose: links and CDI specs stay
at exit, so that containers can restart during an upgrade. Containers that
still hold a device can't start again after clean. It refuses while an
instance is serving.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := agent.Clean(f.paths)
			for _, path := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", path)
			}
			return err
		},
	}
	f.registerWritten(cmd.Flags())
	f.registerKubelet(cmd.Flags())
	return cmd
}
