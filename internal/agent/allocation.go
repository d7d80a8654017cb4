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
	devices = withAmounts(devices, amounts)
	if r.dra != nil {
		return r.respond(devices) // the driver records claims
	}
	// This may wait until the containers of the former pod have ended.
	cancel, err := r.book.Grant(ctx, slotsOf(r.key, devices, ids))
	if err != nil {
		return device.Response{}, err
	}
	response, err := r.respond(devices)
	if err != nil {
		cancel()
		return device.Response{}, err
	}
	return response, nil
}

// slotsOf are the slots of devices, for the book.
func slotsOf(key string, devices []*cdi.Injection, ids []string) []holds.Slot {
	slots := make([]holds.Slot, len(ids))
	for i, slot := range ids {
		id, _ := device.SplitSlot(slot)
		slots[i].ID = slot
		for _, d := range devices {
			if d.Offer.ID == id {
				slots[i].Device = wanted(key, d.Offer)
			}
		}
	}
	return slots
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

// respond returns the response for a container with these devices. It makes their health directories.
func (r *resource) respond(devices []*cdi.Injection) (device.Response, error) {
	response, err := r.Respond(devices)
	if err != nil {
		return device.Response{}, err
	}
	mounts := cdi.HealthMounts(offersOf(devices), r.health.Path)
	for _, m := range mounts {
		if err := r.health.Make(m.HostPath); err != nil {
			return device.Response{}, fmt.Errorf("container.health_dir: %w", err)
		}
	}
	// The response may be a kept one, whose mounts other calls share.
	response.Mounts = append(slices.Clip(response.Mounts), mounts...)
	return response, nil
}

// offersOf returns the offers of devices.
func offersOf(devices []*cdi.Injection) []device.Offer {
	offers := make([]device.Offer, len(devices))
	for i, d := range devices {
		offers[i] = *d.Offer
	}
	return offers
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

// findSlot returns the index of the entry of a slot, or why the slot must not be allocated. Such a slot may
// stay listed while a container holds it.
func (p *published) findSlot(slotID string) (int, error) {
	at := slices.IndexFunc(p.list, func(l device.Listed) bool { return l.ID == slotID })
	if at < 0 {
		return 0, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
	}
	if listed := &p.list[at]; !listed.Healthy {
		return 0, fmt.Errorf("device %q is unhealthy: %s", slotID, listed.Reason)
	}
	id, _ := device.SplitSlot(slotID)
	i, _ := p.indexOf(id)
	return i, nil
}
