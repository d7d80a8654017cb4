package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/metrics"
)

// problems are what is wrong now. Each is reported in every pass of the loop for
// as long as it lasts, and logged in the first.
type problems struct {
	log       *slog.Logger
	last, now map[metrics.Problem]bool
	published atomic.Pointer[[]metrics.Problem] // of the last pass
}

// warn reports a problem; details are logged with it.
func (p *problems) warn(subject, reason, message string, details ...any) {
	problem := metrics.Problem{Subject: subject, Reason: reason}
	if !p.last[problem] && !p.now[problem] {
		p.log.Warn(message, append([]any{"subject", subject, "reason", reason}, details...)...)
	}
	if p.now == nil {
		p.now = map[metrics.Problem]bool{}
	}
	p.now[problem] = true
}

// warnError is warn unless err is nil.
func (p *problems) warnError(subject string, err error, message string, details ...any) {
	if err != nil {
		p.warn(subject, err.Error(), message, details...)
	}
}

// endPass publishes the problems of a pass for the status page.
func (p *problems) endPass() {
	if p.published.Load() == nil || !maps.Equal(p.last, p.now) {
		list := slices.SortedFunc(maps.Keys(p.now), func(a, b metrics.Problem) int {
			return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
		})
		p.published.Store(&list)
	}
	p.last, p.now = p.now, nil
}

// latest are the problems of the last pass, sorted.
func (p *problems) latest() []metrics.Problem {
	list := []metrics.Problem{}
	if published := p.published.Load(); published != nil {
		list = append(list, *published...)
	}
	return list
}

// report reports the problems of a pass and logs what changed.
func (l *loop) report(v *View, out ledger.Output, failed map[string]error) {
	for _, p := range v.Problems {
		l.problems.warn(p.Subject, p.Reason, "can't be read on the host")
	}
	for _, n := range v.Matched.Notes {
		if n.Error {
			l.problems.warn("configuration", n.Place+": "+n.Text, "configuration does not fit this host", "hint", cmp.Or(n.Hint, "see check"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		l.problems.warn(id, failed[id].Error(), "device can't be injected")
	}
	for _, r := range out.Resources {
		for _, w := range r.Waiting {
			l.problems.warn(w.ID, "still listed by "+w.By, "device is not listed yet: another resource still has it")
		}
	}
	for _, c := range out.Changes {
		l.reportChange(c, failed[c.ID])
	}
}

// reportChange logs that a device turned up, changed its health or left.
func (l *loop) reportChange(c ledger.Change, failed error) {
	log := l.log.With("resource", c.Resource, "id", c.ID)
	event := metrics.Unhealthy + ": " + c.Reason
	switch {
	case c.Left:
		event = "left the list: " + c.Reason
		log.Info("device left the list", "reason", c.Reason)
	case c.Healthy && failed != nil:
		event = metrics.Unhealthy + ": " + failed.Error()
	case c.Healthy:
		event = metrics.Healthy
		log.Info("device is offered", "health", metrics.Healthy)
	default:
		level := slog.LevelInfo
		if c.Reason == health.ReasonPending {
			level = slog.LevelDebug // the result is about to come
		}
		log.Log(context.Background(), level, "device can't be used now", "health", metrics.Unhealthy, "reason", c.Reason)
	}
	l.events.add(c.Resource, c.ID, event)
}

// maxEvents is how many events the status page shows: a hub with ten devices that
// is pulled and plugged in again makes some sixty.
const maxEvents = 100

// events are the latest things that happened.
type events struct {
	mu   sync.Mutex
	list []metrics.Event // oldest first
}

// add adds an event; resource and id may be empty.
func (e *events) add(resource, id, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, metrics.Event{Time: time.Now(), Resource: resource, ID: id, What: what})
}

// latest are the events, oldest first.
func (e *events) latest() []metrics.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]metrics.Event{}, e.list...)
}
