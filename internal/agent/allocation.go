package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// Allocate returns the response for a container with these slots. The kubelet keeps it for the life
// of the pod, so everything in it is checked now. ids has at least one slot. The error names the
// device and the reason.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	leave, err := r.agent.enter(ctx)
	if err != nil {
		return device.Response{}, err
	}
	defer leave()
	return r.allocate(ctx, ids, nil)
}

// allocate is Allocate for a container of a claim. amounts are what it gets of shared capacities, by
// the ID of the device.
func (r *resource) allocate(ctx context.Context, ids []string, amounts map[string]map[string]string) (device.Response, error) {
	offers, err := r.now.Load().find(ids)
	if err != nil {
		return device.Response{}, err
	}
	for i := range offers {
		o := &offers[i]
		if err := r.checkNets(o); err != nil {
			return device.Response{}, err
		}
		o.Amounts = amounts[o.ID]
	}
	if r.byDRA {
		return r.respond(offers) // the driver records claims
	}
	var devices []holds.Wanted
	for i := range offers {
		devices = append(devices, wanted(r.key, &offers[i]))
	}
	// This may wait until the containers of the former pod have ended.
	cancel, err := r.agent.book.Grant(ctx, devices, ids)
	if err != nil {
		return device.Response{}, err
	}
	response, err := r.respond(offers)
	if err != nil {
		cancel()
	}
	return response, err
}

// respond returns the response for a container with these offers. It makes their health directories.
func (r *resource) respond(offers []device.Offer) (device.Response, error) {
	response, err := r.Respond(offers)
	if err != nil {
		r.agent.rescan.send() // something that the last pass found or made is gone, and no event has announced it
		return device.Response{}, err
	}
	health := r.agent.outputs.health
	for _, m := range cdi.HealthMounts(offers, health.Path) {
		if err := health.Make(m.HostPath); err != nil {
			return device.Response{}, fmt.Errorf("container.health_dir: %w", err)
		}
		response.Mounts = append(response.Mounts, m)
	}
	return response, nil
}

// checkNets returns an error if the host has started to use an interface of an offer: no event announces
// that an interface becomes a port of a bridge, or that a route uses it. Only the state of the interface
// is read, because a scan may take longer than the kubelet should wait.
func (r *resource) checkNets(o *device.Offer) error {
	for _, n := range o.Nets {
		if err := r.checkNet(n.HostName); err != nil {
			r.agent.rescan.send() // the list changes as well
			return fmt.Errorf("device %q: %w", o.ID, err)
		}
	}
	return nil
}

// checkNet returns why a network interface cannot move into a container now.
func (r *resource) checkNet(name string) error {
	use, err := r.agent.host.latest.Load().NetUseNow(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the network interface %s is in a container already, or gone", name)
	}
	if err != nil {
		return fmt.Errorf("the network interface %s can't be read: %w", name, err)
	}
	if use != "" {
		return fmt.Errorf("%s is in use by the host, and is never moved: it is %s", name, use)
	}
	return nil
}

// find returns the offers of slots in the order of their IDs, or an error for the first slot that
// is not listed or not healthy: the kubelet may still use an older list. A device is returned once,
// however many of its slots are named.
func (p *published) find(slots []string) ([]device.Offer, error) {
	offers := make([]device.Offer, 0, len(slots))
	slotsOf := make(map[string]int) // by the ID of the device
	limit := p.config.Container.MaxPerContainer
	for _, slotID := range slots {
		offer, err := p.findSlot(slotID)
		if err != nil {
			return nil, err
		}
		slotsOf[offer.ID]++
		if slotsOf[offer.ID] == 1 {
			offers = append(offers, *offer)
		}
		// The kubelet may ignore the preference and choose other slots, so the limit is also
		// checked here.
		isOverLimit := limit > 0 && slotsOf[offer.ID] > limit
		if isOverLimit {
			return nil, fmt.Errorf("device %q: more of its slots for one container than container.max_per_container = %d",
				offer.ID, limit)
		}
	}
	// The order decides the values of environment variables, and must be the same after a restart.
	sort.Slice(offers, func(i, j int) bool {
		return offers[i].ID < offers[j].ID
	})
	return offers, nil
}

// findSlot returns the offer of a slot, or why the slot must not be allocated. Such a slot may stay
// listed while a container holds it.
func (p *published) findSlot(slotID string) (*device.Offer, error) {
	at := slices.IndexFunc(p.list, func(l device.Listed) bool { return l.ID == slotID })
	if at < 0 {
		return nil, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
	}
	if listed := &p.list[at]; !listed.Healthy {
		return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, listed.Reason)
	}
	id, _ := device.SplitSlot(slotID)
	i, _ := p.indexOf(id)
	return &p.entries[i].Offer, nil
}
