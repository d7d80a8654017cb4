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
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/links"
	"github.com/generic-dp/generic-dp/metrics"
	"github.com/generic-dp/generic-dp/plugin"
	"github.com/generic-dp/generic-dp/podresources"
)

// Options of an Agent, from the flags.
type Options struct {
	Config   string // file or directory
	Paths    Paths
	NodeName string
	Listen   string // address of metrics and probes; empty for none
	Version  string
	Log      *slog.Logger // nil discards
}

// Agent is the running program. Make it with New, run it once with Run.
type Agent struct {
	options Options
	log     *slog.Logger
	config  *config.Config
	broken  error // why the configuration on disk is not the one that is served

	scanner  *inventory.Scanner
	watcher  *inventory.Watcher
	kubelet  *plugin.KubeletWatch
	pods     *podresources.Client
	links    *links.Tree
	specs    *cdi.Writer
	lock     *lock
	listener net.Listener
	metrics  *metrics.Metrics // nil where nobody listens

	resources []*served // in configuration order
	byName    map[string]*served
	settled   chan struct{} // closed after the first look
}

// New loads the configuration and prepares everything that can fail before
// the first device is served. Its errors name the flag to change.
func New(options Options) (*Agent, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	p := options.Paths
	for _, d := range []struct{ flag, dir string }{{"state-dir", p.StateDir}, {"run-dir", p.RunDir}} {
		if err := writable(d.flag, d.dir); err != nil {
			return nil, err
		}
	}
	if err := checkRunDir(p.RunDir); err != nil {
		return nil, err
	}
	if err := plugin.CheckDir(p.KubeletDir); err != nil {
		return nil, err
	}
	cfg, broken, err := loadConfig(options.Config, p.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{options: options, log: options.Log, config: cfg, broken: broken, byName: map[string]*served{}, settled: make(chan struct{})}
	if broken != nil {
		logBroken(a.log, options.Config, broken)
	}
	if usesCDI(cfg) {
		if err := writable("cdi-dir", p.CDIDir); err != nil {
			return nil, err
		}
	}
	if a.lock, err = openLock(p.RunDir); err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	if options.Listen != "" {
		if a.listener, err = metrics.Listen(options.Listen); err != nil {
			return nil, err
		}
		a.metrics = metrics.New(options.Version, a)
	}
	a.build()
	return a, nil
}

// build makes the parts; none of them runs yet.
func (a *Agent) build() {
	p := a.options.Paths
	a.scanner = inventory.New(inventory.Options{Sysfs: p.Sysfs, Dev: p.Dev, Log: a.log})
	a.watcher = inventory.NewWatcher(inventory.WatchOptions{Dev: p.Dev, Log: a.log})
	a.kubelet = plugin.NewKubeletWatch(p.KubeletDir, a.log)
	a.pods = podresources.New(p.PodResources)
	a.links = &links.Tree{Dir: filepath.Join(p.RunDir, linksName)}
	a.specs = &cdi.Writer{Dir: p.CDIDir}
	for i := range a.config.Resources {
		s := a.newServed(&a.config.Resources[i])
		a.resources = append(a.resources, s)
		a.byName[s.resource.name] = s
	}
}

// Run serves until ctx is cancelled: then streams end, sockets are removed,
// and nil is returned. Links and specs stay, or an upgrade would break the
// containers that restart meanwhile.
func (a *Agent) Run(ctx context.Context) error {
	defer a.lock.close()
	a.log.Info("starting", "version", a.options.Version, "config", a.options.Config, "resources", len(a.resources))
	defer a.log.Info("stopped")
	group, ctx := errgroup.WithContext(ctx)
	if a.listener != nil {
		group.Go(func() error { return a.metrics.Serve(ctx, a.listener) })
	}
	a.sweep()
	group.Go(func() error { return a.kubelet.Run(ctx) })
	group.Go(func() error { return a.watcher.Run(ctx) })
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

// Names lists the resources in the order of the configuration.
func (a *Agent) Names() []string {
	names := make([]string, len(a.resources))
	for i, s := range a.resources {
		names[i] = s.config.Name
	}
	return names
}

// Entries lists the devices of a resource as they are now, by ID.
func (a *Agent) Entries(name string) []ledger.Entry {
	s := a.byName[name]
	if s == nil {
		return nil
	}
	entries := slices.Collect(maps.Values(s.resource.now.Load().entries))
	slices.SortFunc(entries, func(x, y ledger.Entry) int { return device.CompareNatural(x.Offer.ID, y.Offer.ID) })
	return entries
}

// usesCDI reports whether any resource hands over CDI names.
func usesCDI(cfg *config.Config) bool {
	for _, r := range cfg.Resources {
		if r.Container.CDI {
			return true
		}
	}
	return false
}

// checkRunDir is an error if this is a pod and its run directory is not the
// host's: the container runtime would not find the links.
func checkRunDir(dir string) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // no proc, no containers
	}
	defer mounts.Close()
	return links.CheckRunDir(dir, mounts, os.Getenv("KUBERNETES_SERVICE_HOST") != "")
}
