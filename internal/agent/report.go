package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
)

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
	list := slices.AppendSeq([]status.Problem{}, maps.Keys(p.now))
	order.Sort(list, func(a, b status.Problem) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
	})
	p.published.Store(&list)
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
	if unread := l.held.Unread(); unread != "" {
		l.page.problems.warn("holders", errors.New(unread), "no device is added to the lists until it is known which containers hold devices")
	}
	if l.prober.Stuck() {
		l.page.problems.warn("health checks", errChecksStuck, "health checks hang")
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		l.page.problems.warn(id, failed[id], "device can't be offered")
	}
	for _, r := range out.Resources {
		for _, w := range r.Waiting {
			// The old list says that a device moves, and unknown holders are one problem for all.
			isReported := w.Moves || l.held.Unread() != ""
			if !isReported {
				l.page.problems.warn(w.ID, errors.New(w.Reason), "device is not listed yet")
			}
		}
	}
	l.reportLeftOut(v, out)
	for _, c := range out.Changes {
		l.reportChange(c, failed[c.ID])
	}
}

var errChecksStuck = errors.New("too many hang in the kernel: other nodes and attributes keep the result of their last check until some return")

// reportLeftOut reports what the lists have no room for. Nothing may be left out silently.
func (l *loop) reportLeftOut(v *View, out ledger.Output) {
	full := func(count int, what string) {
		if count > 0 {
			l.page.problems.warn("lists", fmt.Errorf("they have no room for %d %s", count, what), "the lists for the kubelet are full",
				"hint", "match fewer devices, or lower count")
		}
	}
	full(v.Matched.LeftOut+out.WithoutRoom, "present devices, which are not listed with all their slots")
	full(out.HeldUnlisted, "absent devices that are held, as the kubelet says")
	if out.Dropped > 0 {
		l.log.Warn("slots of absent devices, which no container holds, left the lists early: the lists had no room", "slots", out.Dropped)
	}
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
func (l *loop) reportChange(c ledger.Change, failed error) {
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
		log.Info("device is offered", "health", status.Healthy)
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
