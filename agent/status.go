package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/watch"
	"github.com/generic-dp/generic-dp/metrics"
	"github.com/generic-dp/generic-dp/podresources"
)

// errNotScanned is why nothing is ready that has just started.
var errNotScanned = errors.New("the host was not scanned yet")

// stuckAfter is how long the loop may be busy with one pass before it counts as
// stuck. Scanning a host takes milliseconds, and whatever is known to hang has a
// limit of its own.
const stuckAfter = 2 * time.Minute

// Alive is nil when the host was scanned and the loop is not stuck. It does not
// depend on the kubelet.
func (a *Agent) Alive() error {
	if a.serving.Load() == nil {
		return errNotScanned
	}
	if since := a.busy.Load(); since != nil && time.Since(*since) > stuckAfter {
		return fmt.Errorf("the main loop is stuck in one pass for %s", time.Since(*since).Round(time.Second))
	}
	return nil
}

// Ready is nil when every resource that has devices is registered.
func (a *Agent) Ready() error {
	if a.serving.Load() == nil {
		return errNotScanned
	}
	var missing []error
	if made := a.injector.names.Load(); made != nil && a.options.CDIOnly {
		missing = append(missing, made.err)
	}
	for _, m := range a.members() {
		missing = append(missing, m.ready())
	}
	return errors.Join(missing...)
}

// Config says which configuration is served, and why it is not the one on disk.
func (a *Agent) Config() metrics.Config {
	now := a.loaded.Load()
	return metrics.Config{
		Path: a.options.Config, Hash: now.hash, Loaded: now.at, Generation: now.generation,
		Broken: now.broken, Problems: split(now.broken),
	}
}

const (
	// holdersFor is how long an answer of the kubelet is good for who wants to see
	// it: it answers 100 calls a second of all its clients together.
	holdersFor = 3 * time.Second
	// holdersWait is how long whoever asks waits for one: a scrape must not hang
	// with the kubelet.
	holdersWait = 500 * time.Millisecond
)

// Status says all there is to say at the moment.
func (a *Agent) Status(ctx context.Context) metrics.Status {
	s := metrics.Status{
		Version: a.options.Version, NodeName: a.options.NodeName, Command: "serve", Started: a.started,
		NotReady: split(a.Ready()), Config: a.Config(),
		Degraded: a.degraded(), Problems: a.problems.latest(), Resources: []metrics.Resource{}, Events: a.events.latest(),
	}
	var held podresources.Held
	var allocatable map[string][]string
	if a.options.CDIOnly {
		s.Command, s.HeldUnknown = "cdi", "there is no kubelet to ask"
	} else {
		kubelet, _ := a.kubelet.Kubelet()
		s.Kubelet = &metrics.Kubelet{Present: kubelet.Present, Restarts: max(0, int(kubelet.Generation)-1)}
		ctx, cancel := context.WithTimeout(ctx, holdersWait)
		defer cancel()
		since := a.now().Add(-holdersFor)
		var err error
		if held, _, err = a.pods.Held(ctx, since); err != nil {
			s.HeldUnknown = err.Error()
		} else { // older kubelets may have this switched off
			allocatable, _, _ = a.pods.Allocatable(ctx, since)
		}
		a.heldError.log(a.log, err)
	}
	for _, m := range a.members() {
		s.Resources = append(s.Resources, m.status(held, allocatable))
	}
	return s
}

// heldError is why the holders are unknown to people and Prometheus.
type heldError struct {
	mu     sync.Mutex
	logged string
}

// log logs an error that differs from the last.
func (h *heldError) log(log *slog.Logger, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != h.logged {
		log.Info("held devices are unknown: metrics and status omit them", "reason", why)
	}
	h.logged = why
}

// status is the state of one resource; held and allocatable are nil where the
// kubelet does not say.
func (m member) status(held podresources.Held, allocatable map[string][]string) metrics.Resource {
	r := metrics.Resource{Name: m.name, Retired: m.config == nil, Devices: []metrics.Device{}}
	if m.plugin != nil {
		status, _ := m.plugin.Status()
		r.Registered, r.Reason = status.Registered, status.Reason
	}
	slots, free := 0, 0
	holders := held[m.name]
	if held != nil {
		r.Slots.Held, r.Slots.Free = &slots, &free
	}
	if allocatable != nil {
		count := len(allocatable[m.name])
		r.Slots.Allocatable = &count
	}
	list, _ := m.resource.Devices()
	byDevice := map[string][]metrics.Holder{}
	for _, l := range list {
		if l.Healthy {
			r.Slots.Healthy++
		} else {
			r.Slots.Unhealthy++
		}
		id, _ := device.SplitSlot(l.ID)
		for _, h := range holders[l.ID] {
			byDevice[id] = append(byDevice[id], metrics.Holder{ID: l.ID, Namespace: h.Namespace, Pod: h.Pod, Container: h.Container})
		}
		switch {
		case len(holders[l.ID]) > 0:
			slots++
		case l.Healthy:
			free++
		}
	}
	for _, e := range m.resource.now.Load().entries {
		d := metrics.NewDevice(e.Offer, e.Healthy, e.Reason)
		d.Held = append(d.Held, byDevice[d.ID]...)
		r.Devices = append(r.Devices, d)
	}
	return r
}

// degraded are the unavailable sources of events, and why.
func (a *Agent) degraded() []metrics.Problem {
	missing := []metrics.Problem{}
	for _, d := range a.watcher.Degraded() {
		source, reason, _ := strings.Cut(d, ":")
		missing = append(missing, metrics.Problem{Subject: source, Reason: strings.TrimSpace(reason)})
	}
	if a.kubelet.Degraded() {
		missing = append(missing, metrics.Problem{Subject: "kubelet directory", Reason: "inotify is unavailable"})
	}
	for _, w := range []*watch.Watcher{a.reader.files, a.specFiles} {
		if err := w.Degraded(); err != nil {
			missing = append(missing, metrics.Problem{Subject: w.Source, Reason: err.Error()})
		}
	}
	return missing
}

// split is an error line by line, each with its hint; no error is none.
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
