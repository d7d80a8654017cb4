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
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// Blocks reports whether Allocate may block. Then the plugin limits the time of the call.
func (r *resource) Blocks() bool { return r.now.Load().blocks || !r.gate.isOpen() }

// Allocate returns the response for a container with these slots. The kubelet keeps it for the life
// of the pod, so everything in it is checked now. ids has at least one slot. The error names the
// device and the reason.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	leave, err := r.gate.enter(ctx)
	if err != nil {
		return device.Response{}, err
	}
	defer leave()
	return r.allocate(ctx, ids, nil)
}

// allocate is Allocate for a container of a claim. amounts are what it gets of shared capacities, by
// the ID of the device.
func (r *resource) allocate(ctx context.Context, ids []string, amounts map[string]map[string]string) (device.Response, error) {
	devices, err := r.findCurrent(ids)
	if err != nil {
		return device.Response{}, err
	}
	// This may wait until the containers of the former pod have ended.
	err = r.holders.Check(ctx, ids)
	if err != nil {
		return device.Response{}, err
	}
	devices = withAmounts(devices, amounts)
	cancel, err := r.reserve(ctx, devices, ids)
	if err != nil {
		return device.Response{}, err
	}
	response, err := r.respond(devices, ids)
	if err != nil {
		cancel()
		return device.Response{}, err
	}
	// From now on, the checkpoint of the kubelet should have these slots.
	r.holders.Granted(ids)
	return response, nil
}

// withAmounts returns devices with the amounts that a claim gets, by the ID of the device. Their
// responses are not kept, because each claim has its own.
func withAmounts(devices []*cdi.Injection, amounts map[string]map[string]string) []*cdi.Injection {
	out := make([]*cdi.Injection, len(devices))
	for i, d := range devices {
		out[i] = d
		gets := amounts[d.Offer.ID]
		if gets == nil || len(d.Offer.Capacity) == 0 {
			continue
		}
		// The published state is immutable, so the amounts go into a copy of the offer.
		offer := *d.Offer
		offer.Amounts = gets
		out[i] = &cdi.Injection{Offer: &offer}
	}
	return out
}

// respond returns the response for a container with these devices, of which it gets these slots.
func (r *resource) respond(devices []*cdi.Injection, ids []string) (device.Response, error) {
	response, err := r.Respond(devices)
	if err != nil {
		return device.Response{}, err
	}
	// All devices of a resource have the same directory in the container.
	hasHealthDir := devices[0].Offer.HealthDir != ""
	if !hasHealthDir {
		return response, nil
	}
	err = r.addHealthDir(&response, devices, ids)
	if err != nil {
		return device.Response{}, err
	}
	return response, nil
}

// findCurrent returns the devices of slots, see published.find. It is an error if the host has started
// to use the interface of one of them: no event announces that an interface becomes a port of a
// bridge, or that a route uses it. Only the state of the interface is read, because a scan may take
// longer than the kubelet should wait.
func (r *resource) findCurrent(ids []string) ([]*cdi.Injection, error) {
	devices, err := r.now.Load().find(ids)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		for _, n := range d.Offer.Nets {
			err := r.checkNet(n.HostName)
			if err != nil {
				r.rescans.request() // the list changes as well
				return nil, fmt.Errorf("device %q: %w", d.Offer.ID, err)
			}
		}
	}
	return devices, nil
}

// checkNet returns why a network interface cannot move into a container now.
func (r *resource) checkNet(name string) error {
	use, err := r.nets.Load().NetUseNow(name)
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

// addHealthDir adds the health directory to the response for a container with these slots. It makes
// the directory. The error means that the container must not start.
func (r *resource) addHealthDir(response *device.Response, devices []*cdi.Injection, slots []string) error {
	offers := make([]*device.Offer, len(devices))
	for i, d := range devices {
		offers[i] = d.Offer
	}
	// The devices may have changed since findCurrent. Add asks again, under its own lock.
	listed := func() error {
		_, err := r.now.Load().find(slots)
		return err
	}
	path, err := r.health.Add(offers, listed)
	if err != nil {
		return fmt.Errorf("container.health_dir: %w", err)
	}
	mount := device.Mount{
		HostPath:      path,
		ContainerPath: offers[0].HealthDir,
		ReadOnly:      true,
	}
	// The response may be a kept one, whose mounts other calls share.
	mounts := slices.Clip(response.Mounts)
	response.Mounts = append(mounts, mount)
	return nil
}

// find returns the devices of slots in the order of their IDs, or an error for the first slot that
// is not listed or not healthy: the kubelet may still use an older list. A device is returned once,
// however many of its slots are named.
func (p *published) find(slots []string) ([]*cdi.Injection, error) {
	devices := make([]*cdi.Injection, 0, len(slots))
	slotsOf := make(map[string]int) // by the ID of the device
	limit := p.config.Container.MaxPerContainer
	for _, slotID := range slots {
		i, err := p.findSlot(slotID)
		if err != nil {
			return nil, err
		}
		id := p.entries[i].Offer.ID
		slotsOf[id]++
		if slotsOf[id] == 1 {
			devices = append(devices, &p.injections[i])
			continue
		}
		// The kubelet may ignore the preference and choose other slots, so the limit is also
		// checked here.
		isOverLimit := limit > 0 && slotsOf[id] > limit
		if isOverLimit {
			return nil, fmt.Errorf("device %q: more of its slots for one container than container.max_per_container = %d",
				id, limit)
		}
	}
	// The order decides the values of environment variables, and must be the same after a restart.
	sort.Slice(devices, func(i, j int) bool {
		return devices[i].Offer.ID < devices[j].Offer.ID
	})
	return devices, nil
}

// findSlot returns the index of the entry of a slot, or why the slot must not be allocated.
func (p *published) findSlot(slotID string) (int, error) {
	id, slot := device.SplitSlot(slotID)
	i, found := p.indexOf(id)
	if !found || !p.entries[i].Lists(slot) {
		return 0, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
	}
	reason, isRefused := p.refusal(&p.entries[i], slotID, slot)
	if isRefused {
		return 0, fmt.Errorf("device %q is unhealthy: %s", slotID, reason)
	}
	return i, nil
}

// refusal returns whether a slot of an entry must not be allocated, and why. If there are several
// reasons, it returns the one that affects the most slots. An Unhealthy entry may have no reason.
func (p *published) refusal(e *ledger.Entry, slotID string, slot int) (reason string, isRefused bool) {
	if !e.Healthy {
		return e.Reason, true
	}
	if e.Excluded != "" {
		return e.Excluded, true
	}
	// Such a slot stays listed while a container may hold it.
	if slot >= e.Offer.Slots {
		return ledger.ReasonSlotRetired, true
	}
	reason = p.refused[slotID]
	return reason, reason != ""
}
