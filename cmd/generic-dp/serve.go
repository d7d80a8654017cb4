package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	genericdp "github.com/generic-dp/generic-dp"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/evict"
)

// newServe returns the command serve, which the DaemonSet runs. It ends without an error after
// SIGTERM or SIGINT. A broken configuration at the start is no error if the state has a last good
// one, see package agent.
func newServe(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "advertise devices to the kubelet until stopped",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), f.serving(cmd.ErrOrStderr()))
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
	return cmd
}

// newCDI returns the command cdi, which is serve without a kubelet. It has no flags for the
// sockets of the kubelet, since it uses none.
func newCDI(f *flags) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "keep CDI specs current for podman, docker and nerdctl, without a kubelet",
		Long: `cdi writes a CDI spec for every resource, as if each had container.cdi = true,
and keeps it current while devices appear and disappear. It needs no kubelet. A
container requests a device by name, or all devices of a resource:

  podman run --device example.com/zigbee=usb:10c4:ea60:A1B2C3 ...
  podman run --device example.com/zigbee=all ...

The specs contain the environment variables of the configuration. If several
devices of a container set the same variable, the last one wins; "all" joins the
values. CDI has no annotations.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !once {
				options := f.serving(cmd.ErrOrStderr())
				options.CDIOnly = true
				return serve(cmd.Context(), options)
			}
			// Nothing listens for the short time of a single pass: a serving instance may have
			// the address.
			options := f.options(cmd.ErrOrStderr())
			options.CDIOnly = true
			options.Listen = ""
			a, err := agent.New(cmd.Context(), options)
			if err != nil {
				return err
			}
			names, err := a.Once(cmd.Context())
			// Print the names that Once returns even if it fails.
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return err
		},
	}
	f.add(cmd, configFlags, hostFlags, logFlags, []string{"run-dir", "cdi-dir", "nfd-dir", "listen"})
	cmd.Flags().BoolVar(&once, "once", false, "write the specs of present devices, print their names, and exit")
	return cmd
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
		Args: noArgs,
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

// serving returns the options of an instance, from the flags. The log goes to w. Only serve and
// cdi use them: commands that read the host use options, since they need the internal options of
// the agent. The program thereby serves in the same way as a program that embeds the package.
func (f *flags) serving(w io.Writer) genericdp.Options {
	o := genericdp.DefaultOptions()
	o.Config = f.config
	// The package accepts the words of the flag. Splitting an empty text would give one empty
	// word.
	if allow := f.allow.String(); allow != "" {
		o.Allow = strings.Split(allow, ",")
	}
	o.Domains = f.allow.Domains
	o.KubeletDir = f.paths.KubeletDir
	o.PluginsRegistry = f.paths.Registry
	o.PodResources = f.paths.PodResources
	o.Sysfs = f.paths.Sysfs
	o.Cgroup = f.paths.Cgroup
	o.Dev = f.paths.Dev
	o.RunDir = f.paths.RunDir
	o.StateDir = f.paths.StateDir
	o.CDIDir = f.paths.CDIDir
	o.DeviceInfoDir = f.paths.DeviceInfoDir
	o.NFDDir = f.paths.NFDDir
	o.Listen = f.listen
	o.NodeName = f.nodeName
	o.Version = version
	o.Log = f.logger(w)
	return o
}

// serve runs an instance until ctx is cancelled, and returns nil then. The limits are about the
// whole process, and so are signals and systemd: an embedding program has its own. All goroutines
// that it starts end before it returns, except for limitMemory, which only reads a few small
// files.
func serve(ctx context.Context, options genericdp.Options) error {
	limitCPUs()
	// The first lists should not wait for files below /proc and /sys.
	go limitMemory()
	// One pending signal is enough: it reads everything that was written before. os/signal drops
	// signals that do not fit.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before Run: an early signal must not end the process
	defer signal.Stop(hangups)
	reload := make(chan struct{})
	options.Reload = reload
	options.Settled = notifyReady
	// The helpers must also end if Run fails without a signal.
	ctx, stop := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() {
		forwardHangups(ctx, hangups, reload)
	})
	helpers.Go(func() {
		// systemd then waits for the end up to TimeoutStopSec. Without NOTIFY_SOCKET, this does
		// nothing.
		<-ctx.Done()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	})
	err := genericdp.Run(ctx, options)
	stop()
	helpers.Wait()
	return err
}

// forwardHangups makes each SIGHUP a request to read the configuration again. It returns when ctx
// is cancelled, also while Run does not receive the request because it is ending.
func forwardHangups(ctx context.Context, hangups <-chan os.Signal, reload chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		select {
		case <-ctx.Done():
			return
		case reload <- struct{}{}:
		}
	}
}

// notifyReady tells systemd that dependent units may start (sd_notify(3)). Outside of systemd it
// does nothing. Run calls it once, after the devices that are present at the start are served.
// Its result is ignored: systemd reports a unit that is never ready.
func notifyReady() {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
}

// limitCPUs lets goroutines run on two CPUs, unless GOMAXPROCS is set. A scan uses no more than
// two, and the runtime keeps memory for each CPU: several megabytes on a large node. It runs
// before everything else, because the runtime stops all goroutines for the change.
func limitCPUs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	}
}

// limitMemory keeps the heap within the memory limit of the cgroup, unless GOMEMLIMIT is set: the
// garbage collector does not know that limit and would let the heap double. A fifth is left for
// memory outside the heap, such as socket buffers. Without a limit it changes nothing.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	// The files of the process's own cgroup are below the real root, not below --cgroup.
	limit := memoryLimit(os.DirFS("/"))
	if limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// limitFiles are the files with the memory limit of a cgroup, by controller. A cgroup of version 2
// has no controller in /proc/self/cgroup.
var limitFiles = map[string]string{
	"":       "memory.max",
	"memory": "memory.limit_in_bytes",
}

// memoryLimit returns the lowest memory limit in bytes of this process's cgroup and the cgroups
// above it, of version 2 or 1. It tries the root as well, because a container may see its own
// cgroup as the root, whatever its path. The result is the largest integer if there is no limit,
// or if nothing can be read.
func memoryLimit(host fs.FS) int64 {
	lowest := int64(math.MaxInt64)
	cgroups, _ := fs.ReadFile(host, "proc/self/cgroup")
	// With version 1, each hierarchy has a line of its own.
	for line := range strings.Lines(string(cgroups)) { // "4:memory:/path" or "0::/path"
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controller, dir, _ := strings.Cut(line, ":")
		file, isLimited := limitFiles[controller]
		if !isLimited {
			continue
		}
		// Each cgroup is also limited by all cgroups above it: the limit of a pod applies to its
		// containers.
		for dir = path.Join("/", dir); ; dir = path.Dir(dir) {
			name := path.Join("sys/fs/cgroup", controller, dir, file)
			lowest = min(lowest, readLimit(host, name))
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}

// readLimit reads a memory limit in bytes. It returns the largest integer if there is no limit.
func readLimit(host fs.FS, name string) int64 {
	text, _ := fs.ReadFile(host, name)
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxInt64 // no such file, or "max"
	}
	return limit
}

// newEvict returns the command evict, which runs once in a cluster, not on each node. The
// defaults of its options are here and not in package evict, so that the help shows them.
func newEvict(f *flags) *cobra.Command {
	o := evict.Options{After: 30 * time.Second, PerMinute: 10}
	cmd := &cobra.Command{
		Use:   "evict",
		Short: "evict the pods of a cluster whose devices are unhealthy",
		Long: `evict evicts the pods of a cluster that hold unhealthy devices of this or any
other device plugin, so that they are scheduled again. It needs kubelets of
Kubernetes 1.36 or newer. A cluster needs one instance, in a pod whose service
account may watch pods, evict them and create events: evict.enabled in the
chart's values.

With --dra, it also evicts pods whose extended resource is a DRA device with a
NoExecute taint; Kubernetes itself only deletes pods with claims. The service
account may then watch ResourceSlices and read ResourceClaims: dra.enabled.

PodDisruptionBudgets are honoured. A pod with the annotation
` + evict.Annotation + `: "false" is never evicted, and a device that appears
and disappears evicts at most one pod in ten minutes.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Zero would evict a pod for a device that is only unhealthy for a moment, or evict
			// nothing.
			switch {
			case o.After < time.Second:
				return usageError{errors.New("--after: want at least 1s")}
			case o.PerMinute < 1:
				return usageError{errors.New("--per-minute: want at least 1")}
			case os.Getenv("KUBERNETES_SERVICE_HOST") == "":
				return errors.New("no API server: evict only runs in a pod\n  hint: evict.enabled = true in the chart's values creates a Deployment")
			}
			// An unusable address is an error at once, before a pod is evicted.
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
			o.Log.Info("starting", "version", version, "after", o.After, "per_minute", o.PerMinute, "opt_in", o.OptIn, "dra", o.DRA)
			defer o.Log.Info("stopped")
			return evict.Run(cmd.Context(), kubeapi.New(kubeapi.InCluster()), o)
		},
	}
	// evict needs no flags for paths: it only talks to the API server.
	f.add(cmd, logFlags, []string{"listen"})
	cmd.Flags().DurationVar(&o.After, "after", o.After, "how long a device must be unhealthy before its pod is evicted")
	cmd.Flags().IntVar(&o.PerMinute, "per-minute", o.PerMinute, "maximum number of evictions in a minute")
	cmd.Flags().BoolVar(&o.DRA, "dra", false, "also evict pods whose extended resource is a DRA device with a NoExecute taint")
	cmd.Flags().BoolVar(&o.OptIn, "opt-in", false, `evict only pods with the annotation `+evict.Annotation+`: "true"`)
	return cmd
}
