package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
	"github.com/generic-dp/generic-dp/matchers"
)

// reasonInactive is why a configured resource is retired.
const reasonInactive = "resource is not active on this node: its when does not hold"

// reconcile brings outputs and lists in line with the last scan. It returns when to do so
// again without a trigger, the zero time if there is no need, and whether all was written.
//
// The order is a promise: the files of gone devices are removed, of every output, before any
// file of another device is made, and only then is anything published. State is saved last,
// so that its disk does not delay the kubelet.
func (l *loop) reconcile(ctx context.Context) (out ledger.Output, wake time.Time, written bool) {
	now := l.now()
	v := view(l.config, l.last.hostScan, sync.OnceValue(l.outputs.foreign.Read), l.memory.decisions, l.options)
	l.memory.decisions = v.Decisions
	l.checks.prober.Set(v.checks())
	l.warnStuckChecks()
	if l.options.CDIOnly {
		// Holders can't be known: an entry goes when its device does.
		l.held.Held = ledger.Held{At: now}
	}
	resources, configs := l.inputs(v)
	l.memory.state, out = l.memory.state.Next(ledger.Input{
		Now:       now,
		Start:     l.role.start,
		Held:      l.held.Held,
		Events:    l.host.scanner.Events(),
		Hardware:  v.Snapshot.Hardware,
		Unread:    v.unread,
		Failing:   l.checks.prober.Results(),
		Resources: resources,
		Aliases:   l.outputs.aliases(v),
	})
	l.runDRA(ctx, out)
	failed, unwritten := l.makeOutputs(v, out)
	devices := devicesOf(v, out)
	restore, holdEnd, withdrawn := l.outputs.withdrawHealth(devices)
	settled := l.hasSettled(out)
	var unlabelled error
	if l.role.writes && settled { // missing labels at a start would send pods elsewhere
		unlabelled = l.outputs.writeFeatures(ctx, devices)
	}
	l.followSpecs()
	l.page.explain.Store(newExplainer(l.config, v))
	shown := l.publish(ctx, out.Resources, configs, now)
	l.publishDRA()
	unrestored := l.restoreHealth(restore, devices, &out)
	l.page.problems.warn("health directories", errors.Join(withdrawn, unrestored), "health directories are out of date")
	l.reportRefused()
	l.report(v, out, failed)
	if settled {
		l.settle()
	}
	retry, tried := l.reader.Trial.Follow(now, l.role.writes)
	if retry {
		l.reader.Request()
	}
	wake = earlier(out.Wake, shown)
	wake = earlier(wake, tried)
	wake = earlier(wake, l.droppedUntil(now))
	if l.role.writes {
		wake = earlier(wake, holdEnd)
	}
	return out, wake, errors.Join(unwritten, withdrawn, unlabelled, unrestored) == nil
}

// saveAndAsk does what the kubelet does not wait for, after reconcile, and returns when to
// reconcile again for it.
func (l *loop) saveAndAsk(ctx context.Context, out ledger.Output, written bool) (wake time.Time) {
	now := l.now()
	l.save()
	l.pace.retry.record(now, !l.warnUnsaved() || !written || l.lacksDevices())
	return earlier(l.askHeld(ctx, now, out), l.pace.retry.at)
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
		in.Name = name
		in.Grows = c.Each == config.EachDevice
		in.ForgetAfter = c.ForgetAfter
		in.Derived = len(c.NameText) > 0
		specsUnread := v.options.CDIUnread != nil && slices.ContainsFunc(c.Match, selectsCDI)
		in.Unread = specsUnread || v.Matched.Unknown[c] != ""
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

func selectsCDI(m config.Match) bool { return !m.CDIDevice.Empty() }

// makeOutputs removes what is stale of all outputs, makes what is missing, and makes devices
// that cannot be injected Unhealthy. failed says why, by ID. An instance that is not the
// writer only withdraws "healthy": the other instance does the rest, and Allocate checks what
// exists before it responds.
func (l *loop) makeOutputs(v *View, out ledger.Output) (failed map[string]error, err error) {
	if l.role.writes {
		plan := l.outputs.plan(v, out, l.held.mayBeHeld())
		plan.remove()
		failed, err = l.outputs.make(plan, out)
	} else {
		dropCDINames(out, nil)
		failed = map[string]error{}
	}
	l.dra.fail(out, failed)
	for _, listed := range out.Resources {
		for i := range listed.Devices {
			e := &listed.Devices[i]
			if problem := failed[e.Offer.ID]; problem != nil && e.Healthy {
				e.Healthy = false
				e.Reason = problem.Error()
			}
		}
	}
	return failed, err
}

// restoreHealth recreates "healthy" after the lists are published, and removes health
// directories that no container has.
func (l *loop) restoreHealth(restore files.Plan, devices []output.Device, out *ledger.Output) error {
	if !l.role.writes {
		return nil
	}
	unrestored := restore.Make()
	ask, unswept := l.outputs.sweepHealth(devices, l.held.Held)
	if ask.After(out.AskSince) {
		out.AskSince = ask
	}
	return errors.Join(unrestored, unswept)
}

// hasSettled reports whether every remembered device was awaited, no device is settling, and
// the first health checks have ended. Once that is so it stays so.
func (l *loop) hasSettled(out ledger.Output) bool {
	if l.life.settled {
		return true
	}
	isPending := func(e ledger.Entry) bool {
		return e.Reason == ledger.ReasonSettling || e.Reason == health.ReasonPending
	}
	for _, r := range out.Resources {
		if !r.Complete || slices.ContainsFunc(r.Devices, isPending) {
			return false
		}
	}
	return true
}

// settle closes Settled, once.
func (l *loop) settle() {
	if l.life.settled {
		return
	}
	l.life.settled = true
	close(l.settled)
	kubelet, _ := l.kubelet.Kubelet()
	if !kubelet.Present && !l.options.CDIOnly {
		l.log.Info("waiting for the kubelet: its socket does not exist yet", "kubelet_dir", l.options.Paths.KubeletDir,
			"hint", l.options.hint("kubelet-dir"))
	}
}
