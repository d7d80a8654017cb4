package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// reasonInactive is why a configured resource is retired.
const reasonInactive = "resource is not active on this node: its when does not hold"

// reconcile brings links, CDI specs and lists in line with the last scan, and returns
// when to do so again without a trigger, zero is never, and whether all was written.
//
// The order is a promise: first the healthy files, links and CDI entries of gone devices
// are removed, then links and entries of the others are made, and only then is anything
// published. State is saved last: the disk must not delay the kubelet.
func (l *loop) reconcile(ctx context.Context) (out ledger.Output, wake time.Time, written bool) {
	now := l.now()
	v := view(l.config, l.host, sync.OnceValue(l.injector.foreign.Read), l.memory.decisions, l.options)
	l.memory.decisions = v.Decisions
	l.prober.Set(v.checks())
	if l.options.CDIOnly {
		// Holders can't be known: an entry goes when its device does.
		l.held.Held = ledger.Held{At: now}
	}
	resources, configs := l.inputs(v)
	l.memory.state, out = l.memory.state.Next(ledger.Input{
		Now: now, Start: l.start, Held: l.held.Held, LastEvent: l.scanner.LastEvent, Hardware: v.hasHardware, Unread: v.unread,
		Failing: l.prober.Results(), Resources: resources, Successors: l.injector.successors(v),
	})
	l.runDRA(ctx, out)
	failed, unwritten := l.inject(v, out)
	withdrawn := l.health.withdraw(out.Resources)
	l.followSpecs()
	l.explain.Store(newExplainer(l.config, v))
	shown := l.publish(ctx, out.Resources, configs, now)
	l.publishDRA()
	held, unshown := l.showHealth(&out, withdrawn)
	l.reportRefused()
	l.report(v, out, failed)
	l.settle(out)
	retry, tried := l.proving.follow(now, l.writer)
	if retry {
		l.reader.requests.send()
	}
	return out, earlier(earlier(earlier(out.Wake, shown), tried), held), unwritten == nil && unshown == nil
}

// saveAndAsk does what the kubelet does not wait for, after reconcile, and returns when to
// reconcile again for it.
func (l *loop) saveAndAsk(ctx context.Context, out ledger.Output, written bool) (wake time.Time) {
	now := l.now()
	l.save()
	l.retry.record(now, !l.warnUnsaved() || !written || l.lacksDevices())
	return earlier(l.askHeld(ctx, now, out), l.retry.at)
}

// inputs returns the resources for the ledger, and by name the configuration of each that
// is not being retired. Inactive resources are included for their reason, and derived names
// without a device because one may come back.
func (l *loop) inputs(v *View) (inputs []ledger.Resource, configs map[string]*config.Resource) {
	configs = map[string]*config.Resource{}
	add := func(name string, c *config.Resource, in ledger.Resource) {
		name = l.options.keyOf(name, c)
		configs[name] = c
		_, byDRA := nameOf(name)
		in.AwaitHeld = byDRA && l.memory.lost
		in.Name, in.Grows, in.ForgetAfter = name, c.Each == config.EachDevice, c.ForgetAfter
		in.Derived = len(c.NameText) > 0
		in.Unread = v.options.CDIUnread != nil && slices.ContainsFunc(c.Match, func(m config.Match) bool { return !m.CDIDevice.Empty() })
		inputs = append(inputs, in)
	}
	for _, m := range v.Matched.Resources {
		add(m.Name, m.Resource, ledger.Resource{Offers: m.Offers})
	}
	for _, c := range v.Matched.Inactive {
		if key := l.options.keyOf(c.Name, c); len(c.NameText) == 0 && configs[key] == nil {
			inputs = append(inputs, ledger.Resource{Name: key, Refuse: reasonInactive})
		}
	}
	// A name that only the kubelet knows is left out: another program's may match the
	// template, too.
	for _, key := range l.memory.state.Names() {
		if configs[key] != nil {
			continue
		}
		name, _ := nameOf(key)
		for i := range l.config.Resources {
			if c := &l.config.Resources[i]; matchers.Makes(c, name) && l.options.keyOf(name, c) == key && !slices.Contains(v.Matched.Inactive, c) {
				add(name, c, ledger.Resource{})
				break
			}
		}
	}
	return inputs, configs
}

// inject makes links and CDI specs, and devices that can't be injected Unhealthy. The
// results are those of injector.sync.
func (l *loop) inject(v *View, out ledger.Output) (failed map[string]error, err error) {
	if l.writer {
		failed, err = l.injector.sync(v, out, l.held.mayBeHeld())
	} else {
		dropCDINames(out, nil) // the other instance does; Allocate checks before it responds
		failed = map[string]error{}
	}
	l.dra.fail(out, failed)
	for _, listed := range out.Resources {
		for i := range listed.Devices {
			if e := &listed.Devices[i]; e.Healthy && failed[e.Offer.ID] != nil {
				e.Healthy, e.Reason = false, failed[e.Offer.ID].Error()
			}
		}
	}
	return failed, err
}

// settle closes Settled when it is time.
func (l *loop) settle(out ledger.Output) {
	if l.calm {
		return
	}
	for _, r := range out.Resources {
		if !r.Complete || slices.ContainsFunc(r.Devices, func(e ledger.Entry) bool {
			return e.Reason == ledger.ReasonSettling || e.Reason == health.ReasonPending
		}) {
			return
		}
	}
	l.calm = true
	close(l.settled)
	if kubelet, _ := l.kubelet.Kubelet(); !kubelet.Present && !l.options.CDIOnly {
		l.log.Info("waiting for the kubelet: its socket does not exist yet", "kubelet_dir", l.options.Paths.KubeletDir,
			"hint", l.options.hint("kubelet-dir"))
	}
}
