package agent

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/healthdir"
	"github.com/generic-dp/generic-dp/matchers"
)

const (
	// askEvery is how often the holders are queried while something waits until no
	// container holds it, which causes no event.
	askEvery = time.Minute
	// knowsPodsAfter is how long a kubelet may lack pods after its start: it gets them
	// from the API server, one by one, and has none at first.
	knowsPodsAfter = time.Minute
	// retainFor is how long links and CDI entries stay at least after a change of the
	// configuration: the kubelet may not list the devices of a container yet that
	// was admitted just before.
	retainFor = time.Minute
)

// holdings are the held slots as far as known.
type holdings struct {
	ledger.Held                  // the latest answer
	switched    time.Time        // when the configuration changed
	asked       time.Time        // time of the last query since then; zero is never
	asking      bool             // it has not answered yet
	answers     chan ledger.Held // capacity 1
}

// receive stores an answer, unless the query precedes the change of the configuration.
func (h *holdings) receive(answer ledger.Held) {
	h.asking = false
	if answer.At.IsZero() || !answer.At.Before(h.switched) {
		h.Held = answer
	}
}

// reset outdates the latest answer: containers may hold devices of another configuration.
func (h *holdings) reset(now time.Time) {
	h.switched = now
	h.asked = time.Time{}
}

// mayBeHeld reports whether a container may hold a slot that it got before the
// configuration changed.
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

// due is when to query the kubelet; zero is never. retained is set if links or CDI
// entries are retained.
func (h *holdings) due(now time.Time, out ledger.Output, retained bool) time.Time {
	switch {
	case h.asking:
		return time.Time{}
	case h.asked.IsZero() || h.asked.Before(out.AskSince):
		// The first time without a reason: containers may hold devices that no
		// state remembers.
		return now
	case out.AskHeld || retained || h.Partial:
		return h.asked.Add(askEvery)
	default:
		return time.Time{}
	}
}

// askHeld queries the kubelet for held slots if that is due, and returns when it will
// be.
func (l *loop) askHeld(ctx context.Context, now time.Time, out ledger.Output) time.Time {
	if l.options.CDIOnly {
		return time.Time{}
	}
	due := l.held.due(now, out, l.outputs.retains)
	if due.IsZero() || due.After(now) {
		return due
	}
	l.held.asking = true
	l.held.asked = now
	ours := l.ours(out)
	answers := l.held.answers
	go func() {
		held, err := l.listHeld(ctx, now, ours, out)
		if err != nil {
			l.log.Debug("held devices are unknown and count as held",
				"pod_resources", l.options.Paths.PodResources,
				"err", err,
			)
		}
		answers <- held
	}()
	return time.Time{}
}

// ours reports whether a resource is, or may be, this program's: it is listed, or a
// configured template can make its name.
func (l *loop) ours(out ledger.Output) func(name string) bool {
	names := map[string]bool{}
	cfg := l.config
	for _, r := range out.Resources {
		name, _ := nameOf(r.Name)
		names[name] = true
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(cfg.Resources, func(c config.Resource) bool {
			return matchers.Makes(&c, name)
		})
	}
}

// listHeld queries the kubelet for the held slots of our resources. Claims are known
// without it.
func (a *Agent) listHeld(
	ctx context.Context,
	now time.Time,
	ours func(resource string) bool,
	out ledger.Output,
) (ledger.Held, error) {
	held := ledger.Held{IDs: map[string]string{}, Sets: map[string]bool{}}
	list, at, err := a.pods.client.Holders(ctx, now)
	if err != nil {
		a.addClaims(&held, a.claims(), nil, out)
		a.pods.holders.addForgotten(&held)
		return held, err
	}
	held.At, held.Partial = at, a.mayLackPods(at)
	claims := a.claims()
	listed := list[dra.Driver]
	if p := a.dra.plugin.Load(); p != nil && !held.Partial {
		if p.Sweep(ctx, lists(listed)) {
			claims = a.claims()
		}
	}
	a.addClaims(&held, claims, listed, out)
	a.pods.holders.addForgotten(&held)
	for name, ids := range list {
		if !ours(name) {
			continue
		}
		sets := map[podresources.Holder][]string{}
		for slot, holders := range ids {
			held.IDs[slot] = name
			id, _ := device.SplitSlot(slot)
			for _, h := range holders {
				sets[h] = append(sets[h], id)
			}
		}
		for _, set := range sets {
			slices.Sort(set)
			held.Sets[healthdir.SetName(slices.Compact(set))] = true
		}
	}
	a.log.Debug("held devices are known", "slots", len(held.IDs), "partial", held.Partial)
	return held, nil
}

// offers reports whether the kubelet has a resource from this program.
func (a *Agent) offers(resource string) bool {
	return a.members().find(resource) != nil
}

// heldSlots queries the kubelet for the slots that are held, and by which pods. The answer
// is complete unless the kubelet may lack pods.
func (a *Agent) heldSlots(ctx context.Context) (held map[string]string, complete bool, err error) {
	list, at, err := a.pods.client.Holders(ctx, a.now())
	if err != nil {
		return nil, false, err
	}
	held = map[string]string{}
	for resource, ids := range list {
		if !a.offers(resource) {
			continue
		}
		for id, holders := range ids {
			held[id] = holders[0].Namespace + "/" + holders[0].Pod
		}
	}
	return held, !a.mayLackPods(at), nil
}

// mayLackPods reports whether a kubelet may have lacked pods at the time of a query. It
// makes the socket of this API before that of plugins; the age of the latter is known
// even if the clock was set during boot.
func (a *Agent) mayLackPods(at time.Time) bool {
	recent := func(started time.Time) bool {
		return at.Before(started.Add(knowsPodsAfter))
	}
	if started := a.pods.client.Started(); recent(started) && !started.After(at) {
		return true
	}
	kubelet, _ := a.kubelet.Kubelet()
	return kubelet.Generation > 0 && (!kubelet.Present || recent(kubelet.Since))
}
