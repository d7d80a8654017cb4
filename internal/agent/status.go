package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/ledger"
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
// The error has one line for each resource that is missing, and for specs that could not be written
// without a kubelet.
func (a *Agent) Ready() error {
	if a.page.isWaiting.Load() {
		return nil
	}
	if a.serving.Load() == nil {
		return errNotScanned
	}
	var missing []error
	if made := a.outputs.names.Load(); made != nil && a.options.CDIOnly {
		missing = append(missing, made.err)
	}
	for _, r := range a.members() {
		missing = append(missing, r.ready())
	}
	return errors.Join(missing...)
}

// LeftOut counts what the lists have no room for.
func (a *Agent) LeftOut() status.LeftOut {
	if published := a.page.leftOut.Load(); published != nil {
		return *published
	}
	return status.LeftOut{}
}

// Address is the address of the status page, empty if there is none. It has the port that the kernel
// chose if the configured port is 0.
func (a *Agent) Address() string {
	if a.page.listener == nil {
		return ""
	}
	return a.page.listener.Addr().String()
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
		LeftOut:   a.LeftOut(),
		Resources: []status.Resource{},
		Events:    a.page.events.latest(),
	}
	var known kubeletAnswer
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
		var err error
		known, err = a.askKubelet(ctx)
		if err != nil {
			s.HeldUnknown = err.Error()
		}
	}
	explain := a.page.explain.Load()
	for _, r := range a.members() {
		now := r.now.Load()
		shown := r.status(now, known)
		// Only then is the explanation computed.
		if len(shown.Devices) == 0 && explain != nil {
			shown.NoDevices = explain.reason(now.config)
		}
		s.Resources = append(s.Resources, shown)
	}
	return s
}

// kubeletAnswer is what the kubelet says about devices. Its fields are nil if they are unknown.
type kubeletAnswer struct {
	held podresources.Holders
	// allocatable has the allocatable slots by resource. Some kubelets do not report them.
	allocatable map[string][]string
}

// askKubelet asks the kubelet for holders. The error says why they are unknown. It is logged only
// when it changes, because every scrape asks.
func (a *Agent) askKubelet(ctx context.Context) (kubeletAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, holdersWait)
	defer cancel()
	// Both questions accept an answer of that age, which other scrapes may have caused.
	since := a.now().Add(-holdersFor)
	held, err := a.pods.client.Holders(ctx, since)
	if err != nil {
		last := a.page.heldError.Swap(err.Error())
		if last != err.Error() {
			a.log.Info("held devices are unknown: metrics and status omit them", "err", err)
		}
		return kubeletAnswer{}, err
	}
	a.page.heldError.Store("")
	// A kubelet without this method still reports the holders.
	allocatable, _ := a.pods.client.Allocatable(ctx, since)
	answer := kubeletAnswer{
		held:        held,
		allocatable: allocatable,
	}
	return answer, nil
}

// explainer says why resources have no devices. It explains them only when somebody asks, because
// that takes as long as matching.
type explainer struct {
	config *config.Config
	all    func() []matchers.Explanation
}

// newExplainer returns an explainer for the configuration and the host of one pass. Explaining is
// done at most once, in the goroutine that asks first.
func newExplainer(cfg *config.Config, v *View) *explainer {
	// The view is kept until the next pass, so it is kept without what was matched.
	host := &View{Snapshot: v.Snapshot, Forms: v.Forms, options: v.options}
	explain := func() []matchers.Explanation {
		return host.Explain(cfg, nil, nil)
	}
	return &explainer{config: cfg, all: sync.OnceValue(explain)}
}

// reason is why a resource has no devices. It is empty for a resource that is not configured.
func (e *explainer) reason(c *config.Resource) string {
	for i := range e.config.Resources {
		// The explanations have the order of the resources.
		if &e.config.Resources[i] == c {
			return e.all()[i].Reason
		}
	}
	return ""
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

// problems are the current problems. Each pass of the loop reports all problems that it finds. Only
// the first of consecutive passes with the same problem logs it.
type problems struct {
	log       *slog.Logger
	last, now map[status.Problem]bool
	published atomic.Pointer[[]status.Problem] // of the last pass, sorted
}

// newProblems returns an empty list of problems, which is published at once.
func newProblems(log *slog.Logger) *problems {
	p := &problems{log: log, now: map[status.Problem]bool{}}
	p.published.Store(&[]status.Problem{})
	return p
}

// warn reports why something is a problem, unless err is nil; details are for the log. Only the
// loop calls it, between two calls of endPass.
func (p *problems) warn(subject string, err error, message string, details ...any) {
	if err == nil {
		return
	}
	problem := status.Problem{Subject: subject, Reason: err.Error()}
	// Equal subjects with another reason are another problem, and are logged again.
	if !p.last[problem] && !p.now[problem] {
		p.log.Warn(message, append([]any{"subject", subject, "err", problem.Reason}, details...)...)
	}
	p.now[problem] = true
}

// endPass publishes the problems of a pass for the status page. Problems that the pass did not
// report have ended. Their end is not logged.
func (p *problems) endPass() {
	// The published list stays the same while nothing changes, so that a quiet node has no work.
	if !maps.Equal(p.last, p.now) {
		list := slices.AppendSeq([]status.Problem{}, maps.Keys(p.now))
		sort.Slice(list, func(i, j int) bool {
			a := list[i]
			b := list[j]
			order := cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
			return order < 0
		})
		p.published.Store(&list)
	}
	p.last = p.now
	p.now = map[status.Problem]bool{}
}

// report reports the problems of a pass, and logs what has changed since the last one. failed says
// why devices cannot be injected, by ID.
func (l *loop) report(v *View, out ledger.Output, failed map[string]error) {
	for _, p := range v.Problems {
		l.page.problems.warn(p.Subject, errors.New(p.Reason), "can't be read on the host")
	}
	for _, n := range v.Matched.Notes {
		if n.Error {
			l.page.problems.warn("configuration", errors.New(n.Place+": "+n.Text), "configuration does not fit this host",
				"hint", cmp.Or(n.Hint, "see check"),
			)
		}
	}
	if l.prober.Stuck() {
		l.page.problems.warn("health checks", errChecksStuck, "health checks hang")
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		l.page.problems.warn(id, failed[id], "device can't be offered")
	}
	for _, r := range out.Resources {
		for _, w := range r.Waiting {
			l.page.problems.warn(w.ID, errors.New(w.Reason), "device is not listed yet")
		}
	}
	l.reportLeftOut(v, out)
	// Most passes change no device, and then need no nodes.
	nodes := sync.OnceValue(func() map[string][]string {
		return nodesByDevice(v)
	})
	for _, c := range out.Changes {
		l.reportChange(c, failed[c.ID], nodes)
	}
}

// nodesByDevice returns the current nodes and interfaces of the offered devices, by ID.
func nodesByDevice(v *View) map[string][]string {
	nodes := make(map[string][]string)
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			d := status.NewDevice(m.Offers[i], true, "")
			nodes[d.ID] = d.Host()
		}
	}
	return nodes
}

var errChecksStuck = errors.New("too many hang in the kernel: other nodes and attributes keep the result of their last check until some return")

var errHeldUnlisted = errors.New("more absent devices are held, as the kubelet says, than the lists have room for: those beyond are not listed")

// reportLeftOut publishes and logs what the lists have no room for. Nothing may be left out
// silently.
func (l *loop) reportLeftOut(v *View, out ledger.Output) {
	next := status.LeftOut{
		Devices: v.Matched.LeftOut + out.WithoutRoom,
		Held:    out.HeldUnlisted,
		// This is a counter since the start. The other fields are the present state.
		AbsentSlots: l.agent.LeftOut().AbsentSlots + out.Dropped,
	}
	if out.Dropped > 0 {
		l.log.Warn("slots of absent devices, which no container holds, left the lists early: the lists had no room", "slots", out.Dropped)
	}
	if next.Held > 0 {
		l.page.problems.warn("held devices", errHeldUnlisted, "the lists for the kubelet are full")
	}
	l.page.leftOut.Store(&next)
}

// reportRefused reports the slots that a pod still uses after the kubelet has freed them. The
// book finds them in its own goroutine, and wakes the loop.
func (l *loop) reportRefused() {
	refused := l.book.Refused()
	for _, slot := range slices.Sorted(maps.Keys(refused)) {
		l.page.problems.warn(slot, errors.New(refused[slot]), "device is unhealthy: the kubelet has forgotten a pod that still uses it")
	}
}

// reportChange logs that a device was added, changed its health or left. failed is why the device
// cannot be injected, nil if it can. Each change is also an event of the status page.
func (l *loop) reportChange(c ledger.Change, failed error, nodes func() map[string][]string) {
	log := l.log.With("resource", c.Resource, "id", c.ID)
	event := status.Unhealthy + ": " + c.Reason
	switch {
	case c.Left:
		event = status.LeftList + c.Reason
		log.Info("device left the list", "reason", c.Reason)
	case c.Healthy && failed != nil:
		event = status.Unhealthy + ": " + failed.Error()
	case c.Healthy:
		event = status.Healthy
		// After a replug, the device may have another node.
		log.Info("device is offered", "health", status.Healthy, "nodes", nodes()[c.ID])
	default:
		log.Log(context.Background(), levelOf(c.Reason), "device can't be used now", "health", status.Unhealthy, "reason", c.Reason)
	}
	l.page.events.add(c.Resource, c.ID, event)
}

// levelOf returns the level of the log line for a device that turns Unhealthy: a pod cannot use it,
// unless that ends within milliseconds or was requested.
func levelOf(reason string) slog.Level {
	switch reason {
	case health.ReasonPending:
		return slog.LevelDebug // the result follows within milliseconds
	case ledger.ReasonSettling, ledger.ReasonSlotRetired, ledger.ReasonRemoved:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// maxEvents is how many events the status page shows. A hub with ten devices that is plugged in
// again causes about sixty.
const maxEvents = 100

// events are the latest events.
type events struct {
	mu   sync.Mutex
	list []status.Event // oldest first
}

// add adds an event; resource and id may be empty. The oldest event makes room. Any goroutine may
// call it.
func (e *events) add(resource, id, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, status.Event{
		Time:     time.Now(),
		Resource: resource,
		ID:       id,
		What:     what,
	})
}

// latest returns the events, oldest first. The result is a copy, and is not nil.
func (e *events) latest() []status.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]status.Event{}, e.list...)
}
