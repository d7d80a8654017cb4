package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/evict"
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
	cmd.Flags().AddFlagSet(f.pick("kubelet-dir", "plugins-registry", "pod-resources", "cgroup", "run-dir", "cdi-dir", "device-info-dir", "nfd-dir", "listen", "allow", "domains"))
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
	limitCPUs()
	go limitMemory()
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

// limitCPUs lets goroutines run on two CPUs, as many as a scan uses, unless GOMAXPROCS says
// otherwise: for each further one the runtime keeps memory of its own, together several
// megabytes on a large node.
func limitCPUs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	}
}

// limitMemory keeps the heap within the memory limit of the cgroup, unless GOMEMLIMIT says
// otherwise: the garbage collector knows of none and lets the heap double. A fifth is left
// to what is not the heap, such as buffers of sockets.
func limitMemory() {
	if limit := memoryLimit(os.DirFS("/")); os.Getenv("GOMEMLIMIT") == "" && limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// memoryLimit is the lowest memory limit of this process's cgroup and those above it, of
// version 2 or 1. A container may see its own cgroup as the root, whatever its path.
func memoryLimit(host fs.FS) int64 {
	lowest := int64(math.MaxInt64)
	cgroups, _ := fs.ReadFile(host, "proc/self/cgroup")
	for line := range strings.Lines(string(cgroups)) { // "4:memory:/path" or "0::/path"
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controller, dir, _ := strings.Cut(line, ":")
		file := map[string]string{"": "memory.max", "memory": "memory.limit_in_bytes"}[controller]
		for dir = path.Join("/", dir); file != ""; dir = path.Dir(dir) {
			text, _ := fs.ReadFile(host, path.Join("sys/fs/cgroup", controller, dir, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				lowest = min(lowest, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}

func newEvict(f *flags) *cobra.Command {
	o := evict.Options{After: 30 * time.Second, PerMinute: 10}
	cmd := &cobra.Command{
		Use:   "evict",
		Short: "evict pods whose devices are unhealthy, in a pod of its own",
		Long: `evict evicts the pods of a cluster that hold unhealthy devices, of this or any
other device plugin, so that they are scheduled anew. The kubelets have to be of
Kubernetes 1.36 or newer. It runs once in a cluster, in a pod whose service
account may watch pods, evict them and create events: evict.enabled in the
chart's values.

PodDisruptionBudgets are honoured. A pod with the annotation
` + evict.Annotation + `: "false" stays, and a device that comes and goes
evicts one pod in ten minutes at most.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.After < time.Second:
				return usageError{errors.New("--after: want at least 1s")}
			case o.PerMinute < 1:
				return usageError{errors.New("--per-minute: want at least 1")}
			case os.Getenv("KUBERNETES_SERVICE_HOST") == "":
				return errors.New("no API server: want to run in a pod\n  hint: evict.enabled = true in the chart's values makes a Deployment")
			}
			if f.listen != "" {
				l, err := status.Listen(f.listen)
				if err != nil {
					return err
				}
				o.Listener = l
			}
			limitCPUs()
			limitMemory()
			o.Log = f.logger(cmd.ErrOrStderr())
			o.Log.Info("starting", "version", version, "after", o.After, "per_minute", o.PerMinute, "opt_in", o.OptIn)
			defer o.Log.Info("stopped")
			return evict.Run(cmd.Context(), kubeapi.New(kubeapi.InCluster()), o)
		},
	}
	cmd.Flags().AddFlagSet(f.pick("listen"))
	cmd.Flags().DurationVar(&o.After, "after", o.After, "how long a device is unhealthy before the pod that holds it is evicted")
	cmd.Flags().IntVar(&o.PerMinute, "per-minute", o.PerMinute, "most evictions in a minute")
	cmd.Flags().BoolVar(&o.OptIn, "opt-in", false, `evict only pods with the annotation `+evict.Annotation+`: "true"`)
	return cmd
}
