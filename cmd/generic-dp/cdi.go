package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
)

func newCDI(f *flags) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "keep CDI specs of the devices current, for podman, docker and nerdctl",
		Long: `cdi needs no kubelet. It writes a CDI spec for every resource, as if each had
container.cdi = true, and keeps it current as devices come and go. A container
asks for a device by its name, or for all devices of a resource:

  podman run --device example.com/zigbee=usb:10c4:ea60:A1B2C3 ...
  podman run --device example.com/zigbee=all ...

The environment of the configuration is in the specs; of several devices that
have one variable a container has that of the last, with "all" they are joined.
Annotations can't be said by CDI.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := f.serving(cmd)
			if err != nil {
				return err
			}
			options.CDIOnly = true
			if !once {
				return serve(cmd.Context(), options)
			}
			options.Listen = ""
			a, err := agent.New(options)
			if err != nil {
				return err
			}
			names, err := a.Once(cmd.Context())
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return err
		},
	}
	f.registerCDI(cmd.Flags())
	cmd.Flags().BoolVar(&once, "once", false, "write the specs for what is there, print the names, and exit")
	return cmd
}
