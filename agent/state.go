package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/metrics"
	"github.com/generic-dp/generic-dp/podresources"
)

// errNotLooked is why nothing is ready that has just started.
var errNotLooked = errors.New("the host was not looked at yet")

// stuckAfter is how long the loop may be busy with one thing before it counts as
// stuck. Reading a host takes milliseconds, and whatever is known to hang has a
// limit of its own.
const stuckAfter = 2 * time.Minute

// Alive is nil when the host was looked at and the loop goes round. It does not
// depend on the kubelet.
func (a *Agent) Alive() error {
	if a.serving.Load() == nil {
		return errNotLooked
	}
	if since := a.busy.Load(); since != nil && time.Since(*since) > stuckAfter {
		return fmt.Errorf("the main loop has been busy with one look for %s", time.Since(*since).Round(time.Second))
	}
	return nil
}

// Ready is nil when every resource that has devices is registered.
func (a *Agent) Ready() error {
	if a.serving.Load() == nil {
		return errNotLooked
	}
	var missing []error
	if h := a.handed.Load(); h != nil && a.options.CDIOnly {
		missing = append(missing, h.err)
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

// Status says all there is to say at the moment.
func (a *Agent) Status(ctx context.Context) metrics.Status {
	s := metrics.Status{
		Version: a.options.Version, NodeName: a.options.NodeName, Command: "serve", Started: a.started,
		NotReady: split(a.Ready()), Config: a.Config(),
		Degraded: a.degraded(), Problems: []metrics.Problem{}, Resources: []metrics.Resource{}, Events: a.events.latest(),
	}
	if p := a.troubles.Load(); p != nil {
		s.Problems = append(s.Problems, *p...)
	}
	var answer *holding
	if a.options.CDIOnly {
		s.Command, s.HeldUnknown = "cdi", "there is no kubelet to ask"
	} else {
		kubelet, _ := a.kubelet.Kubelet()
		s.Kubelet = &metrics.Kubelet{Present: kubelet.Present, Restarts: max(0, int(kubelet.Generation)-1)}
		if answer = a.holders.ask(ctx); answer.err != nil {
			s.HeldUnknown, answer = answer.err.Error(), nil
		}
	}
	for _, m := range a.members() {
		s.Resources = append(s.Resources, m.status(answer))
	}
	return s
}

// status is how one resource is; answer is nil where the kubelet has none.
func (m member) status(answer *holding) metrics.Resource {
	r := metrics.Resource{Name: m.name, Retired: m.config == nil, Devices: []metrics.Device{}}
	if m.plugin != nil {
		status, _ := m.plugin.Status()
		r.Registered, r.Reason = status.Registered, status.Reason
	}
	held, free := 0, 0
	var holders map[string][]podresources.Holder
	if answer != nil {
		holders = answer.held[m.name]
		r.Slots.Held, r.Slots.Free = &held, &free
		if answer.allocatable != nil {
			count := len(answer.allocatable[m.name])
			r.Slots.Allocatable = &count
		}
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
			held++
		case l.Healthy:
			free++
		}
	}
	for _, e := range m.resource.now.Load().sorted() {
		d := metrics.NewDevice(e.Offer, e.Healthy, e.Reason)
		d.Held = append(d.Held, byDevice[d.ID]...)
		r.Devices = append(r.Devices, d)
	}
	return r
}

// degraded are the sources of events that are not to be had, and why.
func (a *Agent) degraded() []metrics.Problem {
	missing := []metrics.Problem{}
	for _, d := range a.watcher.Degraded() {
		source, reason, _ := strings.Cut(d, ":")
		missing = append(missing, metrics.Problem{Subject: source, Reason: strings.TrimSpace(reason)})
	}
	const noInotify = "inotify is not to be had"
	if a.kubelet.Degraded() {
		missing = append(missing, metrics.Problem{Subject: "kubelet directory", Reason: noInotify})
	}
	for _, w := range []*fileWatch{a.reader.files, a.specFiles} {
		if w.isDegraded() {
			missing = append(missing, metrics.Problem{Subject: w.source, Reason: noInotify})
		}
	}
	return missing
}

// publishTroubles shows what the loop has said and still holds.
func (l *loop) publishTroubles() {
	troubles := []metrics.Problem{}
	for subject, reason := range l.said {
		if reason != "" {
			troubles = append(troubles, metrics.Problem{Subject: subject, Reason: reason})
		}
	}
	for p := range l.problems {
		troubles = append(troubles, metrics.Problem{Subject: p.Subject, Reason: p.Reason})
	}
	for note := range l.notes {
		troubles = append(troubles, metrics.Problem{Subject: "configuration", Reason: note})
	}
	slices.SortFunc(troubles, func(a, b metrics.Problem) int {
		return strings.Compare(a.Subject+"\x00"+a.Reason, b.Subject+"\x00"+b.Reason)
	})
	l.troubles.Store(&troubles)
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
