package agent

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent/holders"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/healthdir"
	"github.com/generic-dp/generic-dp/matchers"
)

const (
	// askEvery is how often the holders are queried while something waits until no
	// container holds it. Kubelets before 1.37 do not announce that a pod has ended.
	askEvery = time.Minute
	// askAgainAfter is the time between two queries because devices were released. Hundreds of pods
	// may end at once.
	askAgainAfter = 200 * time.Millisecond
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
	// Held is the latest answer.
	ledger.Held
	// switched is when the configuration changed last.
	switched time.Time
	// asked is the time of the last query since then, the zero time if there was none.
	asked time.Time
	// asking is set while a query has not been answered.
	asking bool
	// released is set if devices may have been released since the last query, see podWatch.
	released bool
	// awaited is set while something waits until no container holds it.
	awaited bool
	// answers has the next answer. It has capacity 1.
	answers chan ledger.Held
}

// receive stores an answer, unless the query precedes the change of the configuration. The zero
// time marks an answer without the kubelet, which has only the claims.
func (h *holdings) receive(answer ledger.Held) {
	h.asking = false
	if answer.At.IsZero() || !answer.At.Before(h.switched) {
		h.Held = answer
	}
}

// reset outdates the latest answer: containers may hold devices of another configuration. The next
// pass asks again. The answer to an earlier query is dropped, see receive.
func (h *holdings) reset(now time.Time) {
	h.switched = now
	h.asked = time.Time{}
}

// mayBeHeld returns a function that reports whether a container may hold a device that it got
// before the configuration changed. Until an answer is recent and complete, every device may be
// held.
func (h *holdings) mayBeHeld() func(id string) bool {
	isRecent := !h.At.Before(h.switched.Add(retainFor))
	isComplete := isRecent && !h.Partial
	held := map[string]bool{}
	for slot := range h.IDs {
		id, _ := device.SplitSlot(slot)
		held[id] = true
	}
	return func(id string) bool {
		return !isComplete || held[id]
	}
}

// due is when to query the kubelet, the zero time if there is no need.
func (h *holdings) due(now time.Time, out ledger.Output) time.Time {
	// One query at a time: the answer causes a pass, which comes here again.
	if h.asking {
		return time.Time{}
	}
	// The first query needs no reason: containers may hold devices that no state remembers.
	isFirst := h.asked.IsZero()
	if isFirst || h.asked.Before(out.AskSince) {
		return now
	}
	if h.awaited && h.released {
		return h.asked.Add(askAgainAfter)
	}
	// The end of a pod may not be announced, so the kubelet is asked repeatedly.
	if h.awaited {
		return h.asked.Add(askEvery)
	}
	return time.Time{}
}

// await stores whether something waits until no container holds it, and reports whether it has just
// begun to wait.
func (h *holdings) await(out ledger.Output, retained bool) (begins bool) {
	before := h.awaited
	h.awaited = out.AskHeld || retained || h.Partial
	return h.awaited && !before
}

// askHeld queries the kubelet for held slots if that is due, and returns when it will be due, the
// zero time if there is no need.
func (l *loop) askHeld(ctx context.Context, now time.Time, out ledger.Output) time.Time {
	if l.options.CDIOnly {
		return time.Time{}
	}
	// Links or CDI entries are also retained until no container holds their devices.
	begins := l.held.await(out, l.outputs.retains)
	due := l.held.due(now, out)
	isDue := !due.IsZero() && !due.After(now)
	l.followEnds(ctx, begins || isDue)
	if !isDue {
		return due
	}
	// The query runs in its own goroutine, because the kubelet may not answer for long. The channel
	// has room for the answer even if the loop has ended.
	l.held.asking = true
	l.held.asked = now
	l.held.released = false
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

// followEnds watches the ends of pods while something waits until no container holds it. A watch that
// has ended begins again only if retry is set: the kubelet may not have the API, or may get it with
// its next version.
func (l *loop) followEnds(ctx context.Context, retry bool) {
	if !l.held.awaited {
		l.ends.end()
		return
	}
	if retry {
		l.ends.watch(ctx, l.life.group, func(err error) {
			l.log.Debug("ends of pods are not announced", "pods_api", l.ends.socket, "err", err)
		})
	}
}

// ours reports whether a resource is, or may be, this program's: it is listed, or a
// configured template can make its name. It keeps the present configuration, and may be called in
// any goroutine.
func (l *loop) ours(out ledger.Output) func(name string) bool {
	names := map[string]bool{}
	// The loop may replace l.config while the query runs. A configuration itself never changes.
	cfg := l.config
	for _, r := range out.Resources {
		name, _ := nameOf(r.Name)
		names[name] = true
	}
	return func(name string) bool {
		if names[name] {
			return true
		}
		for i := range cfg.Resources {
			if matchers.Makes(&cfg.Resources[i], name) {
				return true
			}
		}
		return false
	}
}

// listHeld queries the kubelet for the held slots of this program's resources. Claims come from our
// own files, so that they are known even if the kubelet does not answer. It runs in the goroutine
// of a query. An error means that the result has only claims and forgotten pods, and no time.
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
		a.pods.holders.AddForgotten(ctx, &held)
		return held, err
	}
	held.At = at
	held.Partial = a.mayLackPods(at)
	claims := a.claims()
	listed := list[dra.Driver]
	// A kubelet that has just started may not list a claim whose containers run.
	if p := a.dra.plugin.Load(); p != nil && !held.Partial {
		if p.Sweep(ctx, lists(listed)) {
			claims = a.claims()
		}
	}
	a.addClaims(&held, claims, listed, out)
	for name, ids := range list {
		if !ours(name) {
			continue
		}
		// The devices that one container has of one resource are a set, which names its health
		// directory.
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
	a.pods.holders.AddForgotten(ctx, &held)
	a.log.Debug("held devices are known", "slots", len(held.IDs), "partial", held.Partial)
	return held, nil
}

// newHolders returns the tracker of the pods that hold slots.
func (a *Agent) newHolders() *holders.Tracker {
	return holders.New(holders.Options{
		Checkpoint: filepath.Join(a.options.Paths.KubeletDir, checkpoint.Name),
		Cgroups:    a.pods.cgroups,
		// The functions are called in the goroutines of the tracker and of Allocate. They only read
		// what the loop has published.
		IsOurs: a.offers,
		Held:   a.heldSlots,
		Pods:   a.pods.client.Pods,
		Generation: func() uint64 {
			kubelet, _ := a.kubelet.Kubelet()
			return kubelet.Generation
		},
		Changed:    a.wake.send,
		CgroupHint: a.options.hint("cgroup"),
		Log:        a.log,
	})
}

// offers reports whether the kubelet has a resource from this program.
func (a *Agent) offers(resource string) bool {
	return a.members().find(resource) != nil
}

// heldSlots queries the kubelet for the held slots and the names of their pods. The answer is
// complete unless the kubelet may lack pods. The names are "NAMESPACE/NAME". If several containers
// hold a slot, one of their pods is named.
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

// mayLackPods reports whether the kubelet may have lacked pods at the time of a query, because it
// had just started. The kubelet makes the socket of PodResources before the socket for plugins.
// Both are considered, because only the age of the latter is known if the clock was set during
// boot.
func (a *Agent) mayLackPods(at time.Time) bool {
	isRecent := func(started time.Time) bool {
		return at.Before(started.Add(knowsPodsAfter))
	}
	started := a.pods.client.Started()
	// A socket from the future was made before the clock was set back.
	isPlausible := !started.After(at)
	if isPlausible && isRecent(started) {
		return true
	}
	kubelet, _ := a.kubelet.Kubelet()
	isKnown := kubelet.Generation > 0
	// A kubelet that is absent now will start with an empty list of pods.
	return isKnown && (!kubelet.Present || isRecent(kubelet.Since))
}
