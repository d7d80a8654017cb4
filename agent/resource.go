package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/topology"
)

// resource is one resource as its plugin sees it: the latest state, and the
// answers that follow from it. The loop publishes; any number of streams and
// calls read without a lock.
type resource struct {
	name  string
	paths Paths
	cdi   cdi.Options
	looks looks
	now   atomic.Pointer[published]
}

// published is one immutable state of a resource.
type published struct {
	list       []device.Listed
	entries    map[string]ledger.Entry // by ID of slot 0
	prefer     string                  // as topology.Prefer takes it
	candidates []topology.Candidate    // one a slot, in the order of list
	changed    chan struct{}           // closed when a newer list is there
}

func newResource(name string, paths Paths, options cdi.Options, looks looks) *resource {
	r := &resource{name: name, paths: paths, cdi: options, looks: looks}
	r.now.Store(&published{changed: make(chan struct{})})
	return r
}

// publish replaces the state and reports whether the list is another one. A
// device that only moved to another node keeps the list, and no stream wakes.
func (r *resource) publish(list []device.Listed, entries []ledger.Entry, prefer string) bool {
	old := r.now.Load()
	fresh := &published{list: list, entries: make(map[string]ledger.Entry, len(entries)), prefer: prefer, changed: old.changed}
	for _, e := range entries {
		fresh.entries[e.Offer.ID] = e
	}
	for _, l := range list {
		id, _ := device.SplitSlot(l.ID)
		physical := fresh.entries[id].Offer.Hardware
		if physical == "" {
			physical = id
		}
		fresh.candidates = append(fresh.candidates, topology.Candidate{ID: l.ID, Device: physical, NUMA: l.NUMA})
	}
	same := slices.EqualFunc(old.list, list, func(a, b device.Listed) bool { return reflect.DeepEqual(a, b) })
	if !same {
		fresh.changed = make(chan struct{})
	}
	r.now.Store(fresh)
	if !same {
		close(old.changed)
	}
	return !same
}

// Devices is the latest list and a channel that is closed when it is no
// longer the latest.
func (r *resource) Devices() ([]device.Listed, <-chan struct{}) {
	p := r.now.Load()
	return p.list, p.changed
}

// sorted lists the entries by ID.
func (p *published) sorted() []ledger.Entry {
	entries := slices.Collect(maps.Values(p.entries))
	slices.SortFunc(entries, func(x, y ledger.Entry) int { return device.CompareNatural(x.Offer.ID, y.Offer.ID) })
	return entries
}

// Allocate answers for one container.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Answer, error) {
	offers, err := r.now.Load().offers(ids)
	if err == nil && slices.ContainsFunc(offers, quietlyUsed) {
		if err = r.looks.wait(ctx); err == nil {
			offers, err = r.now.Load().offers(ids)
		}
	}
	if err != nil {
		return device.Answer{}, err
	}
	return r.answer(offers)
}

// offers lists what slots are of by ID, as it is now.
func (p *published) offers(ids []string) ([]device.Offer, error) {
	offers := make([]device.Offer, 0, len(ids))
	for _, slot := range ids {
		id, _ := device.SplitSlot(slot)
		e, ok := p.entries[id]
		switch {
		case !ok:
			return nil, fmt.Errorf("device %q is not listed", slot)
		case !e.Healthy:
			return nil, fmt.Errorf("device %q is Unhealthy: %s", slot, e.Reason)
		}
		if !slices.ContainsFunc(offers, func(o device.Offer) bool { return o.ID == id }) {
			offers = append(offers, e.Offer)
		}
	}
	slices.SortFunc(offers, func(a, b device.Offer) int { return strings.Compare(a.ID, b.ID) })
	return offers, nil
}

// answer is what a container gets that holds the offered devices; everything
// that it names is there at this moment.
func (r *resource) answer(offers []device.Offer) (device.Answer, error) {
	for _, o := range offers {
		for _, n := range o.Nodes {
			handed := n.HostPath
			if n.Follow && !o.CDI {
				handed = r.cdi.LinkPath(o.ID, n.Key)
			}
			if err := r.paths.checkNode(handed, n); err != nil {
				return device.Answer{}, fmt.Errorf("device %q: %w", o.ID, err)
			}
		}
	}
	return cdi.Answer(r.name, offers, r.cdi)
}

// Prefer suggests which of the available slots to take.
func (r *resource) Prefer(available, must []string, size int) []string {
	p := r.now.Load()
	return topology.Prefer(p.prefer, p.candidates, available, must, size)
}
