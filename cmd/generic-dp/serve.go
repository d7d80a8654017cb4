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

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/sys/limits"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newServe returns the command serve, which the DaemonSet runs. It ends without an error after
// SIGTERM or SIGINT. A broken configuration at the start is no error if the state has a last good
// one, see package agent.
func newServe(f *flags) *cobra.Command {
	var noKubelet, once bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "advertise devices to the kubelet, or to container runtimes, until stopped",
		Long: `serve advertises the devices to the kubelet and keeps the lists current while
devices appear and disappear.

With --no-kubelet it keeps CDI specs current instead, for podman, docker and
nerdctl: one for every resource, as if each had container.cdi = true. A container
requests a device by name, or all devices of a resource:

  podman run --device example.com/zigbee=usb:10c4:ea60:A1B2C3 ...
  podman run --device example.com/zigbee=all ...

The specs contain the environment variables of the configuration. If several
devices of a container set the same variable, the last one wins; "all" joins the
values, and has ${index} and ${count}. CDI has no annotations.`,
		Args: cli.NoArgs,
		// It answers the kubelet until its successor does, see agent.Run.
		Annotations: map[string]string{cli.EndsSlowly: "true"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once && !noKubelet {
				return cli.Usagef("--once: want --no-kubelet as well: the kubelet needs an instance that runs")
			}
			if noKubelet && f.paths.CDIDir == "" {
				return cli.Usagef("--cdi-dir is empty: with --no-kubelet, serve only writes CDI specs")
			}
			if once {
				return f.writeSpecs(cmd)
			}
			options := f.options(cmd.ErrOrStderr())
			options.CDIOnly = noKubelet
			return serve(cmd.Context(), options)
		},
	}
	f.add(cmd, configFlags, hostFlags, logFlags, []string{
		"kubelet-dir",
		"plugins-registry",
		"pod-resources",
		"cgroup",
		"run-dir",
		"cdi-dir",
		"device-info-dir",
		"nfd-dir",
		"listen",
	})
	cmd.Flags().BoolVar(&noKubelet, "no-kubelet", false, "keep CDI specs of all resources current, without a kubelet")
	cmd.Flags().BoolVar(&once, "once", false, "with --no-kubelet: write the specs of present devices, print their names, and exit")
	return cmd
}

// writeSpecs writes the CDI specs of the present devices and prints their names. Nothing listens
// for the short time of a single pass: a serving instance may have the address.
func (f *flags) writeSpecs(cmd *cobra.Command) error {
	// An instance would go on with the last good configuration.
	if _, err := f.load(f.config); err != nil {
		return err
	}
	options := f.options(cmd.ErrOrStderr())
	options.CDIOnly = true
	options.Listen = ""
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	names, err := a.Once(cmd.Context())
	// Print the names that Once returns even if it fails.
	for _, name := range names {
		fmt.Fprintln(cmd.OutOrStdout(), name)
	}
	return err
}

// newClean returns the command clean. It prints each removed path, also if a later one cannot be
// removed, and fails while an instance holds the lock of the run directory.
func newClean(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "remove links, CDI specs, state and stale sockets of earlier runs",
		Long: `clean removes what serve keeps on exit: links and CDI specs, so that containers
can restart during an upgrade. After clean, a container that still holds a
device cannot restart. clean refuses to run while an instance serves.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := agent.Clean(f.paths)
			for _, path := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", path)
			}
			return err
		},
	}
	f.add(cmd, []string{"state-dir", "kubelet-dir", "run-dir", "cdi-dir", "device-info-dir", "nfd-dir"})
	return cmd
}

// serve runs an instance until ctx is cancelled, and returns nil then. The limits are about the
// whole process, and so are signals and systemd. All goroutines that it starts end before it returns,
// except for limits.Memory, which only reads a few small files.
func serve(ctx context.Context, options agent.Options) error {
	limits.CPUs()
	// The first lists should not wait for files below /proc and /sys.
	go limits.Memory()
	// One pending signal is enough: it reads everything that was written before. os/signal drops
	// signals that do not fit.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before Run: an early signal must not end the process
	defer signal.Stop(hangups)
	// The helper must also end if Run fails without a signal.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	following.Go(func() {
		follow(ctx, a, hangups)
	})
	err = a.Run(ctx)
	stop()
	following.Wait()
	return err
}

// follow reads the configuration again for each SIGHUP, and tells systemd when dependent units may
// start, and that it has to wait for the end up to TimeoutStopSec (sd_notify(3)). Outside of systemd
// it tells nobody. It returns when ctx is cancelled.
func follow(ctx context.Context, a *agent.Agent, hangups <-chan os.Signal) {
	settled := a.Settled()
	for {
		select {
		case <-ctx.Done():
			_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
			return
		case <-hangups:
			a.Reload()
		case <-settled:
			settled = nil
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
	}
}
