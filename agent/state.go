package agent

import (
	"errors"
	"strings"

	"github.com/generic-dp/generic-dp/metrics"
)

// errNotLooked is why nothing is ready that has just started.
var errNotLooked = errors.New("the host was not looked at yet")

// Ready is nil when every resource that has devices is registered.
func (a *Agent) Ready() error {
	if a.serving.Load() == nil {
		return errNotLooked
	}
	var missing []error
	for _, m := range a.members() {
		missing = append(missing, m.ready())
	}
	return errors.Join(missing...)
}

// Config says which configuration is served, and why it is not the one on disk.
func (a *Agent) Config() metrics.Config {
	now := a.loaded.Load()
	return metrics.Config{Hash: now.hash, Loaded: now.at, Broken: now.broken}
}

// Resources says how each resource is now.
func (a *Agent) Resources() []metrics.Resource {
	var all []metrics.Resource
	for _, m := range a.members() {
		r := metrics.Resource{Name: m.name, Registered: m.plugin.Registered()}
		list, _ := m.resource.Devices()
		for _, l := range list {
			if l.Healthy {
				r.Healthy++
			} else {
				r.Unhealthy++
			}
		}
		all = append(all, r)
	}
	return all
}

// Degraded names the sources of events that are not to be had.
func (a *Agent) Degraded() []string {
	var sources []string
	for _, d := range a.watcher.Degraded() {
		source, _, _ := strings.Cut(d, ":")
		sources = append(sources, source)
	}
	if a.kubelet.Degraded() {
		sources = append(sources, "kubelet directory")
	}
	for _, w := range []*fileWatch{a.reader.files, a.specFiles} {
		if w.isDegraded() {
			sources = append(sources, w.source)
		}
	}
	return sources
}
