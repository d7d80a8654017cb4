package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
	"github.com/generic-dp/generic-dp/matchers"
)

// errNotScanned is the state until the first scan.
var errNotScanned = errors.New("the host was not scanned yet")

// Alive returns nil if the host was scanned and matched, whether there is a kubelet or not. It is the startup
// probe. Any goroutine may call it.
func (a *Agent) Alive() error {
	if a.serving.Load() == nil && !a.page.isWaiting.Load() {
		return errNotScanned
	}
	return nil
}

// Ready returns nil if every resource that has devices is registered, or if this instance is ready to
// serve when another one ends. It is the readiness probe.
// The error has one line for each reason why resources are missing, and for specs that could not be written
// without a kubelet.
func (a *Agent) Ready() error {
	if a.page.isWaiting.Load() {
		return nil
	}
	if a.serving.Load() == nil {
		return errNotScanned
	}
	var errs []error
	if made := a.outputs.names.Load(); made != nil && a.options.CDIOnly {
		errs = append(errs, made.err)
	}
	missing := map[string][]string{} // resources by reason
	for _, r := range a.members() {
		if reason, isMissing := r.missing(); isMissing {
			missing[reason] = append(missing[reason], r.Name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(missing)) {
		errs = append(errs, fmt.Errorf("not registered: %s: %s", strings.Join(missing[reason], ", "), reason))
	}
	return errors.Join(errs...)
}

// Config returns the served configuration, and why it is not the one on disk. It returns a copy.
func (a *Agent) Config() status.Config { return *a.page.config.Load() }

const (
	// holdersFor is how old the kubelet's answer on a status page may be: it accepts
	// 100 calls a second from all clients together.
	holdersFor = 3 * time.Second
	// holdersWait is how long a scrape waits for the kubelet.
	holdersWait = 500 * time.Millisecond
)

// Status returns the current state for the status page and the metrics. It asks the kubelet for the
// holders, but waits only briefly: a page without holders is better than none. It is safe for
// concurrent use, and takes no lock of the loop.
func (a *Agent) Status(ctx context.Context) status.Status {
	s := status.Status{
		Version:   a.options.Version,
		NodeName:  a.options.NodeName,
		Host:      a.page.host,
		Command:   "serve",
		Started:   a.page.started,
		NotReady:  split(a.Ready()),
		Config:    a.Config(),
		Degraded:  a.degraded(),
		Problems:  *a.page.problems.published.Load(),
		Resources: []status.Resource{},
		Events:    a.page.events.latest(),
	}
	var held kubelet.Holders // nil if they are unknown
	if a.options.CDIOnly {
		s.Command = "serve --no-kubelet"
		s.HeldUnknown = "there is no kubelet to ask"
	} else {
		kubelet, _ := a.kubelet.Kubelet()
		s.Kubelet = &status.Kubelet{
			Present: kubelet.Present,
			// The first socket of the kubelet is no restart. The generation is 0 without one.
			Restarts: max(0, int(kubelet.Generation)-1),
		}
		ctx, cancel := context.WithTimeout(ctx, holdersWait)
		defer cancel()
		var err error
		held, err = a.pods.client.Holders(ctx, a.now().Add(-holdersFor))
		if err != nil {
			s.HeldUnknown = err.Error()
		}
	}
	explain := a.page.explain.Load()
	for _, r := range a.members() {
		now := r.now.Load()
		shown := r.status(now, held)
		if len(shown.Devices) == 0 {
			shown.NoDevices = now.waitsFor()
		}
		// Only then is the explanation computed. It has no reason for devices that match.
		if len(shown.Devices) == 0 && shown.NoDevices == "" && explain != nil {
			shown.NoDevices = (*explain)(now.config)
		}
		s.Resources = append(s.Resources, shown)
	}
	return s
}

// explainer returns a function that says why a resource of a configuration has no devices on the host of one
// pass. That takes as long as matching, so that it is found out when somebody asks, and once. The reason is
// empty for a resource that is not configured.
func explainer(cfg *config.Config, v *View) func(*config.Resource) string {
	// The view is kept until the next pass, so it is kept without what was matched.
	host := &View{Snapshot: v.Snapshot, Forms: v.Forms, options: v.options}
	all := sync.OnceValue(func() []matchers.Explanation {
		return host.Explain(cfg, nil, nil)
	})
	return func(c *config.Resource) string {
		for i := range cfg.Resources {
			// The explanations have the order of the resources.
			if &cfg.Resources[i] == c {
				return all()[i].Reason
			}
		}
		return ""
	}
}

// degraded are the unavailable sources of events, and why. The list is empty, not nil, if all
// sources work. A missing source costs time, not correctness: what it would announce is polled.
func (a *Agent) degraded() []status.Problem {
	missing := []status.Problem{}
	for _, d := range a.host.watcher.Degraded() {
		missing = append(missing, status.Problem(d))
	}
	for _, w := range []*watch.Watcher{a.kubelet.Files, a.reader.Files, a.host.specs} {
		if err := w.Degraded(); err != nil {
			missing = append(missing, status.Problem{Subject: w.Source, Reason: err.Error()})
		}
	}
	return missing
}

// split returns the lines of an error. A hint is part of the line before it. It returns an empty
// list, not nil, for nil: the page is also JSON.
func split(err error) []string {
	list := []string{}
	if err == nil {
		return list
	}
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		line = strings.TrimSpace(line)
		if last := len(list) - 1; last >= 0 && strings.HasPrefix(line, "hint: ") {
			list[last] += "; " + line
			continue
		}
		list = append(list, line)
	}
	return list
}
