package agent

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
)

const (
	// askEvery is the least time between two questions to the kubelet while
	// something only waits until it is no longer held.
	askEvery = time.Minute
	// knowsPodsAfter is how long after its start the kubelet is taken to know of
	// all pods: it learns of them from the API server, one by one, and has none
	// at first whatever runs on the node.
	knowsPodsAfter = time.Minute
	// retainFor is how long at least links and CDI entries stay after the
	// configuration has changed: a container that was admitted before may not be
	// among those yet that the kubelet knows to hold something.
	retainFor = time.Minute
)

// holdings is what the loop knows of held slots.
type holdings struct {
	ledger.Held                  // the latest answer
	switched    time.Time        // when the configuration was switched
	asked       time.Time        // the latest question since then; zero is none
	asking      bool             // it is not answered yet
	answers     chan ledger.Held // capacity 1
}

// receive takes an answer, unless it was asked for before the switch.
func (h *holdings) receive(answer ledger.Held) {
	h.asking = false
	if answer.At.IsZero() || !answer.At.Before(h.switched) {
		h.Held = answer
	}
}

// reset makes what is known too old: containers may hold what they were given by
// another configuration.
func (h *holdings) reset(now time.Time) { h.switched, h.asked = now, time.Time{} }

// mayBeHeld reports whether a container may hold a slot of a device that it was
// given before the switch.
func (h *holdings) mayBeHeld() func(id string) bool {
	if h.Partial || h.At.Before(h.switched.Add(retainFor)) {
		return func(string) bool { return true }
	}
	held := map[string]bool{}
	for slot := range h.IDs {
		id, _ := device.SplitSlot(slot)
		held[id] = true
	}
	return func(id string) bool { return held[id] }
}

// due is when to ask the kubelet; zero is never. retained says that something is
// kept that the configuration does not ask for.
func (h *holdings) due(now time.Time, out ledger.Output, retained bool) time.Time {
	switch {
	case h.asking:
		return time.Time{}
	case h.asked.IsZero() || h.asked.Before(out.AskSince):
		// The first question has no reason: there may be something held that
		// nothing remembers.
		return now
	case out.AskHeld || retained || h.Partial:
		return h.asked.Add(askEvery)
	default:
		return time.Time{}
	}
}

// askHeld asks the kubelet what is held where that is due, and returns when it is.
func (l *loop) askHeld(ctx context.Context, now time.Time, out ledger.Output) time.Time {
	if l.options.CDIOnly {
		return time.Time{}
	}
	due := l.held.due(now, out, l.injector.retains)
	if due.IsZero() || due.After(now) {
		return due
	}
	l.held.asking, l.held.asked = true, now
	ours, answers := l.ours(out), l.held.answers
	go func() {
		held, err := l.listHeld(ctx, now, ours)
		if err != nil {
			l.log.Debug("held devices are unknown and count as held", "pod_resources", l.options.Paths.PodResources, "err", err)
		}
		answers <- held
	}()
	return time.Time{}
}

// ours tells the resources that are this program's, or may be: those that are
// listed, and those that the variables of a name can make.
func (l *loop) ours(out ledger.Output) func(name string) bool {
	names, cfg := map[string]bool{}, l.config
	for _, r := range out.Resources {
		names[r.Name] = true
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(cfg.Resources, func(c config.Resource) bool { return makes(&c, name) })
	}
}

// listHeld asks the kubelet which slots of our resources containers hold now.
func (a *Agent) listHeld(ctx context.Context, now time.Time, ours func(resource string) bool) (ledger.Held, error) {
	list, at, err := a.pods.Held(ctx, now)
	if err != nil {
		return ledger.Held{}, err
	}
	held := ledger.Held{At: at, Partial: a.mayLackPods(at), IDs: map[string]string{}}
	for name, ids := range list {
		if !ours(name) {
			continue
		}
		for id := range ids {
			held.IDs[id] = name
		}
	}
	a.log.Debug("held devices are known", "slots", len(held.IDs), "partial", held.Partial)
	return held, nil
}

// mayLackPods reports whether a kubelet that was asked at that time may not know
// of all pods. Of its two sockets the one that answered was made first; when that
// of plugins was made is known without regard to a clock that is set while the
// machine boots.
func (a *Agent) mayLackPods(at time.Time) bool {
	recent := func(started time.Time) bool { return at.Before(started.Add(knowsPodsAfter)) }
	if started := a.pods.Started(); recent(started) && !started.After(at) {
		return true
	}
	kubelet, _ := a.kubelet.Kubelet()
	return kubelet.Generation > 0 && (!kubelet.Present || recent(kubelet.Since))
}
