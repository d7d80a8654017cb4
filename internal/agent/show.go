package agent

import (
	"context"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// Changed returns a channel that is closed when the devices may have changed. To miss no change, call
// it before looking at them.
func (a *Agent) Changed() <-chan struct{} { return *a.passed.Load() }

// tellPassed closes the channel that Changed has returned.
func (a *Agent) tellPassed() {
	next := make(chan struct{})
	close(*a.passed.Swap(&next))
}

// Allocatable lists the healthy slots of a served resource, and counts all slots.
func (a *Agent) Allocatable(name string) (healthy []string, all int) {
	list, _ := a.members().find(name).Devices()
	for _, l := range list {
		if l.Healthy {
			healthy = append(healthy, l.ID)
		}
	}
	slices.Sort(healthy)
	return healthy, len(list)
}

// Allocate returns what a container gets that requests size slots of a served resource, which must
// have as many healthy slots. The slots are the ones that the resource prefers. Only for
// Options.ShowsOnly, where nothing is granted.
func (a *Agent) Allocate(ctx context.Context, name string, size int) (ids []string, response device.Response, err error) {
	r := a.members().find(name)
	healthy, _ := a.Allocatable(name)
	ids = r.Prefer(healthy, nil, size)
	// A resource may have no preference.
	if len(ids) != size {
		ids = healthy[:size]
	}
	response, err = r.Allocate(ctx, ids)
	return ids, response, err
}

// Names lists the served resources, retiring ones last. The names are without the mark of DRA.
func (a *Agent) Names() []string {
	var names []string
	for _, r := range a.members() {
		names = append(names, r.Name)
	}
	return names
}

// Entries lists the devices of a resource, by ID. It is nil if there is no such resource, and must not be
// changed.
func (a *Agent) Entries(name string) []ledger.Entry {
	if r := a.members().find(name); r != nil {
		return r.now.Load().entries
	}
	return nil
}
