package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
)

// set is the served resources, in the order of the configuration, then those that are
// being retired. It is immutable: the loop replaces it as a whole.
type set []*resource

// find returns the resource with a name in the ledger; nil is none.
func (s set) find(key string) *resource {
	for _, r := range s {
		if r.key == key {
			return r
		}
	}
	return nil
}

// members are the served resources.
func (a *Agent) members() set {
	if s := a.serving.Load(); s != nil {
		return *s
	}
	return nil
}

// Names lists the served resources, those that are being retired last.
func (a *Agent) Names() []string {
	var names []string
	for _, r := range a.members() {
		names = append(names, r.Name)
	}
	return names
}

// Entries lists the devices of a resource, by ID.
func (a *Agent) Entries(name string) []ledger.Entry {
	for _, key := range []string{name, name + draSuffix} {
		if r := a.members().find(key); r != nil {
			return r.now.Load().entries
		}
	}
	return nil
}

// firstResults is how long the first list of a resource waits for the first results of
// health checks: most come in a millisecond, and a list without them would briefly make
// all devices Unhealthy with every update of the program. A hung check delays the other
// devices no longer than this.
const firstResults = 100 * time.Millisecond

// publish publishes the list of each resource. A resource is made when the ledger first
// lists it and ends when it no longer does. The result is when lists that wait for the
// first results of checks are due; zero is none.
func (l *loop) publish(ctx context.Context, listed []ledger.ListedResource, configs map[string]*config.Resource, now time.Time) (due time.Time) {
	old := l.members()
	next := make(set, len(listed))
	for i, in := range listed {
		r, c := old.find(in.Name), cmp.Or(configs[in.Name], retired)
		if r == nil {
			r = l.addResource(in.Name, now)
		}
		next[i] = r
		if at := r.awaits(in, now); !at.IsZero() {
			due = earlier(due, at)
			r.publish(nil, c)
			continue
		}
		r.shown = true
		if r.publish(in.Devices, c) {
			l.limiter.lastUpdate = time.Now()
		}
		if r.plugin != nil && r.ended == nil && (in.Register || c.Register == config.RegisterAlways) {
			r.start(ctx, l.group, l.ended[r.Name], l.metrics.Forget)
		}
	}
	l.serving.Store(&next)
	for _, r := range old {
		if r.ended != nil && next.find(r.key) == nil {
			l.log.Info("resource is no longer offered", "resource", r.Name)
			r.stop()
			l.ended[r.Name] = r.ended
		}
	}
	return due
}

// awaits returns until when the first list of a resource waits for the first results of
// checks; zero if it does not.
func (r *resource) awaits(listed ledger.ListedResource, now time.Time) time.Time {
	until := r.since.Add(firstResults)
	if r.shown || !now.Before(until) || !slices.ContainsFunc(listed.Devices, func(e ledger.Entry) bool { return e.Reason == health.ReasonPending }) {
		return time.Time{}
	}
	return until
}

// start runs the plugin until stop, once the last one of this name has ended: two at
// once would be two live streams.
func (r *resource) start(ctx context.Context, group *errgroup.Group, before <-chan struct{}, forget func(resource string)) {
	own, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.stop, r.ended = stop, ended
	group.Go(func() error {
		defer close(ended)
		defer stop()
		if before != nil {
			select {
			case <-before:
			case <-own.Done():
				<-before
				return nil
			}
		}
		err := r.plugin.Run(own)
		forget(r.Name)
		return err
	})
}
