package agent

import (
	"errors"
	"strings"

	"github.com/generic-dp/generic-dp/metrics"
)

// Ready is nil when every resource that has devices is registered.
func (a *Agent) Ready() error {
	var missing []error
	for _, s := range a.resources {
		if err := s.ready(); err != nil {
			missing = append(missing, err)
		}
	}
	return errors.Join(missing...)
}

// ConfigOK is false while the last good configuration stands in for a broken
// one.
func (a *Agent) ConfigOK() bool { return a.broken == nil }

// Resources says how each resource is now.
func (a *Agent) Resources() []metrics.Resource {
	all := make([]metrics.Resource, len(a.resources))
	for i, s := range a.resources {
		all[i] = metrics.Resource{Name: s.config.Name, Registered: s.plugin.Registered()}
		list, _ := s.resource.Devices()
		for _, l := range list {
			if l.Healthy {
				all[i].Healthy++
			} else {
				all[i].Unhealthy++
			}
		}
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
	return sources
}
