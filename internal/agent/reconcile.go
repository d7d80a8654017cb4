package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/matchers"
)

// reasonInactive is why a configured resource is retired.
const reasonInactive = "resource is not active on this node: its when does not hold"

// reconcile brings outputs and lists in line with the last scan, which succeeded. It returns when to
// reconcile again without a trigger, the zero time if there is no need.
//
// The order is a promise: the files of gone devices are removed, of every output, before any
// file of another device is made, and only then is anything published.
func (l *loop) reconcile(ctx context.Context) (wake time.Time) {
	now := l.now()
	v := l.match(ctx)
	l.held = l.observe(ctx, v)
	out, configs := l.decide(v, now)
	// This must precede makeOutputs, which asks the driver why it cannot offer devices.
	l.runDRA(out)
	failed, unwritten := l.makeOutputs(v, out)
	l.devices = devicesOf(v, out)
	// This follows makeOutputs, because devices that failed there do not work either.
	holdEnd, withdrawn := l.outputs.health.Withdraw(l.devices, l.held.IsHeld)
	l.followSpecs()
	explain := explainer(l.config, v)
	l.page.explain.Store(&explain)

	awaited := l.publish(out.Resources, configs, now)
	l.publishDRA()
	// Some lists may still wait for the first results of checks.
	if awaited.IsZero() {
		l.life.announce.Do(l.announce)
	}
	unhealthy := errors.Join(withdrawn, l.outputs.health.Show())
	l.page.problems.warn("health directories", unhealthy, "health directories are out of date")
	// The kubelet gets the list before the disk and the next query are used.
	l.pace.limiter.pause(ctx)
	isWritten := unwritten == nil && unhealthy == nil
	return order.Earliest(out.Wake, awaited, holdEnd, l.conclude(v, out, failed, isWritten))
}

// conclude does what the kubelet does not wait for, after the lists are published. failed says why devices
// cannot be injected, by ID. It returns when to reconcile again without a trigger.
func (l *loop) conclude(v *View, out ledger.Output, failed map[string]error, isWritten bool) (wake time.Time) {
	now := l.now()
	l.reportRefused()
	l.report(v, out, failed)
	if l.hasSettled(out) {
		l.settle()
	}
	good, trialEnd := l.trial.Follow(now, v.Matched.Late)
	l.save(good)
	isSaved := l.warnUnsaved(*l.saves.last.Load())
	// A failed save shows up only in a later pass, because the saver runs in its own goroutine.
	isDone := isSaved && isWritten && !l.lacksDevices()
	l.pace.retry.record(now, !isDone)
	// Links and CDI entries are also retained until no container holds their devices.
	l.book.Await(out.AwaitsHolders || l.outputs.retains)
	return order.Earliest(trialEnd, l.pace.retry.at)
}

// match matches the last scan and has the health of the matching devices checked. It does not wait
// for the results: a result that differs is a trigger.
func (l *loop) match(ctx context.Context) *View {
	v := view(l.config, l.last, l.outputs.foreign.Read, l.memory.decisions, l.options)
	l.memory.decisions = v.Decisions
	l.prober.Set(ctx, v.checks())
	return v
}

// decide decides what is listed, and how healthy it is. It also returns the configuration of each
// resource that is not being retired, by its name in the ledger. It replaces the state of the
// ledger. Everything that it returns belongs to this pass.
func (l *loop) decide(v *View, now time.Time) (ledger.Output, map[string]*config.Resource) {
	resources, configs := l.inputs(v)
	state, out := l.memory.state.Next(ledger.Input{
		Now:   now,
		Start: l.start,
		Held:  heldSlots(l.held),
		Blocked: func(key string, offer *device.Offer) string {
			return l.held.Blocked(wanted(key, offer))
		},
		Node: v.node,
		Exists: func(path string) bool {
			exists, isKnown := l.host.paths.Exists(path)
			return exists || !isKnown
		},
		Events:         l.host.scanner.Events(),
		Hardware:       v.Snapshot.Hardware,
		UnreadHardware: v.unread,
		Failing:        l.prober.Results(),
		Resources:      resources,
	})
	l.memory.state = state
	return out, configs
}

// inputs returns the resources for the ledger, and the configuration of each resource that is not
// being retired, by its name in the ledger. Inactive resources are included because of their
// reason. Derived names without a device are included because a device may come back.
func (l *loop) inputs(v *View) (inputs []ledger.Resource, configs map[string]*config.Resource) {
	configs = map[string]*config.Resource{}
	add := func(name string, c *config.Resource, offers []device.Offer) {
		key := l.options.keyOf(name, c)
		configs[key] = c
		inputs = append(inputs, ledger.Resource{
			Name:            key,
			Offers:          offers,
			Grows:           c.Each == config.EachDevice,
			Derived:         len(c.NameText) > 0,
			MatchIncomplete: isIncomplete(v, c),
		})
	}
	for _, m := range v.Matched.Resources {
		add(m.Name, m.Resource, m.Offers)
	}
	for _, c := range v.Matched.Inactive {
		key := l.options.keyOf(c.Name, c)
		hasFixedName := len(c.NameText) == 0
		// Another resource of the same name may be active here.
		if hasFixedName && configs[key] == nil {
			inputs = append(inputs, ledger.Resource{
				Name:   key,
				Refuse: reasonInactive,
			})
		}
	}
	// A name that only the kubelet knows is left out: the resource of another program may match
	// the template of a name.
	for _, key := range l.memory.state.Names() {
		if configs[key] != nil {
			continue
		}
		c := l.makerOf(key, v)
		if c == nil {
			continue
		}
		name, _ := device.SplitResourceKey(key)
		add(name, c, nil)
	}
	return inputs, configs
}

// isIncomplete reports whether a configured resource may have more devices than the match found. An
// incomplete match must not make devices look removed.
func isIncomplete(v *View, c *config.Resource) bool {
	isUnknown := v.Matched.Unknown[c] != ""
	specsUnread := v.options.CDIUnread != nil
	return isUnknown || specsUnread && slices.ContainsFunc(c.Match, selectsCDI)
}

// makerOf returns the active configuration that can make a name in the ledger, nil if there is
// none. If several can, it is the first one in the configuration.
func (l *loop) makerOf(key string, v *View) *config.Resource {
	name, _ := device.SplitResourceKey(key)
	for i := range l.config.Resources {
		c := &l.config.Resources[i]
		isActive := !slices.Contains(v.Matched.Inactive, c)
		hasSameAPI := l.options.keyOf(name, c) == key
		if isActive && hasSameAPI && matchers.Makes(c, name) {
			return c
		}
	}
	return nil
}

// selectsCDI reports whether a match selects CDI devices of other programs.
func selectsCDI(m config.Match) bool {
	return !m.CDIDevice.Empty()
}

// makeOutputs removes what is stale of all outputs, makes what is missing, and makes devices
// Unhealthy that cannot be injected, or that DRA cannot offer. failed says why, by ID.
func (l *loop) makeOutputs(v *View, out ledger.Output) (failed map[string]error, err error) {
	failed, err = l.outputs.update(v, out, l.held)
	for _, listed := range out.Resources {
		for i := range listed.Devices {
			e := &listed.Devices[i]
			if isByDRA(listed.Name) {
				l.failByDRA(e, failed)
			}
			problem := failed[e.Offer.ID]
			// An entry that is already Unhealthy keeps its reason, which came first.
			if problem != nil && e.Healthy {
				e.Healthy = false
				e.Reason = problem.Error()
			}
		}
	}
	return failed, err
}

// failByDRA adds to failed why DRA cannot offer a device. A healthy device is Withheld: it still works for
// the pods that have it.
func (l *loop) failByDRA(e *ledger.Entry, failed map[string]error) {
	id := e.Offer.ID
	reason := l.dra.plugin.Problem(id)
	if reason == "" {
		return
	}
	// A device that also cannot be injected does not work, and is not Withheld.
	if e.Healthy && failed[id] == nil {
		e.Withheld = true
	}
	failed[id] = fmt.Errorf(`api = "dra" can't be served: %s`, reason)
}

// hasSettled reports whether every remembered device was awaited, no device is settling, and
// the first health checks have ended. Once that is so it stays so. Devices that appear later do not
// count.
func (l *loop) hasSettled(out ledger.Output) bool {
	if l.life.settled {
		return true
	}
	for _, r := range out.Resources {
		if !r.Complete {
			return false
		}
		if slices.ContainsFunc(r.Devices, isUnsettled) {
			return false
		}
	}
	return true
}

// isUnsettled reports whether an entry is settling, or waits for its first health check.
func isUnsettled(e ledger.Entry) bool {
	return e.Reason == ledger.ReasonSettling || isPending(e)
}

// settle closes the channel of Settled, once. The kubelet may start much later.
func (l *loop) settle() {
	if l.life.settled {
		return
	}
	l.life.settled = true
	close(l.agent.allSettled)
	kubelet, _ := l.agent.kubelet.Kubelet()
	if kubelet.Present || !l.options.hasKubelet() {
		return
	}
	l.log.Info("waiting for the kubelet: its socket does not exist yet",
		"kubelet_dir", l.options.Paths.KubeletDir,
		"hint", hints["kubelet-dir"])
}
