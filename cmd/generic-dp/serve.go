package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
)

func newServe(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "advertise devices to the kubelet until stopped",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), f.options(cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().AddFlagSet(f.pick("kubelet-dir", "plugins-registry", "pod-resources", "run-dir", "cdi-dir", "device-info-dir", "nfd-dir", "listen", "allow", "domains"))
	return cmd
}

func newCDI(f *flags) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "keep CDI specs current for podman, docker and nerdctl, without a kubelet",
		Long: `cdi writes a CDI spec for every resource, as if each had container.cdi = true,
and keeps it current as devices come and go. It needs no kubelet. A container
requests a device by name, or all devices of a resource:

  podman run --device example.com/zigbee=usb:10c4:ea60:A1B2C3 ...
  podman run --device example.com/zigbee=all ...

The specs contain the environment of the configuration. Where several devices
of a container set one variable, the last one wins; "all" joins the values.
CDI has no annotations.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := f.options(cmd.ErrOrStderr())
			options.CDIOnly = true
			if !once {
				return serve(cmd.Context(), options)
			}
			options.Listen = ""
			a, err := agent.New(cmd.Context(), options)
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
	cmd.Flags().AddFlagSet(f.pick("run-dir", "cdi-dir", "nfd-dir", "listen", "allow", "domains"))
	cmd.Flags().BoolVar(&once, "once", false, "write the specs of present devices, print their names, and exit")
	return cmd
}

func newClean(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "remove links, CDI specs, state and stale sockets of earlier runs",
		Long: `clean removes what serve keeps on exit: links and CDI specs, so that containers
can restart during an upgrade. After clean, a container that still holds a
device cannot restart. clean refuses to run while an instance serves.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := agent.Clean(f.paths)
			for _, path := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", path)
			}
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("kubelet-dir", "run-dir", "cdi-dir", "device-info-dir", "nfd-dir"))
	return cmd
}

// serve runs an agent until ctx is cancelled.
func serve(ctx context.Context, options agent.Options) error {
	limitMemory()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before New: an early one must not end the process
	defer signal.Stop(hangups)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	var helpers sync.WaitGroup
	helpers.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				a.Reload()
			}
		}
	})
	helpers.Go(func() { notifySystemd(ctx, a.Settled()) })
	err = a.Run(ctx)
	stop()
	helpers.Wait()
	return err
}

// notifySystemd reports readiness after the first scan, so that dependent units may
// start, and the end (sd_notify(3)). Outside systemd it does nothing.
func notifySystemd(ctx context.Context, settled <-chan struct{}) {
	select {
	case <-settled:
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		<-ctx.Done()
	case <-ctx.Done():
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
}
