package agent

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/ledger"
)

const (
	// askEvery is the least time between two questions to the kubelet what is
	// held, while something waits for nothing but to be free.
	askEvery = time.Minute
	// knowsPodsAfter is how long after its start the kubelet is taken to know of
	// all pods: it learns of them from the API server, one by one, and has none
	// at first whatever runs on the node.
	knowsPodsAfter = time.Minute
)

// next is when to step again, and asks the kubelet where something waits for
// its answer alone.
func (l *loop) next(ctx context.Context, now time.Time, out ledger.Output, answers chan<- ledger.Held) time.Time {
	wake := out.Wake
	if l.options.CDIOnly {
		return wake
	}
	atOnce := l.asked.Before(out.AskSince)
	// The first question has no reason: there may be something held that
	// nothing remembers.
	wanted := l.asked.IsZero() || atOnce || out.AskHeld || l.retains || l.held.Partial
	if l.asking || !wanted {
		return wake
	}
	if due := l.asked.Add(askEvery); now.Before(due) && !atOnce {
		return earlier(wake, due)
	}
	l.asking, l.asked = true, now
	concerns := l.concerns(out)
	go func() {
		held, err := l.askHeld(ctx, concerns)
		if err != nil {
			l.log.Debug("what is held is unknown: it counts as held", "pod_resources", l.options.Paths.PodResources, "err", err)
		}
		select {
		case answers <- held:
		case <-ctx.Done():
		}
	}()
	return wake
}

// concerns tells the resources that are this program's, or may be: those that
// are listed, and what the variables of a name can result in.
func (l *loop) concerns(out ledger.Output) func(name string) bool {
	names, cfg := map[string]bool{}, l.config
	for _, r := range out.Resources {
		names[r.Name] = true
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(cfg.Resources, func(c config.Resource) bool { return madeBy(&c, name) })
	}
}

// askHeld asks the kubelet which slots of the resources containers hold.
func (a *Agent) askHeld(ctx context.Context, concerns func(name string) bool) (ledger.Held, error) {
	at := a.now()
	list, err := a.pods.List(ctx)
	if err != nil {
		return ledger.Held{}, err
	}
	held := ledger.Held{At: at, Partial: a.mayLackPods(at), IDs: map[string]string{}}
	for name, ids := range list {
		if !concerns(name) {
			continue
		}
		for id := range ids {
			held.IDs[id] = name
		}
	}
	a.log.Debug("what is held is known", "slots", len(held.IDs), "partial", held.Partial)
	return held, nil
}

// mayLackPods reports whether a kubelet that answered a question of that time may
// not know of all pods. Of its two sockets the one that answered was made first;
// when that of plugins was made is known without regard to a clock that is set
// while the machine boots.
func (a *Agent) mayLackPods(at time.Time) bool {
	young := func(made time.Time) bool { return at.Before(made.Add(knowsPodsAfter)) }
	if made := a.pods.Made(); young(made) && !made.After(at) {
		return true
	}
	kubelet, _ := a.kubelet.Kubelet()
	return kubelet.Generation > 0 && (!kubelet.Present || young(kubelet.Since))
}
