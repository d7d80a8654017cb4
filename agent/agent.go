// Package agent wires the parts into the running program: it looks at the
// host when something changed, and carries out in order what follows. It has
// no rule of its own: what is selected is decided by package matchers, how a
// device lives by package ledger, how a resource is served by package plugin.
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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/links"
	"github.com/generic-dp/generic-dp/metrics"
	"github.com/generic-dp/generic-dp/plugin"
	"github.com/generic-dp/generic-dp/podresources"
)

// Options of an Agent, from the flags.
type Options struct {
	Config   string // file or directory
	Allow    config.Allow
	Paths    Paths
	NodeName string
	Listen   string // address of metrics and probes; empty for none
	// CDIOnly: there is no kubelet. Every resource is handed over by CDI specs
	// that are kept current, for whoever starts containers.
	CDIOnly bool
	// InPod: what an administrator has to change is in the manifest.
	InPod   bool
	Version string
	Log     *slog.Logger // nil discards
}

// Agent is the running program. Make it with New, run it once with Run.
type Agent struct {
	options Options
	log     *slog.Logger
	now     func() time.Time // for the life of devices
	source  source
	config  *config.Config // the one that is served; after New only the loop looks
	loaded  atomic.Pointer[loaded]
	serving atomic.Pointer[set] // nil before the first look at the host
	handed  atomic.Pointer[handed]

	// What the status page shows besides.
	started  time.Time
	events   events
	troubles atomic.Pointer[[]metrics.Problem]
	busy     atomic.Pointer[time.Time] // since when the loop is; nil while it waits
	holders  *holders

	scanner  *inventory.Scanner
	watcher  *inventory.Watcher
	kubelet  *plugin.KubeletWatch
	pods     *podresources.Client
	links    *links.Tree
	specs    *cdi.Writer
	others   *cdi.HostSpecs
	lock     *lock
	listener net.Listener
	metrics  *metrics.Metrics // nil where nobody listens

	reader    *configReader
	specFiles *fileWatch    // the CDI specs of others
	usesSpecs atomic.Bool   // the configuration speaks of them
	settled   chan struct{} // closed after the first look
	looks     looks
}

// New loads the configuration and prepares everything that can fail before
// the first device is served. Its errors name the flag to change.
func New(options Options) (*Agent, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if err := options.prepare(); err != nil {
		return nil, err
	}
	p := options.Paths
	a := &Agent{
		options: options, log: options.Log, now: time.Now, started: time.Now(), settled: make(chan struct{}), looks: make(looks),
		source: source{path: options.Config, stateDir: p.StateDir, cdiDir: p.CDIDir, allow: options.Allow, cdiOnly: options.CDIOnly, inPod: options.InPod},
	}
	cfg, first, err := a.source.load()
	if err != nil {
		return nil, err
	}
	a.config = cfg
	a.loaded.Store(&loaded{hash: cfg.Hash, at: time.Now(), generation: 1, broken: first.err})
	if first.err != nil {
		logBroken(a.log, options.Config, first.err)
	}
	a.reader = newConfigReader(a.source, first, a.log)
	if a.lock, err = openLock(p.RunDir); err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	if err := a.listen(); err != nil {
		return nil, err
	}
	a.metrics.CountLoad(first.err)
	a.build()
	return a, nil
}

// build makes the parts; none of them runs yet.
func (a *Agent) build() {
	p := a.options.Paths
	a.scanner = inventory.New(p.Inventory(a.log))
	a.watcher = inventory.NewWatcher(inventory.WatchOptions{Dev: p.Dev, Log: a.log})
	a.kubelet = plugin.NewKubeletWatch(p.KubeletDir, a.log)
	a.pods = podresources.New(p.PodResources)
	a.holders = &holders{client: a.pods, log: a.log}
	a.links = &links.Tree{Dir: filepath.Join(p.RunDir, linksName)}
	a.specs = p.specWriter()
	a.others = p.hostSpecs()
	a.specFiles = newFileWatch("CDI specs", a.specDirs, a.log)
}

// Run serves until ctx is cancelled: then streams end, sockets are removed,
// and nil is returned. Links and specs stay, or an upgrade would break the
// containers that restart meanwhile.
func (a *Agent) Run(ctx context.Context) error {
	defer a.lock.close()
	a.log.Info("starting", "version", a.options.Version, "config", a.options.Config, "resources", len(a.config.Resources))
	defer a.log.Info("stopped")
	group, ctx := errgroup.WithContext(ctx)
	if a.listener != nil {
		group.Go(func() error { return a.metrics.Serve(ctx, a.listener) })
	}
	if !a.options.CDIOnly {
		a.sweep()
		group.Go(func() error { return a.kubelet.Run(ctx) })
	}
	group.Go(func() error { return a.watcher.Run(ctx) })
	group.Go(func() error { return a.reader.run(ctx) })
	group.Go(func() error { return newLoop(a, group).run(ctx) })
	return group.Wait()
}

// sweep removes sockets that killed instances left. A kubelet directory that
// is not there has none, and is waited for elsewhere.
func (a *Agent) sweep() {
	swept, err := plugin.SweepSockets(a.options.Paths.KubeletDir)
	if len(swept) > 0 {
		a.log.Info("removed sockets that nobody serves", "kubelet_dir", a.options.Paths.KubeletDir, "sockets", swept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("sockets that nobody serves can't be removed", "kubelet_dir", a.options.Paths.KubeletDir, "reason", err)
	}
}

// Settled is closed when the host was looked at and nothing is about to change
// by itself.
func (a *Agent) Settled() <-chan struct{} { return a.settled }

// Reload reads the configuration again at once, as a change on disk does.
func (a *Agent) Reload() { a.reader.ask() }

// checkRunDir is an error if this is a pod and its run directory is not the
// host's: the container runtime would not find the links.
func checkRunDir(dir string, inPod bool) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // no proc, no containers
	}
	defer mounts.Close()
	return links.CheckRunDir(dir, mounts, inPod)
}
