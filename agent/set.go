package agent

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/ledger"
)

// set is what is served at one moment: the resources in the order of the
// configuration, then those that are being retired. It is immutable: the loop
// makes a new one, and whoever asks reads the one that is there.
type set struct {
	members []member
	byName  map[string]*served
}

// member is a resource of a set. config is nil while it is being retired.
type member struct {
	*served
	config *config.Resource
}

// find returns the resource with a name; nil is none.
func (s *set) find(name string) *served {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// follow returns the set of what is listed, with the resources of s that still
// are: s itself where nothing is another one.
func (s *set) follow(listed []ledger.ListedResource, configs map[string]*config.Resource, fresh func(name string) *served) *set {
	if s != nil && slices.EqualFunc(s.members, listed, func(m member, r ledger.ListedResource) bool {
		return m.name == r.Name && m.config == configs[r.Name]
	}) {
		return s
	}
	next := &set{byName: make(map[string]*served, len(listed))}
	for _, r := range listed {
		m := s.find(r.Name)
		if m == nil {
			m = fresh(r.Name)
		}
		next.members = append(next.members, member{m, configs[r.Name]})
		next.byName[r.Name] = m
	}
	return next
}

// serve makes the set that of what the ledger lists and publishes each list. A
// resource is made when it is first listed and ends when it no longer is. The
// result is when the lists that are held back for their first results are to be
// shown; zero where none is.
func (l *loop) serve(ctx context.Context, listed []ledger.ListedResource, configs map[string]*config.Resource, now time.Time) (due time.Time) {
	old := l.serving.Load()
	fresh := old.follow(listed, configs, func(name string) *served { return l.newServed(name, now) })
	l.serving.Store(fresh)
	for i, m := range fresh.members {
		if at := m.awaits(listed[i], now); !at.IsZero() {
			due = earlier(due, at)
			continue
		}
		m.shown = true
		if m.show(m.config, listed[i]) {
			l.paced.news = time.Now()
		}
		if m.plugin != nil && m.ended == nil && (listed[i].Register || m.config != nil && m.config.Register == config.RegisterAlways) {
			m.start(ctx, l.group, l.ending[m.name], l.metrics.Forget)
			delete(l.ending, m.name)
		}
	}
	for name, ended := range l.ending {
		select {
		case <-ended:
			delete(l.ending, name)
		default:
		}
	}
	if old == nil || old == fresh {
		return due
	}
	for _, m := range old.members {
		if fresh.find(m.name) == nil && m.ended != nil {
			l.log.Info("resource is offered no more", "resource", m.name)
			m.stop()
			l.ending[m.name] = m.ended
		}
	}
	return due
}

// start has the kubelet told of the resource until stop, once the one of this
// name that ended before, if any, is out of the way: two at once would be two
// live streams.
func (s *served) start(ctx context.Context, group *errgroup.Group, before <-chan struct{}, forget func(resource string)) {
	own, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	s.stop, s.ended = stop, ended
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
		err := s.plugin.Run(own)
		forget(s.name)
		return err
	})
}

// Names lists the resources in the order of the configuration, then those that
// are being retired.
func (a *Agent) Names() []string {
	var names []string
	for _, m := range a.members() {
		names = append(names, m.name)
	}
	return names
}

// Entries lists the devices of a resource as they are now, by ID.
func (a *Agent) Entries(name string) []ledger.Entry {
	s := a.serving.Load().find(name)
	if s == nil {
		return nil
	}
	return s.resource.now.Load().sorted()
}

func (a *Agent) members() []member {
	if s := a.serving.Load(); s != nil {
		return slices.Clone(s.members)
	}
	return nil
}

// earlier is the first of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
