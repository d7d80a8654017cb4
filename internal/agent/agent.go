// Package agent is the running program. One loop waits for triggers, scans the host
// and reconciles what containers and the kubelet get with it, see loop.reconcile.
// Package matchers selects devices, package ledger decides on their life, and package
// plugin serves a resource.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
	"github.com/generic-dp/generic-dp/internal/output/links"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Options of an Agent, from the flags.
type Options struct {
	Config   string // file or directory
	Allow    config.Allow
	Paths    Paths
	NodeName string
	Listen   string // address of metrics and probes; empty for none
	// CDIOnly: there is no kubelet. Every resource is injected by CDI specs.
	CDIOnly bool
	// NoDRA: every resource is offered as device plugin.
	NoDRA   bool
	KubeAPI kubeapi.Config // the API server, for DRA
	// InPod: hints name the manifest instead of flags.
	InPod   bool
	Version string
	Log     *slog.Logger // nil discards
}

// Agent is the running program. Make it with New, run it once with Run.
type Agent struct {
	options Options
	log     *slog.Logger
	now     func() time.Time // for the life of devices
	found   startup

	host    hostWatch
	rescans rescanRequests
	wake    signal // reconcile for a change that is not on the host
	reader  *configuration.Reader

	kubelet *plugin.KubeletWatch
	pods    podWatch
	dra     *draDriver
	outputs *outputs
	serving atomic.Pointer[set] // nil before the first pass

	page    page
	settled chan struct{} // see Settled
}

// startup is what New finds, for the loop to begin with.
type startup struct {
	config *config.Config
	// lock is the lock file of the run directory.
	lock *os.File
	// served is set if an instance has served in this boot before, writer if the lock is
	// held.
	served, writer bool
}

// hostWatch reads the host and follows its changes.
type hostWatch struct {
	scanner *inventory.Scanner
	paths   *hostPaths
	watcher *inventory.Watcher
	first   chan firstScan // capacity 1
	// running has the watcher and the first scan, which cancel ends.
	running sync.WaitGroup
	cancel  context.CancelFunc

	// specs watches the foreign CDI specs. watchSpecs starts that, once.
	specs      *watch.Watcher
	watchSpecs func()
	// usesSpecs is set if the foreign specs decide about a device.
	usesSpecs atomic.Bool
}

// podWatch follows which pods hold devices.
type podWatch struct {
	client  *podresources.Client
	cgroups *cgroup.Tree
	holders *holders // nil without a kubelet
}

// page is what the status page, the metrics and the probes show.
type page struct {
	listener net.Listener
	metrics  *status.Metrics // nil without a listener
	started  time.Time
	config   atomic.Pointer[status.Config]
	// leftOut is what the lists have no room for.
	leftOut  atomic.Pointer[status.LeftOut]
	problems *problems
	events   events
	// heldError is why held devices are unknown, as logged: a string.
	heldError atomic.Value
	// busy is when the loop began its pass, nil while it waits.
	busy    atomic.Pointer[time.Time]
	explain atomic.Pointer[explainer] // nil before the first pass
}

// New loads the configuration and prepares everything that can fail before the first
// device is served. Its errors name the flag to change. The host is scanned meanwhile,
// until ctx is cancelled.
func New(ctx context.Context, options Options) (_ *Agent, err error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	p := options.Paths
	a := &Agent{
		options: options,
		log:     options.Log,
		now:     time.Now,
		rescans: make(rescanRequests),
		wake:    newSignal(),
		settled: make(chan struct{}),
	}
	a.page.problems = newProblems(options.Log)
	a.page.started = time.Now()
	a.host.first = make(chan firstScan, 1)
	a.host.scanner = inventory.New(p.Inventory())
	a.host.paths = newHostPaths(p)
	a.host.watcher = inventory.NewWatcher(inventory.WatchOptions{Dev: p.Dev, Log: options.Log})
	ctx, a.host.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			a.host.cancel()
			a.host.running.Wait()
		}
	}()
	a.host.running.Go(func() {
		_ = a.host.watcher.Run(ctx)
	}) // always nil
	a.host.running.Go(func() {
		a.scanFirst(ctx)
	})
	if err := options.prepare(); err != nil {
		return nil, err
	}
	a.found.served = present(filepath.Join(p.RunDir, lockName))
	if a.found.lock, a.found.writer, err = takeLock(p.RunDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.found.lock.Close()
		}
	}()
	if a.reader, a.found.config, err = newReader(options, a.found.writer); err != nil {
		return nil, err
	}
	first := a.reader.Last()
	a.page.config.Store(&status.Config{
		Path:       options.Config,
		Hash:       a.found.config.Hash,
		Loaded:     time.Now(),
		Generation: 1,
		Broken:     first.Err,
		Problems:   split(first.Err),
	})
	if first.Err != nil {
		logBroken(a.log, options.Config, first.Err)
	}
	if err := a.listen(); err != nil {
		return nil, errors.Join(err, a.reader.Trial.End(false))
	}
	a.page.metrics.CountLoad(first.Err)
	a.host.specs = watch.NewFiles("CDI specs", a.specDirs, a.log)
	a.kubelet = plugin.NewKubeletWatch(p.KubeletDir, a.log)
	a.pods.client = podresources.New(p.PodResources, func() time.Time {
		return a.now()
	})
	a.dra = &draDriver{agent: a}
	a.pods.cgroups = cgroup.New(p.Cgroup)
	if !options.CDIOnly {
		a.pods.holders = newHolders(filepath.Join(p.KubeletDir, checkpoint.Name), a.pods.cgroups, a.wake, a.log)
		a.pods.holders.hint = options.hint("cgroup")
		a.pods.holders.ours = a.offers
		a.pods.holders.held = a.heldSlots
		a.pods.holders.pods = a.pods.client.Pods
		a.pods.holders.generation = func() uint64 {
			socket, _ := a.kubelet.Kubelet()
			return socket.Generation
		}
	}
	a.outputs = newOutputs(options, a.page.problems, func() time.Time {
		return a.now()
	}, a.wake)
	return a, nil
}

// Run serves until ctx is cancelled: then streams end, sockets are removed,
// and nil is returned, within a second. Links and specs stay, or an upgrade would break the
// containers that restart meanwhile.
func (a *Agent) Run(ctx context.Context) error {
	a.log.Info("starting",
		"version", a.options.Version,
		"config", a.options.Config,
		"resources", len(a.found.config.Resources),
	)
	defer a.log.Info("stopped")
	group, ctx := errgroup.WithContext(ctx)
	loop := newLoop(a, group)
	if a.page.listener != nil {
		group.Go(func() error {
			return a.page.metrics.Serve(ctx, a.page.listener)
		})
	}
	if !a.options.CDIOnly {
		group.Go(func() error {
			a.sweep()
			return a.kubelet.Run(ctx)
		})
		group.Go(func() error {
			return a.pods.holders.run(ctx, a.kubelet.Checkpoint)
		})
	}
	group.Go(func() error {
		return a.reader.Files.Run(ctx)
	})
	group.Go(func() error {
		return a.reader.Run(ctx)
	})
	group.Go(func() error {
		return loop.run(ctx)
	})
	ended := make(chan error, 1)
	go func() {
		ended <- a.wait(group, loop)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endWithin):
	}
	loop.abandon()
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

const (
	// endWithin is how long Run waits for everything that it started. A read of the host may
	// block for ever, and the kubelet kills the pod after its grace period.
	endWithin = 800 * time.Millisecond
	// lastSave is how long it waits for the disk of the state after that.
	lastSave = 100 * time.Millisecond
)

// wait waits for everything that Run started, and saves the state.
func (a *Agent) wait(group *errgroup.Group, l *loop) error {
	err := group.Wait()
	l.finish()
	a.host.cancel()
	a.host.running.Wait()
	_ = a.found.lock.Close()
	return err
}

// sweep removes the sockets of killed instances. A missing kubelet directory has none,
// and the plugins wait for it.
func (a *Agent) sweep() {
	swept, err := socket.Sweep(a.options.Paths.KubeletDir)
	if len(swept) > 0 {
		a.log.Info("removed stale sockets", "kubelet_dir", a.options.Paths.KubeletDir, "sockets", swept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("stale sockets can't be removed", "kubelet_dir", a.options.Paths.KubeletDir, "err", err)
	}
}

// Settled is closed when the host was scanned and nothing is about to change without
// an event.
func (a *Agent) Settled() <-chan struct{} { return a.settled }

// Reload reads the configuration again at once, as a change on disk does.
func (a *Agent) Reload() { a.reader.Request() }

// Once makes the CDI specs of the present devices, as Run does for Options.CDIOnly,
// and returns their qualified names when they have settled.
func (a *Agent) Once(ctx context.Context) (names []string, err error) {
	if !a.found.writer {
		return nil, errServing(a.options.Paths)
	}
	a.outputs.noHealth = true // nobody would keep the directories current
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.settled:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.Run(ctx); err != nil {
		return nil, err
	}
	made := a.outputs.names.Load()
	if made == nil {
		return nil, errNotScanned
	}
	return made.names, made.err
}

// hints say what to change, by flag. In a pod nobody sets flags: the hint names the part of
// the DaemonSet behind the flag and its value in the chart.
var hints = map[string]struct{ pod, host string }{
	"config": {
		pod:  `volume "config" of the DaemonSet: the ConfigMap wants a key that ends in .toml; config or existingConfigMap in the chart's values`,
		host: "write one, or name another file or directory with --config; generic-dp check reports what is wrong with it",
	},
	"kubelet-dir": {
		pod:  `volume "device-plugins" of the DaemonSet, paths.devicePlugins in the chart's values, is the kubelet's directory on the host`,
		host: "it is where the kubelet keeps kubelet.sock; distributions may have it elsewhere, such as /var/snap/microk8s/common/var/lib/kubelet/device-plugins",
	},
	"run-dir": {pod: `volume "run" of the DaemonSet, paths.run in the chart's values, is a hostPath that can be written, at the same path in the pod`},
	"state-dir": {
		pod:  `volume "state" of the DaemonSet, paths.state in the chart's values, is a hostPath that can be written`,
		host: "make room in the directory and make it writable, or name another one with --state-dir; it is tried again with the next change",
	},
	"cdi-dir": {
		pod:  `volume "cdi" of the DaemonSet: cdi.enabled in the chart's values mounts cdi.directory, which container.cdi needs`,
		host: "container.cdi needs a directory that container runtimes read CDI specs from, /var/run/cdi or /etc/cdi as a rule",
	},
	"nfd-dir": {
		pod:  `volume "nfd" of the DaemonSet: nfd.directory in the chart's values is a hostPath that can be written`,
		host: "it is the features.d that Node Feature Discovery reads, and exists",
	},
	"device-info-dir": {
		pod:  `a volume of the DaemonSet, extraVolumes in the chart's values, is a hostPath that can be written`,
		host: "create the directory, or name that of Multus with --device-info-dir: /var/run/k8s.cni.cncf.io/devinfo/dp as a rule",
	},
	"cgroup": {
		pod:  `volume "cgroup" of the DaemonSet is the host's /sys/fs/cgroup, read-only`,
		host: "it is the host's /sys/fs/cgroup as a rule",
	},
	"listen": {
		pod:  `argument --listen and port "metrics" of the DaemonSet, listen.port in the chart's values: with hostNetwork the port has to be free on the node`,
		host: "another instance may be serving: generic-dp status asks it; --listen names another address, and an empty one is none",
	},
}

// hint is what to change about a flag; empty is unknown.
func (o Options) hint(flag string) string {
	if o.InPod {
		return hints[flag].pod
	}
	return hints[flag].host
}

// withHint adds the hint of a flag to an error about it, on a line of its own.
func (o Options) withHint(err error, flag string) error {
	hint := o.hint(flag)
	if err == nil || hint == "" {
		return err
	}
	return fmt.Errorf("%w\n  hint: %s", err, hint)
}

// prepare checks and makes what serving requires; a writable state directory is optional,
// see loop.save.
func (o Options) prepare() error {
	p := o.Paths
	if !filepath.IsAbs(p.RunDir) && !o.CDIOnly {
		return fmt.Errorf("--run-dir: %q is not an absolute path", p.RunDir)
	}
	if err := makeRunDir(p.RunDir); err != nil {
		return o.withHint(err, "run-dir")
	}
	if o.CDIOnly {
		return nil
	}
	if err := socket.CheckDir(p.KubeletDir); err != nil {
		return err
	}
	if _, err := os.Stat(p.KubeletDir); o.InPod && errors.Is(err, fs.ErrNotExist) {
		// A volume that is not mounted now never will be.
		return o.withHint(fmt.Errorf("--kubelet-dir: %w", err), "kubelet-dir")
	}
	if !o.InPod {
		return nil
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // no proc, no containers
	}
	defer mounts.Close()
	return o.withHint(links.CheckMount(p.RunDir, mounts), "run-dir")
}

// listen takes the address of metrics and status.
func (a *Agent) listen() (err error) {
	if a.options.Listen == "" {
		return nil
	}
	a.page.listener, err = status.Listen(a.options.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return a.options.withHint(err, "listen")
	}
	if err == nil {
		a.page.metrics = status.New(a)
	}
	return err
}
