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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Options are the options of an Agent, from the flags.
type Options struct {
	// Config is the configuration, a file or a directory.
	Config string
	// ConfigText is the configuration in place of Config, unless it is empty.
	ConfigText []byte
	// Allow has the permissions that the flags give to the configuration.
	Allow config.Allow
	// Paths are the directories and sockets of the host, as this process sees them.
	Paths Paths
	// NodeName is the name of the Node object. Empty means unknown: then no ResourceSlices are
	// published, and a configuration cannot compare the name.
	NodeName string
	// Listen is the address of metrics and probes. Empty means none.
	Listen string
	// CDIOnly is set if there is no kubelet: every resource is injected by CDI specs.
	CDIOnly bool
	// KubeAPI is the API server, for DRA.
	KubeAPI kubeapi.Config
	// InPod is set in a pod, where the directories of the host are mounted.
	InPod bool
	// Version is the version of the program, for the log and the status page.
	Version string
	// Log may be nil, which discards the log.
	Log *slog.Logger
	// Now is the clock for the life of devices. It is time.Now if it is nil.
	Now func() time.Time
}

// Agent is the running program. Make it with New, run it once with Run.
type Agent struct {
	options Options
	log     *slog.Logger
	now     func() time.Time
	// found is only read after New: the loop keeps its own copy of what changes.
	found startup

	host hostWatch
	// rescan has a value when a call knows that the last scan is too old.
	rescan signal
	// wake asks for a pass because of a change that is not on the host, and holdsChanged because of other
	// holds.
	wake         signal
	holdsChanged signal
	// reader reads the configuration, at the start and after each change on disk.
	reader *configuration.Reader

	// turn is the place of this instance among others, and gate what they allow it to answer.
	turn turn
	gate *gate
	// announced is closed when the kubelet has the resources of this instance.
	announced chan struct{}
	// holdsLoaded is closed when the holds of earlier instances were read.
	holdsLoaded chan struct{}
	// predecessorEnded has a value when the streams of another instance have ended.
	predecessorEnded signal

	// kubelet follows the sockets of the kubelet. It also exists without a kubelet, but does not
	// run.
	kubelet *plugin.KubeletWatch
	pods    podWatch
	// book knows who holds which device. It stays empty without a kubelet.
	book *holds.Book
	// dra is never nil. Its plugin starts when it is needed.
	dra     *draDriver
	outputs *outputs
	// serving has the served resources, nil before the first pass.
	serving atomic.Pointer[set]

	page page
	// allSettled is closed when the host was scanned and nothing is pending, see Settled.
	allSettled chan struct{}
}

// startup is what New has found. The loop begins with it.
type startup struct {
	// reading has the configuration on disk, or the last good one if the former is broken.
	reading configuration.Reading
	// lockErr is why the lock file cannot be used.
	lockErr error
	// hasWrites is set if no other instance served at the start, or if there is no lock file.
	hasWrites bool
	// hasPredecessor is set if another instance answered the kubelet at the start, or was about to.
	hasPredecessor bool
}

// hostWatch reads the host and follows its changes.
type hostWatch struct {
	// scanner scans the host. Only the loop uses it.
	scanner *inventory.Scanner
	// latest reads further attributes of the last snapshot. It is nil before the first scan.
	latest atomic.Pointer[inventory.Attributes]
	// paths looks up paths of the host for matching, without waiting for a file system that hangs.
	paths *hostPaths
	// watcher collects announced changes until a scan takes them.
	watcher *inventory.Watcher

	// specs watches the foreign CDI specs.
	specs *watch.Watcher
	// usesSpecs is set if the foreign specs decide about a device.
	usesSpecs atomic.Bool
}

// podWatch are the sources about pods.
type podWatch struct {
	// client asks the kubelet. It keeps answers, so that the loop and the scrapes share calls.
	client *kubelet.PodResources
	// cgroups says which pods have processes, whatever the kubelet believes.
	cgroups *cgroup.Tree
}

// page is what the status page, the metrics and the probes show.
type page struct {
	listener net.Listener
	// metrics is nil without a listener.
	metrics *status.Metrics
	// started is the start of the program.
	started time.Time
	// host is the name of the host, for a program that does not know the name of its node.
	host string
	// config is the configuration that is served.
	config atomic.Pointer[status.Config]
	// problems are reported by the loop, and published at the end of each pass.
	problems *problems
	// events are the latest changes of devices, registrations and configurations.
	events events
	// isWaiting is set while this instance has matched the host and waits for another one.
	isWaiting atomic.Bool
	// stuck has an element after a pass took as long as stuckAfter.
	stuck      chan struct{}
	stuckAfter time.Duration
	// explain explains resources without devices. It is nil before the first pass.
	explain atomic.Pointer[func(*config.Resource) string]
}

// New loads the configuration and prepares everything that can fail before the first device is
// served. Its errors name the flag to change.
func New(options Options) (_ *Agent, err error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	p := options.Paths
	a := &Agent{
		options: options,
		log:     options.Log,
		now:     options.Now,
		rescan:  newSignal(),
		wake:    newSignal(),

		holdsChanged: newSignal(),

		gate:      newGate(),
		announced: make(chan struct{}),

		holdsLoaded: make(chan struct{}),
		allSettled:  make(chan struct{}),

		predecessorEnded: newSignal(),
	}
	a.page.problems = newProblems(options.Log)
	a.page.started = time.Now()
	a.page.stuck = make(chan struct{}, 1)
	a.page.stuckAfter = stuckAfter
	a.page.host, _ = os.Hostname()
	a.host.scanner = inventory.New(p.Inventory())
	a.host.paths = newHostPaths(p, a.wake)
	a.host.watcher = inventory.NewWatcher(inventory.WatchOptions{Dev: p.Dev, Log: options.Log})
	if err := options.prepare(); err != nil {
		return nil, err
	}
	a.takeTurn()
	// Every return below sets err.
	defer func() {
		if err == nil {
			return
		}
		a.turn.close()
		if a.page.listener != nil {
			_ = a.page.listener.Close()
		}
	}()
	if err := a.listen(); err != nil {
		return nil, err
	}
	// This counts a try of the configuration, which no other mistake above should cost.
	if a.reader, a.found.reading, err = newReader(options, a.found.hasWrites); err != nil {
		return nil, err
	}
	a.showConfig()
	a.page.metrics.CountLoad(a.found.reading.Err)
	a.host.specs = watch.NewFiles("CDI specs", a.specDirs, a.log)
	a.kubelet = plugin.NewKubeletWatch(p.KubeletDir, a.log)
	a.pods.client = kubelet.NewPodResources(p.PodResources, a.now)
	a.pods.cgroups = cgroup.New(p.Cgroup)
	a.book = a.newBook()
	a.outputs = newOutputs(options, a.page.problems, a.wake)
	a.dra = newDRADriver(a)
	return a, nil
}

// takeTurn takes the right to write, unless another instance has it.
func (a *Agent) takeTurn() {
	var err error
	a.turn, err = openTurn(a.options.Paths.RunDir)
	if err == nil {
		a.found.hasWrites, err = a.turn.begin()
	}
	// Without a lock file, this instance serves what needs no link, and writes what it can.
	if err != nil {
		a.turn.close()
		a.turn = turn{}
		a.found.lockErr = err
		a.found.hasWrites = true
	}
	a.found.hasPredecessor = !a.found.hasWrites || a.turn.isTaken(answers)
}

// showConfig shows the configuration that was read at the start. A broken configuration on disk is an
// error of New only if there is no last good one. Otherwise, the page and the log report it.
func (a *Agent) showConfig() {
	name := a.options.configName()
	start := a.found.reading
	a.page.config.Store(&status.Config{
		Path:       name,
		Hash:       start.Config.Hash,
		Loaded:     time.Now(),
		Generation: 1,
		Broken:     start.Err,
		Problems:   split(start.Err),
	})
	if start.Err != nil {
		logBroken(a.log, name, start.Err)
	}
}

// sweep removes the sockets of killed instances. It is no error if the directory of the kubelet is
// missing: the plugins wait for it.
func (a *Agent) sweep() {
	swept, err := kubelet.Sweep(a.options.Paths.KubeletDir)
	if len(swept) > 0 {
		a.log.Info("removed stale sockets", "kubelet_dir", a.options.Paths.KubeletDir, "sockets", swept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("stale sockets can't be removed", "kubelet_dir", a.options.Paths.KubeletDir, "err", err)
	}
}

// hasKubelet reports whether there is a kubelet to serve.
func (o Options) hasKubelet() bool { return !o.CDIOnly }

// Settled is closed when the host was scanned and nothing is about to change without
// an event. It stays open while the host cannot be scanned.
func (a *Agent) Settled() <-chan struct{} { return a.allSettled }

// Reload reads the configuration again at once, as a change on disk does. It does not wait for the
// result.
func (a *Agent) Reload() { a.reader.Request() }

// Once makes the CDI specs of the present devices, as Run does for Options.CDIOnly, and ends. It
// returns the qualified names in the specs. It is an error if an instance is serving, or if ctx
// ends before the first pass. The caller sets Options.CDIOnly.
func (a *Agent) Once(ctx context.Context) (names []string, err error) {
	if !a.found.hasWrites {
		return nil, errServing(a.options.Paths)
	}
	a.outputs.health.Off = true
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_ = within(ctx, a.allSettled)
		cancel()
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

// hints say what to change, by flag. In a pod nobody sets flags, so that a hint also names the part of the
// DaemonSet behind the flag and its value in the chart.
var hints = map[string]string{
	"config": "write one, or name another file or directory with --config; generic-dp check reports what is wrong with it; " +
		`in a pod, volume "config" of the DaemonSet: the ConfigMap wants a key that ends in .toml; config or existingConfigMap in the chart's values`,
	"kubelet-dir": "it is where the kubelet keeps kubelet.sock; distributions may have it elsewhere, such as /var/snap/microk8s/common/var/lib/kubelet/device-plugins; " +
		`in a pod, volume "device-plugins" of the DaemonSet, paths.devicePlugins in the chart's values`,
	"run-dir": `in a pod, volume "run" of the DaemonSet, paths.run in the chart's values, is a hostPath that can be written, at the same path in the pod`,
	"state-dir": "make room in the directory and make it writable, or name another one with --state-dir; it is tried again with the next change; " +
		`in a pod, volume "state" of the DaemonSet, paths.state in the chart's values, is a hostPath that can be written`,
	"cdi-dir": "container.cdi needs a directory that container runtimes read CDI specs from, usually /var/run/cdi or /etc/cdi; " +
		`in a pod, volume "cdi" of the DaemonSet: cdi.enabled in the chart's values mounts cdi.directory`,
	"nfd-dir": "it is the features.d that Node Feature Discovery reads, and exists; " +
		`in a pod, volume "nfd" of the DaemonSet: nfd.directory in the chart's values is a hostPath that can be written`,
	"device-info-dir": "create the directory, or name that of Multus with --device-info-dir, usually /var/run/k8s.cni.cncf.io/devinfo/dp; " +
		"in a pod, a volume of the DaemonSet, extraVolumes in the chart's values, is a hostPath that can be written",
	"cgroup": `usually it is the host's /sys/fs/cgroup; in a pod, volume "cgroup" of the DaemonSet, read-only`,
	"listen": "another instance may be serving: generic-dp status asks it; --listen names another address, and an empty one is none; " +
		`in a pod, port "metrics" of the DaemonSet, listen.port in the chart's values: with hostNetwork the port has to be free on the node`,
}

// withHint adds the hint of a flag to an error, on a line of its own. It returns nil for nil.
func withHint(err error, flag string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n  hint: %s", err, hints[flag])
}

// prepare checks and makes the directories that serving requires. A writable state directory is
// optional, see loop.save.
func (o Options) prepare() error {
	p := o.Paths
	if !filepath.IsAbs(p.RunDir) && !o.CDIOnly {
		return fmt.Errorf("--run-dir: %q is not an absolute path", p.RunDir)
	}
	if err := makeRunDir(p); err != nil {
		return err
	}
	if !o.hasKubelet() {
		return nil
	}
	// The path of a socket has a maximum length (unix(7)), which is checked before any plugin
	// starts.
	if err := kubelet.CheckDir(p.KubeletDir); err != nil {
		return err
	}
	_, err := os.Stat(p.KubeletDir)
	if o.InPod && errors.Is(err, fs.ErrNotExist) {
		// A volume that is not mounted at the start never will be.
		return withHint(fmt.Errorf("--kubelet-dir: %w", err), "kubelet-dir")
	}
	// Outside a pod, the kubelet sees the same links as this process.
	if !o.InPod {
		return nil
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // without /proc there are no containers
	}
	defer mounts.Close()
	return withHint(output.CheckMount(p.RunDir, mounts), "run-dir")
}

// listen takes the address of metrics and status. It does nothing if there is no address.
func (a *Agent) listen() (err error) {
	if a.options.Listen == "" {
		return nil
	}
	a.page.listener, err = status.Listen(a.options.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return withHint(err, "listen")
	}
	if err == nil {
		a.page.metrics = status.New(a)
	}
	return err
}
