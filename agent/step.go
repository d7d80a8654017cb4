package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/metrics"
)

// handOverRetry is when links and specs that could not be made are tried
// again: no event tells that a disk has room again.
const handOverRetry = 10 * time.Second

// step carries out what follows from what is known now, and returns when to
// do so again if nothing happens before; zero is never.
//
// The order is the promise: what leads to a device that is gone is removed
// first, then what leads to the others is made, and only then is anything
// published. State is saved last: the disk must not delay what the kubelet is
// told, and a crash in between costs the memory of milliseconds.
func (l *loop) step(ctx context.Context, answers chan<- ledger.Held) time.Time {
	now := l.now()
	v := view(l.config, host{l.snapshot, l.attrs, l.others}, l.decisions, l.options)
	l.decisions, l.again = v.Decisions, v.again
	l.warnProblems(v.Problems)
	l.warnNotes(v.Matched.Notes)
	reasons := l.probe(v)
	if l.options.CDIOnly {
		// Nobody says who holds what: an entry goes when its device does.
		l.held = ledger.Held{At: now}
	}
	inputs, configs := l.inputs(v)
	in := ledger.Input{Now: now, Start: l.start, Held: l.held, Quiet: l.quiet.since, Made: l.young.made, Hardware: v.hasHardware, Resources: inputs}
	next, out := l.state.Next(in)
	l.state = next
	restartable(out, reasons)
	failed := l.inject(v, out)
	for _, listed := range out.Resources {
		for i := range listed.Devices {
			if e := &listed.Devices[i]; e.Healthy && failed[e.Offer.ID] != nil {
				e.Healthy, e.Reason = false, failed[e.Offer.ID].Error()
			}
		}
	}
	shown := l.serve(ctx, out.Resources, configs, now)
	l.report(out, failed)
	l.settle(out)
	if l.writer {
		l.remember(v, out)
	}
	l.save()
	l.publishTroubles()
	wake := earlier(l.next(ctx, now, out, answers), shown)
	if len(failed) > l.unfit {
		wake = earlier(wake, now.Add(handOverRetry))
	}
	if vanishing(out.Resources, configs) {
		wake = now
	}
	return wake
}

// report logs what changed.
func (l *loop) report(out ledger.Output, failed map[string]error) {
	for _, c := range out.Changes {
		log := l.log.With("resource", c.Resource, "id", c.ID)
		what := c.Reason
		switch {
		case c.Left:
			what = "left the list: " + c.Reason
			log.Info("device left the list", "reason", c.Reason)
		case c.Healthy && failed[c.ID] != nil:
			what = metrics.Unhealthy + ": " + failed[c.ID].Error()
		case c.Healthy:
			what = metrics.Healthy
			log.Info("device is offered", "health", "Healthy")
		case c.Reason == health.ReasonPending:
			log.Debug("device is checked", "health", "Unhealthy", "reason", c.Reason) // the result is about to come
		default:
			what = metrics.Unhealthy + ": " + c.Reason
			log.Info("device can't be used now", "health", "Unhealthy", "reason", c.Reason)
		}
		l.happened(c.Resource, c.ID, what)
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		l.sayInStep(id, failed[id].Error(), "device can't be handed over")
	}
	for _, r := range out.Resources {
		for _, w := range r.Waiting {
			l.sayInStep(w.ID, "still listed by "+w.By, "device waits for another resource to let go of it")
		}
	}
	l.forgetPassed()
}

// settle tells whoever waits that the first look is done and that nothing is
// about to change by itself.
func (l *loop) settle(out ledger.Output) {
	if l.calm {
		return
	}
	for _, r := range out.Resources {
		if !r.Complete || pending(r) || slices.ContainsFunc(r.Devices, func(e ledger.Entry) bool { return e.Reason == ledger.ReasonSettling }) {
			return
		}
	}
	l.calm = true
	close(l.settled)
	if kubelet, _ := l.kubelet.Kubelet(); !kubelet.Present && !l.options.CDIOnly {
		l.log.Info("waiting for the kubelet: its socket does not exist yet", "kubelet_dir", l.options.Paths.KubeletDir,
			"hint", hintFor("kubelet-dir", l.options.InPod))
	}
}

// save writes what an instance after this one has to know.
func (l *loop) save() {
	if !l.writer {
		return
	}
	now := ledger.Persisted{Boot: l.boot, Decisions: l.decisions, Resources: l.state.Remember(), Injected: l.injected}
	if now.Equal(l.saved) {
		return
	}
	if err := ledger.Save(l.options.Paths.StateDir, now); err != nil {
		l.sayOnce("state", fmt.Sprintf("--state-dir: %v", err), "state can't be kept: identity decisions are lost at the next start")
		return
	}
	l.sayOnce("state", "", "")
	l.saved = now
}
