package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
)

func newServe(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "offer the devices to the kubelet until stopped (the default)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			options, err := f.serving(cmd)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), options)
		},
	}
	f.registerServe(cmd.Flags())
	return cmd
}

// reload has the configuration read again on SIGHUP, as a change of it does.
func reload(ctx context.Context, a *agent.Agent, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			a.Reload()
		}
	}
}

// serving are the options of a command that runs until it is stopped, and logs to
// standard error.
func (f *flags) serving(cmd *cobra.Command) (agent.Options, error) {
	log, err := f.logger(cmd.ErrOrStderr())
	if err != nil {
		return agent.Options{}, usageError{err, cmd.Name() + " "}
	}
	return f.options(log), nil
}

// serve runs the program until ctx is cancelled.
func serve(ctx context.Context, options agent.Options) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // one that comes early must not end the process
	defer signal.Stop(hangups)
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	go slim(ctx, a.Settled())
	go reload(ctx, a, hangups)
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		notify(ctx, a.Settled())
	}()
	err = a.Run(ctx)
	cancel()
	<-told
	return err
}

// notify tells systemd when the host was looked at, which is when what needs the
// devices may start, and when this ends (sd_notify(3)). Elsewhere nobody listens.
func notify(ctx context.Context, settled <-chan struct{}) {
	select {
	case <-settled:
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		<-ctx.Done()
	case <-ctx.Done():
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
}

// slim keeps the memory of a process small that does nothing nearly always:
// what starting took is given back once everything is served, and the heap of
// some 2 MB is collected at half the usual growth, at next to no cost.
func slim(ctx context.Context, started <-chan struct{}) {
	debug.SetGCPercent(50)
	select {
	case <-started:
	case <-ctx.Done():
		return
	}
	served := time.NewTimer(time.Second) // registration must not wait for this
	defer served.Stop()
	select {
	case <-served.C:
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
}
